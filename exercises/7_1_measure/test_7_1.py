import gc
import math
import random

from minipt2.course.checks import same
from minipt2.report.measure import _sign_test_rank, interleave, paired, ratio


class Machine:
    """A clock that shows what callables 'cost', with spikes now and then."""

    def __init__(self, seed=0, spikes=0.0):
        self.rng, self.now, self.spikes, self.log = random.Random(seed), 0.0, spikes, []

    def call(self, name, cost):
        def run():
            self.log.append(name)
            self.now += cost * (self.rng.uniform(3, 10) if self.rng.random() < self.spikes else self.rng.uniform(0.97, 1.03))
        return run

    def clock(self):
        return self.now


def test_rank_of_the_sign_test():
    """Against the binomial distribution itself."""
    for n in range(1, 60):
        skip = _sign_test_rank(n)
        outside = sum(math.comb(n, k) for k in range(skip)) / 2 ** n
        assert skip == 0 or 2 * outside <= 0.05, f"{n} values, {skip} dropped at each end: covers {1 - 2 * outside:.3f}"
        same(0 <= skip < max(1, (n + 1) // 2), True, where=f"dropping {skip} of {n} at each end leaves something")
    same([_sign_test_rank(n) for n in (6, 12, 25)], [0, 2, 7])


def test_quotients_of_rounds():
    """A round that was slow for both says nothing."""
    a, b = [1.1, 11.0, 1.1, 2.2, 1.1], [1.0, 10.0, 1.0, 2.0, 1.0]
    r = ratio(a, b)
    same([round(x, 6) for x in (r.median, r.low, r.high)], [1.1, 1.1, 1.1])
    r = ratio([3.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    same((round(r.median, 4), r.low, r.high, r.rounds), (0.6667, 0.5, 3.0, 3))


def test_spikes_do_not_move_the_median():
    """A third of the rounds are ten times slower."""
    r = ratio([1.0, 1.0, 10.0, 1.0, 12.0, 1.0, 1.0, 9.0, 1.0], [1.0] * 9)
    same(r.median, 1.0)


def test_the_order_turns_about():
    """AB, BA, AB: whoever goes second is not always the same."""
    machine = Machine()
    calls = {"a": machine.call("a", 1), "b": machine.call("b", 1)}
    timing = interleave(calls, 4, machine.clock, warmup=1)
    same("".join(machine.log), "ab" + "abbaabba")
    same(sorted(timing), ["a", "b"])
    same(len(timing["a"].seconds), 4)


def test_the_collector_comes_back():
    """Also when a callable fails."""
    def fails():
        assert not gc.isenabled(), "the collector runs while time is taken"
        raise KeyError
    assert gc.isenabled()
    try:
        interleave({"a": fails}, 1, lambda: 0.0, warmup=0)
    except KeyError:
        pass
    assert gc.isenabled()


def test_planted_difference():
    """10 % more, under spikes in a third of all calls: found within 3 %."""
    machine = Machine(1, spikes=0.3)
    timing = interleave({"a": machine.call("a", 1.1), "b": machine.call("b", 1.0)}, 801, machine.clock, warmup=0)
    r = ratio(timing["a"].seconds, timing["b"].seconds)
    assert abs(r.median - 1.10) < 0.04, r
    assert r.low < 1.10 < r.high, r


def test_no_difference():
    """A against A: the interval contains 1."""
    machine = Machine(2, spikes=0.2)
    r = paired(machine.call("a", 1.0), machine.call("b", 1.0), machine.clock, budget=0.01)
    assert r.low <= 1 <= r.high, r
