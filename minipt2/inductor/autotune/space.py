"""The search space of a Triton kernel: block sizes and warps around the first guess, those that cannot launch or would spill left out.

============  ==================================================  =======================================================
what varies   how                                                 bound
============  ==================================================  =======================================================
x, y          a quarter to four times the guess                   the power of two that holds the loop; ``ELEMENTS`` a program
r             a looped row: half to twice; a row in registers:    the power of two that holds the row
              also looped, in halves
warps         half to twice the guess, at most 32                 1024 threads; ``HELD`` values a thread, or it spills
stages        looped rows: 1 and 3 (loads run ahead)              shared memory for what is in flight
============  ==================================================  =======================================================

Upstream: ``torch._inductor.runtime.triton_heuristics`` and ``coordinate_descent_tuner``.
"""
from __future__ import annotations

import itertools
from dataclasses import replace
from math import log2
from typing import Iterator

from ...exercise import exercise
from ..codegen.c_openmp_plan import Plan
from ..codegen.triton_blocks import MOST_Y, Blocks, choose, power
from ..hardware import Hw

MOST = 16
"""Configurations tried of one kernel."""
ELEMENTS = 1 << 17
"""Most elements of a program."""
HELD = 64
"""Elements of every value that a thread may hold; of 255 registers two values of so many fill half."""


@exercise("7.2")
def candidates(plan: Plan, hw: Hw, across: str | None = None) -> list[Blocks]:
    """At most ``MOST`` configurations that launch on ``hw``: the first guess, then its neighbours, near ones before far ones."""
    # >>> 7.2
    guess = choose(plan, hw, across)
    near = sorted((c for c in set(_around(guess, plan)) if c != guess and launchable(c, plan, hw)), key=lambda c: (_distance(guess, c), _key(c)))
    return [guess, *near[:MOST - 1]]
    # <<< 7.2


@exercise("7.2")
def launchable(c: Blocks, plan: Plan, hw: Hw) -> bool:
    """Whether ``hw`` has the threads, the registers and the shared memory for ``c``, and its grid has the programs."""
    # >>> 7.2
    elements = c.x * max(c.y, 1) * max(c.r, 1)
    threads = c.warps * hw.warp
    in_flight = elements * sum(p.dtype.itemsize for p in plan.params if not p.written) * (c.stages - 1)
    return (threads <= 1024 and elements <= ELEMENTS and elements <= HELD * threads and elements >= threads // 4 and in_flight <= hw.shared
            and (not c.y or _second(c, plan) <= MOST_Y))
    # <<< 7.2


def _second(c: Blocks, plan: Plan) -> int:
    """Programs along the shorter axis of the grid."""
    return min(-(-plan.outer[-1][1] // c.x), -(-(plan.rows // plan.outer[-1][1]) // c.y))


def _around(guess: Blocks, plan: Plan) -> Iterator[Blocks]:
    x_most = _most_x(guess, plan)
    y_most = power(plan.rows // plan.outer[-1][1]) if guess.y else 0
    row = power(plan.length) if plan.inner else 0
    xs = {max(min(int(guess.x * f), x_most), 1) for f in (0.25, 0.5, 1, 2, 4)}
    ys = {max(min(int(guess.y * f), y_most), 1) for f in (0.25, 0.5, 1, 2, 4)} if guess.y else {0}
    rs = {max(min(int(guess.r * f), row), 1) for f in (0.5, 1, 2)} if guess.r else {0}
    warps = {max(int(guess.warps * f), 1) for f in (0.5, 1, 2, 4)}
    for x, y, r, w in itertools.product(xs, ys, rs, warps):
        for stages in (1, 3) if r and r < plan.length else (1,):
            yield replace(guess, x=x, y=y, r=r, warps=w, stages=stages)


def neighbours(c: Blocks, plan: Plan, hw: Hw) -> list[Blocks]:
    """Configurations that differ from ``c`` in one coordinate, by a factor of two or one step of it."""
    steps = [dict(x=c.x // 2), dict(x=c.x * 2), dict(warps=c.warps // 2), dict(warps=c.warps * 2)]
    if c.y:
        steps += [dict(y=c.y // 2), dict(y=c.y * 2)]
    if c.r:
        steps += [dict(r=c.r // 2), dict(r=c.r * 2)]
        steps += [dict(stages=s) for s in (c.stages - 1, c.stages + 1) if c.r < plan.length and 1 <= s <= 5]
    most = replace(c, x=_most_x(c, plan), y=power(plan.rows // plan.outer[-1][1]) if c.y else 0, r=power(plan.length) if plan.inner else 0)
    near = [replace(c, **step) for step in steps]
    return [n for n in near if 1 <= n.x <= most.x and n.warps >= 1 and (not c.y or 1 <= n.y <= most.y) and (not c.r or 1 <= n.r <= most.r)
            and launchable(n, plan, hw)]


def _most_x(c: Blocks, plan: Plan) -> int:
    """The power of two that holds the loop along x."""
    return power(plan.outer[-1][1] if c.y or plan.column else plan.rows) if plan.outer else 1


def _distance(a: Blocks, b: Blocks) -> float:
    """Doublings between two configurations."""
    return sum(abs(log2(max(p, 1)) - log2(max(q, 1))) for p, q in zip(_key(a), _key(b)))


def _key(c: Blocks) -> tuple[int, ...]:
    return c.x, c.y, c.r, c.warps, c.stages
