"""Rows too long for registers, which a program walks more than once: how often each operand is read, and a softmax that walks once less.

Upstream: ``torch._inductor.codegen.triton`` (eviction policies) and ``prepare_softmax_online``.
"""
from __future__ import annotations

from typing import Any, Sequence

from ..ir import Instr, Ref
from ..scheduler.flat import uses
from .c_openmp_plan import Plan


def online(plan: Plan) -> dict[int, Instr]:
    """Maxima of a row whose softmax is wanted (by id), and the sums of ``exp(element - maximum)`` that the same walk can take."""
    by_id = {i.id: i for i in plan.instrs}
    found: dict[int, Instr] = {}
    for i in plan.instrs:
        if i.op != "reduce" or i.args[0] != "sum":
            continue
        exp = by_id.get(i.args[1].id)
        difference = by_id.get(exp.args[0].id) if exp is not None and exp.op == "exp" else None
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
