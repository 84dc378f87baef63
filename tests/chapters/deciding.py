"""How a speed-up test decides, so that ten runs in a row mean something.

Rounds in turns, the median of their ratios, and a sign-test interval, looked at after 12, 24, 48, … rounds. Whoever looks again and again at a 95 %
interval until it lies where it should sees it there by chance in one run of ten; five looks at 99 % are together one in forty.
"""
from __future__ import annotations

import math
import statistics
import time
from typing import Any, Callable, NamedTuple

import pytest

from minipt2.report import measure

LOOKS = (12, 24, 48, 96, 192)
LEVEL = 0.01
BUDGET = 60.0
"""Seconds of wall clock after which a machine has decided nothing."""
NOISE = 1.02
"""What two compilations of the same thing may seem to differ by: their memory lies elsewhere. No floor is below it."""
LONG = 0.02
"""Seconds that a timing takes at least, of as many steps as that needs."""


class Decision(NamedTuple):
    median: float
    low: float
    high: float
    rounds: int
    floor: float

    @property
    def verdict(self) -> str:
        return "pays" if self.low > self.floor else "fails" if self.high < self.floor else "inconclusive"

    def __str__(self) -> str:
        return f"{self.verdict} {self.median:.3f} [{self.low:.3f}, {self.high:.3f}] floor {self.floor} rounds {self.rounds}"


def interval(ratios: list[float], floor: float) -> Decision:
    """The median and its sign-test interval of probability 1 - LEVEL."""
    ordered, n = sorted(ratios), len(ratios)
    below, dropped = 0.0, -1
    while dropped < (n - 1) // 2 and below + math.comb(n, dropped + 1) / 2**n <= LEVEL / 2:
        dropped += 1
        below += math.comb(n, dropped) / 2**n
    k = max(dropped, 0)
    return Decision(statistics.median(ordered), ordered[k], ordered[n - 1 - k], n, floor)


def decide(rounds: Callable[[int], list[float]], floor: float) -> Decision:
    """``rounds(n)`` measures ``n`` ratios more; until the interval lies on one side of ``floor`` at a look, or ``BUDGET`` is spent."""
    end, ratios = time.perf_counter() + BUDGET, []
    for look in LOOKS:
        while len(ratios) < look and (len(ratios) < LOOKS[0] or time.perf_counter() < end):
            ratios += rounds(LOOKS[0])
        decision = interval(ratios, floor)
        if decision.verdict != "inconclusive" or time.perf_counter() > end:
            break
    return decision


def in_turns(slow: Callable[[], Any], fast: Callable[[], Any], clock: measure.Clock = time.process_time) -> Callable[[int], list[float]]:
    """Rounds of two callables, warmed up."""
    measure.pin_malloc()
    for step in (slow, fast) * 3:
        step()
    start = clock()
    fast()
    steps = range(math.ceil(LONG / max(clock() - start, 1e-4)))

    def often(step: Callable[[], Any]) -> Callable[[], None]:
        def run() -> None:
            for _ in steps:
                step()
        return run

    def rounds(n: int) -> list[float]:
        timing = measure.interleave({"slow": often(slow), "fast": often(fast)}, n, clock, warmup=1)
        return [a / b for a, b in zip(timing["slow"].seconds, timing["fast"].seconds)]
    return rounds


def judge(decision: Decision, record_property: Callable[[str, Any], None]) -> None:
    """Pass, fail, or say that this machine has decided nothing: which is no pass."""
    record_property("decision", str(decision))
    if decision.verdict == "inconclusive":
        pytest.skip(f"inconclusive on this machine: {decision}")
    assert decision.verdict == "pays", str(decision)
