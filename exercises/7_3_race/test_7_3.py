import random
import time

from minipt2.course.checks import same
from minipt2.inductor.autotune.race import pick


class Track:
    """Configurations with planted speeds; runs take no real time."""

    def __init__(self, costs, wrong=(), noise=0.05, seed=0):
        self.costs, self.wrong, self.noise, self.rng, self.runs = costs, set(wrong), noise, random.Random(seed), []

    def run(self, c):
        self.runs.append(c)
        if self.costs[c] is None:
            raise RuntimeError("does not launch")
        return self.costs[c] * self.rng.uniform(1 - self.noise, 1 + self.noise)

    def check(self, c):
        return c not in self.wrong


def race(track, budget=20.0, **more):
    return pick(list(track.costs), track.run, track.check, budget, **more)


def test_the_planted_best_wins():
    """Among sixteen, under noise, whichever it is."""
    for seed in range(8):
        costs = {f"c{k}": 1 + 0.15 * k for k in range(16)}
        names = list(costs)
        random.Random(seed).shuffle(names)
        same(race(Track({n: costs[n] for n in names}, seed=seed)), "c0")


def test_a_wrong_answer_never_wins():
    """However fast; nor is it timed."""
    track = Track({"guess": 1.0, "broken": 0.01, "good": 0.5}, wrong=["broken"])
    same(race(track), "good")
    assert "broken" not in track.runs, "a configuration whose answer is wrong was timed"


def test_the_guess_needs_no_check():
    """It is what runs without tuning."""
    same(race(Track({"guess": 0.5, "a": 1.0, "b": 2.0}, wrong=["guess"])), "guess")


def test_what_does_not_launch_is_out():
    """It costs one try."""
    track = Track({"guess": 1.0, "dead": None, "good": 0.4})
    same(race(track), "good")


def test_a_tie_goes_to_the_guess():
    """A challenger must be faster by more than timings are exact."""
    for seed in range(5):
        same(race(Track({"guess": 1.0, "a": 0.99, "b": 1.01, "c": 1.5}, noise=0.001, seed=seed)), "guess")


def test_the_half_goes_on():
    """The loser of a first, noisy round may be the winner in the end."""
    class Late(Track):
        def run(self, c):
            super().run(c)
            early = sum(r == c for r in self.runs) <= 3
            return {"guess": 3.0, "a": 1.0 if early else 2.0, "b": 1.1, "c": 5.0}[c]
    same(race(Late({"guess": 3.0, "a": 1.0, "b": 1.1, "c": 5.0})), "b")


def test_the_budget_holds():
    """When the time is spent, the best so far wins."""
    class Slow(Track):
        def run(self, c):
            time.sleep(0.01)
            return super().run(c)
    start = time.perf_counter()
    found = race(Slow({f"c{k}": 10.0 - k for k in range(16)}), budget=0.15)
    assert time.perf_counter() - start < 1.0, "the race went on for long after its budget"
    assert found in {f"c{k}" for k in range(16)}


def test_times_are_told():
    """Medians of all that were timed."""
    times = {}
    race(Track({"guess": 1.0, "a": 0.5, "bad": 0.1}, wrong=["bad"], noise=0.0), times=times)
    same(times, {"guess": 1.0, "a": 0.5})
