"""Coordinate descent: from a race's winner to its neighbours, one coordinate changed at a time, as long as that is faster.

Upstream: ``torch._inductor.runtime.coordinate_descent_tuner``.
"""
from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Callable, Sequence, TypeVar

from .race import pick

C = TypeVar("C")


def one_step(c: Any, **values: Sequence[Any]) -> list[Any]:
    """Configurations (of ``c``'s dataclass) that differ from ``c`` in one coordinate, by one step along its ``values``, smallest first."""
    found = []
    for name, along in values.items():
        place = along.index(getattr(c, name))
        found += [replace(c, **{name: near}) for near in (*along[max(place - 1, 0):place], *along[place + 1:place + 2])]
    return found


def descend(start: C, around: Callable[[C], Sequence[C]], run: Callable[[C], float], check: Callable[[C], bool], budget: float,
            times: dict[C, float] | None = None) -> C:
    """The configuration at which no neighbour is faster, or the best one after ``budget`` seconds. ``run``, ``check``, ``times``: as for ``pick``."""
    end = time.perf_counter() + budget
    seen, best = {start}, start
    while (left := end - time.perf_counter()) > 0:
        near = [c for c in around(best) if c not in seen]
        seen.update(near)
        found = pick([best, *near], run, check, left, times) if near else best
        if found == best:
            return best
        best = found
    return best
