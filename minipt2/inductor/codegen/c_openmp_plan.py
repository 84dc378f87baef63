"""How a kernel will loop: order, merged loops, which dimension runs in vector lanes, what runs on several threads.

Upstream: ``torch._inductor.codegen.cpp`` (``LoopNest``, ``TilingSelect``, ``CppKernelProxy``).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Mapping

import sympy

from ..ir import Instr
from ..scheduler.affine import Index, Opaque, mergeable
from ..scheduler.costs import cost
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.nodes import Access, map_indices, walk
from ..scheduler.order import loop_order
from ..sizes import hint, nonnegative, number, tidy
from ..triton_sizes import WIDE_FROM
from .c_openmp_ops import STORAGE
from .index import size_text

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
    outer: list[tuple[str, Any]]
    inner: list[tuple[str, Any]]
    column: bool
    params: list[Param]
    work: float
    stage: dict[int, int] = field(default_factory=dict)
    in_row: set[int] = field(default_factory=set)
    wide: bool = False
    """Some offset needs 64 bits."""
    symbols: list[sympy.Symbol] = field(default_factory=list)
    """Sizes that are arguments."""
    scalars: list[sympy.Symbol] = field(default_factory=list)
    extents: list[Any] = field(default_factory=list)
    """What must stay below 2**31, for symbolic sizes, if offsets are to have 32 bits."""
    threads_if: str = ""
    """Clause that keeps small symbolic loops on one thread."""

    @property
    def parallel(self) -> bool:
        return self.work >= WORK_FOR_THREADS or bool(self.threads_if)

    @property
    def rows(self) -> int:
        """Iterations of the pointwise loops; likely ones where sizes are symbols, as for ``length``."""
        return prod(hint(n) for _, n in self.outer)

    @property
    def length(self) -> int:
        return prod(hint(n) for _, n in self.inner)


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
    plan = Plan(instrs, outer, inner, column, params, per_element * prod(hint(n) for _, n in outer + inner), flat.stage, flat.inner)
    _symbolic(plan, per_element, [storage_bytes(schedule.layouts[q.buffer]) for q in params])
    return plan


def _symbolic(plan: Plan, per_element: int, nbytes: list[Any]) -> None:
    """What depends on sizes that are arguments, and whether known ones need 64 bits."""
    iterations = number(prod(n for _, n in plan.outer + plan.inner))
    plan.extents = [n for n in (*nbytes, iterations) if not isinstance(n, int)]
    plan.wide = any(isinstance(n, int) and n >= WIDE_FROM for n in (*nbytes, iterations))
    used = {s for _, n in plan.outer + plan.inner if not isinstance(n, int) for s in n.free_symbols}
    for i in walk(plan.instrs):
        if i.op == "scalar" and i.args[0] not in plan.scalars:
            plan.scalars.append(i.args[0])
        for a in i.args if i.op in ("load", "store", "index_expr", "indirect") else ():
            used |= _symbols(a)
    plan.symbols = sorted(used, key=str)
    if not isinstance(iterations, int):
        plan.threads_if = f" if(parallel: {size_text(iterations)} >= {WORK_FOR_THREADS // max(per_element, 1)})"


def _symbols(a: Any) -> set[sympy.Symbol]:
    """Size symbols of an index, or of a size."""
    if isinstance(a, Index):
        numbers = [a.const, *a.terms.values()]
        inside = [s for t in a.terms if not isinstance(t, (str, Opaque)) for part in (t.arg, t.k) for s in _symbols(part)]
        return {s for n in numbers if not isinstance(n, int) for s in n.free_symbols} | set(inside)
    return a.free_symbols if isinstance(a, sympy.Expr) else set()


def largest(extents: list[Any]) -> list[Any]:
    """Those of ``extents`` that another one does not exceed whatever the sizes are."""
    kept: list[Any] = []
    for n in dict.fromkeys(extents):
        if not any(nonnegative(m - n) for m in kept):
            kept = [m for m in kept if not nonnegative(tidy(n - m))] + [n]
    return kept


def _short(inner: list[tuple[str, Any]], outer: list[tuple[str, Any]]) -> bool:
    """Rows too short for vectors, and enough of them to run side by side."""
    return prod(hint(n) for _, n in inner) < 16 and hint(outer[-1][1]) >= 32


def _accesses(kernel: Kernel, schedule: Schedule) -> list[Access]:
    out = []
    for i in walk(kernel.flat.instrs):
        if i.op in ("load", "store"):
            out.append(Access(i.args[0], i.args[1], i.op, schedule.layouts[i.args[0]].dtype.itemsize))
        elif i.op == "index_expr":
            out.append(Access("", i.args[0], "value", 0))
    return out


def _merge(vars: list[str], sizes: dict[str, Any], accesses: list[Access], prefix: str, rename: dict[str, Any]) -> list[tuple[str, Any]]:
    """Merge neighbouring loops; ``rename[v]`` becomes (new variable, factor) with the factor 1 for the innermost of a run and
    for the others whatever keeps plain strides right: 0, since the innermost one's stride already counts for the run."""
    loops = []
    for k, run in enumerate(mergeable(vars, sizes, [a.index for a in accesses])):
        new = f"{prefix}{k}"
        loops.append((new, number(prod(sizes[v] for v in run))))
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


def rename_buffers(instrs: list[Instr], variables: Mapping[str, str], schedule: Schedule) -> tuple[list[Instr], list[Param]]:
    """``instrs`` over other loop variables, with pointer arguments for buffers."""
    mapping = {v: Index.var(new) for v, new in variables.items()}
    instrs = list(map_indices(instrs, lambda e: e.subs(mapping, {})))
    params, names = _params(instrs, schedule)
    return [_rename(i, names) for i in instrs], params


def _rename(i: Instr, names: dict[str, str]) -> Instr:
    if i.op in ("load", "store"):
        return i._replace(args=(names[i.args[0]], *i.args[1:]))
    if i.op == "masked":
        block = i.args[1]
        return i._replace(args=(i.args[0], block._replace(instrs=tuple(_rename(j, names) for j in block.instrs)), i.args[2]))
    return i


def pointer(p: Param) -> str:
    return f"{'' if p.written else 'const '}{STORAGE[p.dtype]}* restrict {p.name}"
