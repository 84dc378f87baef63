"""The search space of a Triton kernel: block sizes and warps around the first guess, those that cannot launch or would spill left out.

============  ==================================================  =======================================================
what varies   how                                                 bound
============  ==================================================  =======================================================
x, y          a quarter to four times the guess                   the power of two that holds the loop; ``ELEMENTS`` a program
z             a tile's third side: half to twice the guess; where      the power of two that holds its loops
              it has two and loops are left: also 1
r             a looped row: half to twice; a row in registers:    the power of two that holds the row
              also looped, in halves
warps         half to twice the guess, at most 32                 1024 threads; ``HELD`` values a thread, or it spills
stages        looped rows: 1 and 3 (loads run ahead)              shared memory for what is in flight
ahead         looped rows: the next piece waits in registers too  with stages 1
held          pieces that stay in registers: none too             with the piece at hand, ``HELD`` values a thread
============  ==================================================  =======================================================

Upstream: ``torch._inductor.runtime.triton_heuristics`` and ``coordinate_descent_tuner``.
"""
from __future__ import annotations

import itertools
from dataclasses import replace
from math import log2, prod
from typing import Iterator

from ...exercise import exercise
from ..codegen.c_openmp_plan import Plan
from ..codegen.triton_blocks import MOST_Y, Blocks, choose, power
from ..codegen.triton_tiles import sides, short_side, walked_across, y_loop
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
    elements = c.x * max(c.y, 1) * max(c.z, 1) * max(c.r, 1)
    threads = c.warps * hw.warp
    in_flight = elements * sum(p.dtype.itemsize for p in plan.params if not p.written) * (c.stages - 1)
    return (threads <= 1024 and elements <= ELEMENTS and elements * (1 + c.held) <= HELD * threads and elements >= threads // 4 and in_flight <= hw.shared
            and (not c.y or _second(c, plan) <= MOST_Y))
    # <<< 7.2


def _second(c: Blocks, plan: Plan) -> int:
    """Programs along the shorter axis of the grid."""
    z, y, x = (prod(n for _, n in side) for side in sides(plan, y_loop(plan, c.z > 0), c.z > 0))
    return min(-(-x // c.x), -(-y // c.y) * (-(-z // c.z) if c.z else 1))


def _around(guess: Blocks, plan: Plan) -> Iterator[Blocks]:
    row = power(plan.length) if plan.inner else 0
    rs = {max(min(int(guess.r * f), row), 1) for f in (0.5, 1, 2)} if guess.r else {0}
    warps = {max(int(guess.warps * f), 1) for f in (0.5, 1, 2, 4)}
    for z in _thirds(guess, plan):
        most = _most(replace(guess, z=z), plan)
        xs = {max(min(int(guess.x * f), most.x), 1) for f in (0.25, 0.5, 1, 2, 4)}
        ys = {max(min(int(guess.y * f), most.y), 1) for f in (0.25, 0.5, 1, 2, 4)} if guess.y else {0}
        for x, y, r, w in itertools.product(xs, ys, rs, warps):
            looped = r and r < plan.length
            for (stages, ahead), held in itertools.product(((1, False), (1, True), (3, False)) if looped else ((1, False),), {0, guess.held}):
                yield replace(guess, x=x, y=y, z=z, r=r, warps=w, stages=stages, held=held, ahead=ahead)


def _thirds(guess: Blocks, plan: Plan) -> set[int]:
    """Lengths of a tile's third side; 0: it has two."""
    if short_side(plan) is not None and guess.z:
        return {1}
    if guess.z > 1:
        return {max(min(int(guess.z * f), _most(guess, plan).z), 1) for f in (0.5, 1, 2)}
    return {0, 1} if guess.y and len(plan.outer) > 2 and walked_across(plan) else {guess.z}


def neighbours(c: Blocks, plan: Plan, hw: Hw) -> list[Blocks]:
    """Configurations that differ from ``c`` in one coordinate, by a factor of two or one step of it."""
    steps = [dict(x=c.x // 2), dict(x=c.x * 2), dict(warps=c.warps // 2), dict(warps=c.warps * 2)]
    if c.y:
        steps += [dict(y=c.y // 2), dict(y=c.y * 2)]
    if c.z > 1:
        steps += [dict(z=c.z // 2), dict(z=c.z * 2)]
    if c.r:
        steps += [dict(r=c.r // 2), dict(r=c.r * 2)]
        steps += [dict(stages=s) for s in (c.stages - 1, c.stages + 1) if c.r < plan.length and 1 <= s <= 5]
    most, near = _most(c, plan), [replace(c, **step) for step in steps]
    return [n for n in near if 1 <= n.x <= most.x and n.warps >= 1 and (not c.y or 1 <= n.y <= most.y) and (not c.r or 1 <= n.r <= most.r)
            and (not c.z or 1 <= n.z <= most.z) and launchable(n, plan, hw)]


def _most(c: Blocks, plan: Plan) -> Blocks:
    """The powers of two that hold the loops along each axis."""
    if not c.y:
        return replace(c, x=power(plan.outer[-1][1] if plan.column else plan.rows) if plan.outer else 1, r=power(plan.length) if plan.inner else 0)
    z, y, x = (power(prod(n for _, n in side)) for side in sides(plan, y_loop(plan, c.z > 0), c.z > 0))
    return replace(c, x=x, y=y, z=z if c.z else 0)


def _distance(a: Blocks, b: Blocks) -> float:
    """Doublings between two configurations."""
    return sum(abs(log2(max(p, 1)) - log2(max(q, 1))) for p, q in zip(_key(a), _key(b)))


def _key(c: Blocks) -> tuple[int, ...]:
    return c.x, c.y, c.r, c.warps, c.stages, c.z, c.held + 1, 1 + c.ahead
