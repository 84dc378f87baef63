"""The race: which configuration is fastest, found by timing, the slow ones dropped early.

Upstream: ``torch._inductor.runtime.triton_heuristics.CachingAutotuner``; the method: successive halving (Jamieson and Talwalkar, 2016).
"""
from __future__ import annotations

import statistics
import time
from typing import Callable, Sequence, TypeVar

from ...exercise import exercise

C = TypeVar("C")
FIRST_ROUNDS = 3
MARGIN = 1.03
"""A challenger takes the first guess's place only where it is faster by so much: timings are never exact."""


@exercise("7.3")
def pick(cs: Sequence[C], run: Callable[[C], float], check: Callable[[C], bool], budget: float,
         times: dict[C, float] | None = None) -> C:
    """The fastest of ``cs`` whose answer ``check`` accepts; ``cs[0]`` is the guess that the others must beat, and needs no check.

    run: seconds of one run; it may raise ``RuntimeError`` (a configuration that does not launch is out). budget: seconds in all, checks
    included; when they are spent the best so far wins. times: filled with each configuration's median seconds.
    Every round times all that are left in turns, keeps the faster half, and doubles the rounds.
    """
    # >>> 7.3
    end = time.perf_counter() + budget
    seen: dict[C, list[float]] = {}
    left, rounds, wrong = list(cs), FIRST_ROUNDS, set()
    while len(left) > 1:
        for c in left * rounds:
            if time.perf_counter() >= end:
                return _best(cs[0], seen, times)
            if c in seen or c == cs[0] or c not in wrong and _right(c, check):
                _time(c, run, seen)
            else:
                wrong.add(c)
        left = sorted((c for c in left if c in seen), key=lambda c: _median(seen[c]))
        left, rounds = left[:(len(left) + 1) // 2], 2 * rounds
    return _best(cs[0], seen, times)
    # <<< 7.3


@exercise("7.3")
def _best(guess: C, seen: dict[C, list[float]], times: dict[C, float] | None) -> C:
    """The fastest by median, if it beats the guess by ``MARGIN``; else the guess."""
    # >>> 7.3
    if times is not None:
        times.update({c: _median(s) for c, s in seen.items()})
    best = min(seen, key=lambda c: _median(seen[c]), default=guess)
    return best if best in seen and _median(seen[best]) * MARGIN < _median(seen.get(guess, [float("inf")])) else guess
    # <<< 7.3


def _right(c: C, check: Callable[[C], bool]) -> bool:
    try:
        return check(c)
    except RuntimeError:
        return False


def _time(c: C, run: Callable[[C], float], seen: dict[C, list[float]]) -> None:
    try:
        seconds = run(c)
    except RuntimeError:
        seconds = float("inf")
    seen.setdefault(c, []).append(seconds)


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds)
