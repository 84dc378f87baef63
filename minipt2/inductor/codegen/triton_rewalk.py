"""Rows too long for registers, which a program walks more than once: how often each operand is read, and a softmax that walks once less.

Upstream: ``torch._inductor.codegen.triton`` (eviction policies) and ``prepare_softmax_online``.
"""
from __future__ import annotations

from typing import Any, Sequence

from ..ir import Instr, Ref
from ..scheduler.affine import Index
from ..scheduler.flat import uses
from .c_openmp_plan import Plan
from .triton_ops import HALF


def online(plan: Plan) -> dict[int, Instr]:
    """Maxima of a row whose softmax is wanted (by id), and the sums of ``exp(element - maximum)`` that the same walk can take."""
    by_id = {i.id: i for i in plan.instrs}
    found: dict[int, Instr] = {}
    for i in plan.instrs:
        if i.op != "reduce" or i.args[0] != "sum":
            continue
        exp = by_id.get(i.args[1].id)
        difference = by_id.get(exp.args[0].id) if exp is not None and exp.op in ("exp", "fast_exp") else None
        if difference is None or difference.op != "sub" or not all(isinstance(a, Ref) for a in difference.args):
            continue
        element, top = (by_id.get(a.id) for a in difference.args)
        if (element is not None and top is not None and top.op == "reduce" and top.args == ("max", difference.args[0])
                and i.dtype is top.dtype is exp.dtype and i.dtype.is_floating_point and element.id in plan.in_row
                and plan.stage[i.id] == plan.stage[top.id] + 1):
            found.setdefault(top.id, i)
    return found


def walks(plan: Plan, roots: Sequence[Sequence[int]]) -> dict[tuple[str, Any], list[int]]:
    """For each place in memory along the row: the walks, in order, that read it. ``roots``: values that each walk computes."""
    by_id = {i.id: i for i in plan.instrs}
    found: dict[tuple[str, Any], list[int]] = {}
    for walk, wanted in enumerate(roots):
        seen: set[int] = set()
        todo = list(wanted)
        while todo:
            id = todo.pop()
            if id in seen or id not in plan.in_row or id not in by_id:
                continue
            seen.add(id)
            i = by_id[id]
            if i.op == "load" and walk not in found.setdefault(i.args[:2], []):
                found[i.args[:2]].append(walk)
            todo += uses(i)
    return found


def first_read(plan: Plan) -> set[tuple[str, Any]]:
    """Places along the row that its first walk reads."""
    return set(walks(plan, [[i.args[1].id for i in plan.instrs if i.op == "reduce" and plan.stage[i.id] == 1]]))


def in_pairs(plan: Plan) -> set[tuple[str, Any]]:
    """Places along the row that can be read as pairs of a half type: all rows begin at even elements. What is written too may itself begin anywhere."""
    types, length = {p.name: p.dtype for p in plan.params if not p.written}, plan.inner[-1][1]
    if len(plan.inner) != 1 or plan.column or not isinstance(length, int) or length % 2:
        return set()
    r = plan.inner[0][0]
    loads = [i for i in plan.instrs if i.op == "load" and i.id in plan.in_row and types.get(i.args[0]) in HALF]
    return {i.args[:2] for i in loads if i.args[1].is_affine() and i.args[1].stride(r) == 1 and _even(i.args[1], r)}


def _even(index: Index, r: str) -> bool:
    steps = [index.const, *(c for v, c in index.terms.items() if v != r)]
    return all(isinstance(c, int) and c % 2 == 0 for c in steps)
