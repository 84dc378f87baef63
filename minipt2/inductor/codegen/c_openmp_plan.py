"""How a kernel will loop: order, merged loops, which dimension runs in vector lanes, what runs on several threads.

Upstream: ``torch._inductor.codegen.cpp`` (``LoopNest``, ``TilingSelect``, ``CppKernelProxy``).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..ir import Instr
from ..scheduler.affine import Index, mergeable
from ..scheduler.costs import cost
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.nodes import Access, map_indices, walk
from ..scheduler.order import loop_order
from .c_openmp_ops import STORAGE

WORK_FOR_THREADS = 60_000
"""Additions' worth of work below which waking other threads costs more than it saves."""
STACK_BYTES = 1 << 15
"""Most bytes of one row kept on the stack for later stages."""


@dataclass
class Param:
    """A pointer argument: ``buffer`` in the schedule, ``name`` in the C function."""

    buffer: str
    name: str
    dtype: Any
    written: bool


@dataclass
class Plan:
    """Canonical form of a kernel: equal plans have equal text, whatever their buffers are called.

    ``outer`` are the pointwise loops, ``inner`` the reduction loops, outermost first, each (variable, size). ``column``: vector
    lanes run along the last pointwise loop, inside the reduction loops.
    """

    instrs: list[Instr]
    outer: list[tuple[str, int]]
    inner: list[tuple[str, int]]
    column: bool
    params: list[Param]
    work: float
    stage: dict[int, int] = field(default_factory=dict)
    in_row: set[int] = field(default_factory=set)
    wide: bool = False
    """Some offset needs 64 bits."""

    @property
    def parallel(self) -> bool:
        return self.work >= WORK_FOR_THREADS

    @property
    def rows(self) -> int:
        return prod(n for _, n in self.outer)

    @property
    def length(self) -> int:
        return prod(n for _, n in self.inner)


def make_plan(kernel: Kernel, schedule: Schedule) -> Plan:
    flat = kernel.flat
    sizes, reduced = flat.domain.sizes, flat.domain.reduced
    accesses = _accesses(kernel, schedule)
    order = loop_order(sizes, accesses)
    p, r = [v for v in order if v not in reduced], [v for v in order if v in reduced]
    rename: dict[str, Any] = {}
    outer = _merge(p, sizes, accesses, "p", rename)
    inner = _merge(r, sizes, accesses, "r", rename)
    mapping = {v: Index() if new is None else Index(0, {new: c}) for v, (new, c) in rename.items()}
    instrs = list(map_indices(flat.instrs, lambda e: e.subs(mapping, dict(outer + inner))))
    params, names = _params(instrs, schedule)
    instrs = [_rename(i, names) for i in instrs]
    per_element = sum(cost(i.op, i.dtype) for i in walk(instrs))
    column = bool(outer) and bool(inner) and (order[-1] not in reduced or _short(inner, outer))
    plan = Plan(instrs, outer, inner, column, params, per_element * prod(n for _, n in outer + inner), flat.stage, flat.inner)
    plan.wide = any(storage_bytes(schedule.layouts[q.buffer]) >= 1 << 31 for q in params) or plan.rows * plan.length >= 1 << 31
    return plan


def _short(inner: list[tuple[str, int]], outer: list[tuple[str, int]]) -> bool:
    """Rows too short for vectors, and enough of them to run side by side."""
    return prod(n for _, n in inner) < 16 and outer[-1][1] >= 32


def _accesses(kernel: Kernel, schedule: Schedule) -> list[Access]:
    out = []
    for i in walk(kernel.flat.instrs):
        if i.op in ("load", "store"):
            out.append(Access(i.args[0], i.args[1], i.op, schedule.layouts[i.args[0]].dtype.itemsize))
        elif i.op == "index_expr":
            out.append(Access("", i.args[0], "value", 0))
    return out


def _merge(vars: list[str], sizes: dict[str, Any], accesses: list[Access], prefix: str, rename: dict[str, Any]) -> list[tuple[str, int]]:
    """Merge neighbouring loops; ``rename[v]`` becomes (new variable, factor) with the factor 1 for the innermost of a run and
    for the others whatever keeps plain strides right: 0, since the innermost one's stride already counts for the run."""
    loops = []
    for k, run in enumerate(mergeable(vars, sizes, [a.index for a in accesses])):
        new = f"{prefix}{k}"
        loops.append((new, prod(sizes[v] for v in run)))
        rename.update({v: (None, 0) for v in run})
        rename[run[-1]] = (new, 1)
    for v in vars:
        rename.setdefault(v, (None, 0))
    return loops


def _params(instrs: list[Instr], schedule: Schedule) -> tuple[list[Param], dict[str, str]]:
    """Pointer arguments in order of appearance; a result written in place shares its operand's."""
    loads, stores = [], []
    for i in walk(instrs):
        if i.op == "load":
            loads.append(i.args[0])
        elif i.op == "store":
            (loads if i.args[3] else stores).append(i.args[0])
            stores.append(i.args[0])
    twin = {n: schedule.inplace[n] for n in stores if schedule.inplace.get(n) in loads}
    read = set(loads)
    params: dict[str, Param] = {}
    counts = {"in": 0, "out": 0, "io": 0}
    written = {twin.get(n, n) for n in stores}
    for n in dict.fromkeys([twin.get(n, n) for n in loads + stores]):
        kind = "io" if n in written and n in read else "out" if n in written else "in"
        params[n] = Param(n, f"{kind}{counts[kind]}", schedule.layouts[n].dtype, n in written)
        counts[kind] += 1
    names = {n: params[twin.get(n, n)].name for n in loads + stores}
    return list(params.values()), names


def _rename(i: Instr, names: dict[str, str]) -> Instr:
    if i.op in ("load", "store"):
        return i._replace(args=(names[i.args[0]], *i.args[1:]))
    if i.op == "masked":
        block = i.args[1]
        return i._replace(args=(i.args[0], block._replace(instrs=tuple(_rename(j, names) for j in block.instrs)), i.args[2]))
    return i


def pointer(p: Param) -> str:
    return f"{'' if p.written else 'const '}{STORAGE[p.dtype]}* restrict {p.name}"
