"""A softmax in fewer instructions: one division a row instead of one an element, and plain exponentials where results are halves.

    v4 = sum(exp(v0 - max(v0)))          v4 = sum(exp(v0 - max(v0)))
    v5 = exp(v0 - max(v0)) / v4    ->    v6 = 1.0 / v4
                                         v5 = exp(v0 - max(v0)) * v6

A quotient of float32 costs a GPU a reciprocal, which is made where the exponentials are, and four instructions around it. The sum lies between 1 and the
number of elements (or is NaN), so that its reciprocal neither overflows nor loses bits; Triton's quotient is itself the product with a
reciprocal, so that nothing is less exact. float64 keeps its division, which rounds once.

Half of the instructions of ``exp`` are there for results below 1e-38: where a kernel stores halves alone, these are zeros (``fast_exp``). In bfloat16 a
softmax of 65536 took 21 instructions an element, of the 32 that an H200 issues in the time of a copy, and takes 15. Upstream has no counterpart.
"""
from __future__ import annotations

from dataclasses import replace

import torch

from ..ir import Instr, Ref
from ..scheduler.nodes import walk
from .c_openmp_plan import Plan
from .triton_ops import HALF
from .triton_rewalk import online


def brief(plan: Plan) -> Plan:
    """``plan`` with the softmax that it computes, if any, in fewer instructions."""
    sums = {i.id: i.args[1].id for i in online(plan).values() if i.dtype is torch.float32}
    return _plain_exponentials(_products(plan, set(sums)), set(sums.values())) if sums else plan


def _products(plan: Plan, sums: set[int]) -> Plan:
    """Quotients by ``sums`` as products."""
    fresh = 1 + max(i.id for i in walk(plan.instrs))
    inverse: dict[int, Ref] = {}
    instrs, stage = [], dict(plan.stage)
    for i in plan.instrs:
        if i.op == "div" and i.dtype is torch.float32 and isinstance(i.args[1], Ref) and i.args[1].id in sums:
            total = i.args[1].id
            if total not in inverse:
                inverse[total] = Ref(fresh)
                stage[fresh] = plan.stage[total]
                instrs.append(Instr(fresh, "reciprocal", (Ref(total),), torch.float32))
                fresh += 1
            i = Instr(i.id, "mul", (i.args[0], inverse[total]), i.dtype)
        instrs.append(i)
    return replace(plan, instrs=instrs, stage=stage)


def _plain_exponentials(plan: Plan, exponentials: set[int]) -> Plan:
    stored = {p.dtype for p in plan.params if p.written}
    if not stored <= set(HALF):
        return plan
    return replace(plan, instrs=[i._replace(op="fast_exp") if i.id in exponentials else i for i in plan.instrs])
