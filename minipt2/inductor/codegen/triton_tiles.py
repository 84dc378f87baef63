"""Which loops of a pointwise kernel get a dimension of its tile of their own.

A program's elements are a block over one axis, all loops in one; or a tile, where some operand is contiguous along another loop than the
innermost one::

    x      the innermost loop                                  out[b, m, n]
    y      a loop along which some operand is contiguous       in0[b, n, m]      m
    z      a second one                                        in1[m, n, b]      b, or else the loops that are left

The loops that are left belong to y (their variables are its quotients), or to z with one element each: then the tile ends where m does,
and quotients are taken once a program. That pays where division hides from the compiler what lies side by side (``hides_vectors``), and where
y is a loop of a few iterations, all of which a tile should have (``short_side``).
Upstream: ``torch._inductor.codegen.simd.SIMDScheduling.select_tiling`` (``triton.max_tiles``, ``prefer_nd_tiling``).
"""
from __future__ import annotations

from math import gcd

from ..scheduler.affine import Index
from .c_openmp_plan import Plan

NARROW = 16
"""Iterations below which a loop is no side of a tile with two."""
FEW, LONG_SIDE = 3, 128
"""Iterations from which on a loop is worth all of a tile's y, beside a piece of an innermost one that is so long."""


def across_loops(plan: Plan) -> list[str]:
    """The outer loops along which some operand is contiguous while it jumps along the innermost one (a transpose), in the order met."""
    if plan.inner or len(plan.outer) < 2 or plan.outer[-1][1] < NARROW:
        return []
    last, found = plan.outer[-1][0], {}
    for index in _indices(plan):
        if abs(index.stride(last)) > 1:
            found.update({v: None for v, n in plan.outer[:-1] if abs(index.stride(v)) == 1 and n >= NARROW})
    return list(found)


def walked_across(plan: Plan) -> str | None:
    """The first of ``across_loops``."""
    return next(iter(across_loops(plan)), None)


def short_side(plan: Plan) -> str | None:
    """A loop of ``FEW`` iterations or more, but too few for a side of a tile with two: heads or channels that come last in one operand as large as
    any, and not in another. Pieces of its lines belong to all iterations."""
    if walked_across(plan) is not None or plan.inner or not plan.outer or plan.outer[-1][1] < LONG_SIDE:
        return None
    last = plan.outer[-1][0]
    whole = [i for i in _indices(plan) if i.is_affine() and abs(i.stride(last)) > 1 and len(i.terms) == len(plan.outer)]
    return next((v for i in whole for v, n in plan.outer[:-1] if n >= FEW and abs(i.stride(v)) == 1), None)


def y_loop(plan: Plan, deep: bool) -> str | None:
    """The loop along y of a tile; ``deep``: of one with three sides."""
    return walked_across(plan) or (short_side(plan) if deep else None)


def sides(plan: Plan, across: str | None, deep: bool) -> tuple[list, list, list]:
    """The loops of z, y and x, outermost first; ``deep``: of a tile with three sides."""
    rest = [d for d in plan.outer[:-1] if d[0] != across]
    own = [d for d in plan.outer[:-1] if d[0] == across]
    if not deep:
        return [], rest + own, plan.outer[-1:]
    second = third_side(plan, across)
    return [d for d in rest if d[0] != second] + [d for d in rest if d[0] == second], own, plan.outer[-1:]


def third_side(plan: Plan, across: str) -> str | None:
    """A loop besides ``across`` along which an operand is contiguous that jumps along both others."""
    last = plan.outer[-1][0]
    jumping = [i for i in _indices(plan) if abs(i.stride(last)) > 1 and abs(i.stride(across)) > 1]
    return next((v for v in across_loops(plan) if v != across and any(abs(i.stride(v)) == 1 for i in jumping)), None)


def hides_vectors(plan: Plan, across: str) -> bool:
    """Whether some operand lies so that a thread could load 16 bytes along ``across`` at once, but not when it is a remainder: of a number of
    elements that no such vector divides."""
    sizes, last = dict(plan.outer), plan.outer[-1][0]
    if len(plan.outer) < 3:
        return False
    bytes_of = {p.name: p.dtype.itemsize for p in plan.params}
    for i in plan.instrs:
        if i.op in ("load", "store") and abs(i.args[1].stride(across)) == 1 and abs(i.args[1].stride(last)) > 1 and i.args[1].is_affine():
            vector = max(16 // bytes_of[i.args[0]], 1)
            steps = [c for v, c in i.args[1].terms.items() if v != across]
            if gcd(vector, *steps, i.args[1].const) > gcd(vector, sizes[across]):
                return True
    return False


def _indices(plan: Plan) -> list[Index]:
    return [i.args[1] for i in plan.instrs if i.op in ("load", "store")]
