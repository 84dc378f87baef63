"""Cheaper functions where a kernel's results are rounded to half precision anyway.

In bfloat16 an exact GELU has 4 bytes of traffic an element and, with the device library's ``erf``, 38 instructions: an H200 can issue 27
in the time that the traffic takes. Before and after, of a kernel whose floating-point stores are all half:

    v1 = erf(v0)                     v1 = one_plus_erf(v0) - 1.0
    v2 = v1 + 1.0         ->         v2 = one_plus_erf(v0)
    v3 = 1.0 - v1 * v1               v3 = 1.0 - v1 * v1

Only where an absolute error does no harm, that is where all that happens to the value, or to its square, is being added to numbers of
about 1. ``1 + erf`` and ``1 + tanh`` themselves keep a relative error of 3e-4 down to 1e-8, where the sum would have cancelled (relative
to 1e-4: 2e-5; halves round by 5e-4 and 4e-3). Upstream has no counterpart.
"""
from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import torch

from ..ir import Instr, Ref
from ..scheduler.flat import uses
from ..scheduler.nodes import walk
from .c_openmp_plan import Plan
from .triton_ops import HALF

CHEAPER = {"erf": "one_plus_erf", "tanh": "one_plus_tanh"}
NEAR_ONE = 0.5
"""The least number beside which an absolute error of 2e-6 is small."""


def cheaper(plan: Plan) -> Plan:
    """``plan`` with ``erf`` and ``tanh`` taken from the functions of ``CHEAPER`` where that does no harm."""
    stored = [p.dtype for p in plan.params if p.written and p.dtype.is_floating_point]
    if not stored or any(d not in HALF for d in stored):
        return plan
    found = _harmless(plan)
    if not found:
        return plan
    fresh = 1 + max(i.id for i in walk(plan.instrs))
    instrs: list[Instr] = []
    sums: dict[int, Ref] = {}
    one = Instr(fresh, "constant", (1.0,), torch.float32)
    for i in plan.instrs:
        if i.id in found:
            fresh += 1
            sums[i.id] = Ref(fresh)
            instrs += [one] * (len(sums) == 1)
            instrs += [Instr(fresh, CHEAPER[i.op], i.args, i.dtype), Instr(i.id, "sub", (Ref(fresh), Ref(one.id)), i.dtype)]
        else:
            instrs.append(i)
    number = {i.id: i.args[0] for i in instrs if i.op == "constant"}
    for k, i in enumerate(instrs):
        if i.op == "add" and (source := _plus_one(i, number)) in sums:
            instrs[k] = Instr(i.id, "to_dtype", (sums[source],), i.dtype)
    # the new values stand where the old ones do: along the row, and after the same reductions
    stage = plan.stage | {ref.id: plan.stage[id] for id, ref in sums.items()} | {one.id: 0}
    return replace(plan, instrs=instrs, stage=stage, in_row=plan.in_row | {ref.id for id, ref in sums.items() if id in plan.in_row})


def _plus_one(i: Instr, number: dict[int, float]) -> int | None:
    """The id of ``v`` in ``v + 1``."""
    a, b = i.args
    for v, c in ((a, b), (b, a)):
        if isinstance(v, Ref) and isinstance(c, Ref) and number.get(c.id) == 1.0:
            return v.id
    return None


def _harmless(plan: Plan) -> set[int]:
    """Values of ``erf`` and ``tanh`` that nothing but numbers of about 1 is done with."""
    users: dict[int, list[Instr]] = defaultdict(list)
    inside = {j.id for i in plan.instrs if i.op == "masked" for j in walk(i.args[1].instrs)}
    for i in walk(plan.instrs):
        for u in set(uses(i)):
            users[u].append(i)
    number = {i.id: i.args[0] for i in walk(plan.instrs) if i.op == "constant"}

    def beside_one(id: int) -> bool:
        return bool(users[id]) and all(_summed(i, id, number) or _square(i) and beside_one(i.id) for i in users[id])
    return {i.id for i in plan.instrs if i.op in CHEAPER and i.dtype is torch.float32 and i.id not in inside and beside_one(i.id)}


def _summed(i: Instr, id: int, number: dict[int, float]) -> bool:
    """Whether ``i`` adds the value ``id`` to a number, or subtracts one from the other."""
    if i.op not in ("add", "sub"):
        return False
    other = [a.id for a in i.args if a.id != id]
    return len(other) == 1 and abs(number.get(other[0], 0.0)) >= NEAR_ONE


def _square(i: Instr) -> bool:
    return i.op == "mul" and i.args[0] == i.args[1] and isinstance(i.args[0], Ref)
