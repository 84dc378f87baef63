"""The race among configurations, with planted speeds."""
from __future__ import annotations

import itertools
import time

import pytest

from minipt2.inductor.autotune import pick


class Track:
    """Configurations with planted speeds in seconds; every eighth run is disturbed, as on a shared machine."""

    def __init__(self, **speeds):
        self.speeds, self.runs = speeds, []

    def run(self, c):
        self.runs.append(c)
        seconds = self.speeds[c]
        if isinstance(seconds, Exception):
            raise seconds
        return seconds * (3 if len(self.runs) % 8 == 0 else 1)


def right(c):
    return True


def test_the_planted_best_wins():
    speeds = {f"c{k}": 1.0 + k for k in range(16)}
    for best in ("c3", "c15"):
        track = Track(**{**speeds, best: 0.2})
        assert pick(list(speeds), track.run, right, 10) == best


def test_slow_ones_are_dropped_early():
    track = Track(**{f"c{k}": 1.0 + k for k in range(16)})
    pick([f"c{k}" for k in range(16)], track.run, right, 10)
    assert track.runs.count("c15") == 3 < track.runs.count("c0") and len(track.runs) < 16 * 15


def test_a_wrong_answer_is_rejected_however_fast():
    track = Track(first=2.0, wrong=0.1, second=1.0)
    assert pick(["first", "wrong", "second"], track.run, lambda c: c != "wrong", 10) == "second"
    assert "wrong" not in track.runs


def test_the_first_guess_stays_where_nothing_is_clearly_faster():
    track = Track(first=1.0, same=0.99)
    assert pick(["first", "same"], track.run, right, 10) == "first"


@pytest.mark.parametrize("where", ["run", "check"])
def test_what_does_not_launch_is_out(where):
    error = RuntimeError("too many resources requested for launch")
    track = Track(first=1.0, broken=error if where == "run" else 0.1, good=0.5)

    def check(c):
        if where == "check" and c == "broken":
            raise error
        return True
    assert pick(["first", "broken", "good"], track.run, check, 10) == "good"


def test_the_budget_ends_it():
    def slow(c):
        time.sleep(0.02)
        return 1.0
    begin = time.perf_counter()
    assert pick([f"c{k}" for k in range(200)], slow, right, 0.1) == "c0"
    assert time.perf_counter() - begin < 1


def test_a_budget_of_nothing_takes_the_first_guess():
    counter = itertools.count()
    assert pick(["a", "b"], lambda c: next(counter), right, 0) == "a" and next(counter) == 0


def test_times_are_told():
    times = {}
    pick(["a", "b"], Track(a=1.0, b=0.5).run, right, 10, times)
    assert times == {"a": 1.0, "b": 0.5}
