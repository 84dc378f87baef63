"""Loop nests of pointwise kernels, and what the reductions along rows and columns share.

Upstream: ``torch._inductor.codegen.cpp`` (``CppKernelProxy``, ``CppVecKernel``).
"""
from __future__ import annotations

from math import prod
from typing import Any, Callable, NamedTuple, Sequence

import torch

from ..ir import Instr
from ..scheduler.affine import Index
from ..scheduler.costs import cost
from ..scheduler.flat import uses
from .c_openmp_ops import STORAGE, VALUE, cast
from .c_openmp_plan import Plan
from .c_openmp_reduce import Accumulator
from .c_openmp_values import Loop, Target, Writer
from ..sizes import exact, hint
from .index import at_least, size_text
from .index import text as index_text

FEW = 8
"""Iterations of parallel loops below which threads would be left without work."""
BLOCK = 2048
"""Elements of an inner loop given to a thread at a time."""
HOIST_LENGTH, HOIST_COST = 2048, 3
"""Longest innermost loop, and cheapest computation along it, that is done once for all outer iterations."""
TILE_ROWS, TILE_COLUMNS = 16, 64
"""A tile of a transposed operand; ``mp_turn`` knows the second."""
BLOCKS = 32
"""Parts into which a long reduction is cut for threads."""
LINE = 64
"""Elements of a row walked at a time where another operand is walked across: its cache lines are used while they are there."""


def write_body(plan: Plan, writer: Writer | None = None) -> Writer:
    """The statements of a kernel's function, in ``writer`` (default: a new one)."""
    w = writer or Writer(plan)
    if w.checks:
        w.line("int bad = 0;")
    if not plan.inner:
        _pointwise(w)
    else:
        from .c_openmp_columns import Column
        from .c_openmp_rows import Row
        (Column if plan.column else Row)(w).write()
    w.line(*[f"free({name});" for name in w.heap])
    if w.checks:
        w.line("if (bad) *err |= bad;")
    return w


# -------------------------------------------------------------------- pointwise
def _pointwise(w: Writer) -> None:
    plan = w.plan
    targets = [w.store_target(i) for i in plan.instrs if i.op == "store"]
    sizes = dict(plan.outer)
    vars = list(sizes)
    if not vars:
        w.nest([], targets)
        return
    loops = {v: w.loop(v, n) for v, n in plan.outer}
    last = vars[-1]
    _hoist(w, targets)
    free = [v for v in vars if not _collides(w, v)]
    order = [loops[v] for v in vars]
    across = _walked_across(w, vars)
    if across is not None and free == vars and _tiled(w, across, targets):
        return
    if across is not None:
        order = _block(order, last, sizes[last], LINE, before=across)
    elif last in free and plan.parallel and (free[:1] != vars[:1] or prod(hint(sizes[v]) for v in vars[:-1]) < FEW):
        block = BLOCK if vars[0] in free else max(16, hint(sizes[last]) // FEW)
        if at_least(sizes[last], block + 1):
            order = _block(order, last, sizes[last], block, before=vars[0] if vars[0] not in free else last)
    perfect = 0
    if plan.parallel:
        perfect = _parallel(w, order, sizes, set(free))
    if last in free:
        if perfect == len(order):
            order[0].pragma = order[0].pragma.replace("parallel for", "parallel for simd")
        else:
            order[-1].pragma = "#pragma omp simd" + w.bad_clause()
    w.nest(order, targets, perfect)


def _hoist(w: Writer, targets: list[Target]) -> None:
    """Compute once, into arrays, what changes along the innermost loop only (scales per channel, positions and weights of an interpolation)."""
    last, n = w.plan.outer[-1]
    if hint(n) > HOIST_LENGTH or w.plan.rows < 8 * hint(n):
        return
    ids = w.closure([k for t in targets for k in t.needs])
    variables = w.variables(ids)
    price: dict[int, int] = {}
    for id in ids:
        i = w.by_id[id]
        price[id] = cost(i.op, i.dtype) + sum(price.get(u, 0) for u in set(uses(i)))
    alone = {id for id in ids if variables[id] == {last} and w.by_id[id].op not in ("load", "constant", "scalar", "index_expr")}
    used = {u for id in ids if id not in alone for u in uses(w.by_id[id])} | {k for t in targets for k in t.needs}
    hoisted = [id for id in ids if id in alone and id in used and price[id] >= HOIST_COST]
    if not hoisted or len(hoisted) > 8:
        return
    stores = []
    for id in hoisted:
        i = w.by_id[id]
        ctype = w.itype if i.op == "indirect" else "int" if i.dtype is torch.bool else VALUE[i.dtype]
        w.array(f"h{w.order[id]}", ctype, n)
        stores.append(Target(w.order[id], [id], lambda x, k=w.order[id]: [f"h{k}[{last}] = {x};"], deep=True))
    w.nest([w.loop(last, n, pragma="#pragma omp simd" + w.bad_clause())], stores)
    w.arrays.update({id: (f"h{w.order[id]}[{last}]", frozenset([last])) for id in hoisted})


def _tiled(w: Writer, across: str, targets: list[Target]) -> bool:
    """Transposed operands: tiles of them are turned in registers into small arrays, which the inner loops then walk contiguously."""
    sizes = dict(w.plan.outer)
    last = w.plan.outer[-1][0]
    turned = [i for i in w.plan.instrs if i.op == "load" and set(i.args[1].terms) <= set(sizes) and w.types[i.args[0]] in (torch.float32, torch.int32)
              and i.args[1].stride(across) == 1 and hint(i.args[1].stride(last)) > 1]
    if not turned or len(turned) > 4 or min(hint(sizes[across]), hint(sizes[last])) < 8:
        return False
    outer = [w.loop(v, n) for v, n in w.plan.outer if v not in (across, last)]
    outer += [w.loop("t", sizes[across], step=TILE_ROWS), w.loop("b", sizes[last], step=TILE_COLUMNS)]
    inner = [Loop(across, least("t", TILE_ROWS, sizes[across]), "t"),
             Loop(last, least("b", TILE_COLUMNS, sizes[last]), "b", pragma="#pragma omp simd" + w.bad_clause())]

    def tile() -> list[str]:
        for i in turned:
            name, ctype = f"tile{w.order[i.id]}", STORAGE[w.types[i.args[0]]]
            start = i.args[1].subs({across: Index.var("t"), last: Index.var("b")}, {})
            w.line(f"{ctype} {name}[{TILE_ROWS * TILE_COLUMNS}] __attribute__((aligned(64)));",
                   f"mp_turn({i.args[0]} + {index_text(start)}, {size_text(i.args[1].stride(last))}, {name}, {inner[0].stop} - t, {inner[1].stop} - b);")
            w.arrays[i.id] = (f"{name}[({across} - t)*{TILE_COLUMNS} + {last} - b]", frozenset([across, last]))
        w.nest(inner, targets)
        return []

    perfect = 0
    if w.plan.parallel:
        perfect = len(outer)
        outer[0].pragma = w.parallel_for(perfect)
    w.nest(outer, [Target(0, [], tile, deep=True)], perfect)
    return True


def _parallel(w: Writer, order: list[Loop], sizes: dict[str, Any], free: set[str]) -> int:
    """Share the outermost loops among threads; returns how many of them."""
    count, iterations = 0, 1
    for loop in order:
        if loop.var in sizes and loop.var not in free or count and iterations >= 4 * FEW or loop.start != "0":
            break
        if count == len(order) - 1 and count:
            break
        iterations *= -(-hint(loop.size) // loop.step)
        count += 1
    if count:
        order[0].pragma = w.parallel_for(count)
    return count


def _block(order: list[Loop], var: str, size: Any, block: int, before: str) -> list[Loop]:
    """Walk ``var`` in blocks, with the loop over blocks outside the loop ``before``."""
    if not at_least(size, block + 1):
        return order
    out = []
    for loop in order:
        if loop.var == before:
            out.append(Loop("b", size_text(size), step=block, size=size))
        if loop.var == var:
            loop = Loop(var, least("b", block, size), "b")
        out.append(loop)
    return out


def least(start: str, step: int, size: Any) -> str:
    """Where a stretch of ``step`` from ``start`` on ends, within ``size``."""
    text, n = f"{start} + {step}", size_text(size)
    return text if exact(size, step) is not None else f"({text} < {n} ? {text} : {n})"


def _collides(w: Writer, var: str) -> bool:
    """May two iterations of ``var`` store to one place?"""
    for i in w.plan.instrs:
        if i.op != "store":
            continue
        indirect = [int(n[1:]) for n in i.args[1].names() if n[0] == "i"]
        if not indirect and i.args[3] is None:
            continue
        deps = w.variables(w.closure(indirect))
        if i.args[1].stride(var) == 0 or any(var in deps.get(k, ()) for k in indirect):
            return True
    return False


def _walked_across(w: Writer, vars: Sequence[str]) -> str | None:
    """An outer loop along which some operand is contiguous while it jumps along the innermost one (a transpose)."""
    last = vars[-1]
    for i in w._walk(w.plan.instrs):
        if i.op in ("load", "store") and abs(hint(i.args[1].stride(last))) > 1:
            for v in vars[:-1]:
                if i.args[1].stride(v) in (1, -1):
                    return v
    return None


# -------------------------------------------------------------------- reductions
class Reduction:
    """What rows and columns share: which reductions, stores and kept values belong to which pass."""

    def __init__(self, w: Writer):
        self.w, self.plan = w, w.plan
        self.stores = [i for i in w.plan.instrs if i.op == "store"]
        self.reduces = [i for i in w.plan.instrs if i.op == "reduce"]
        last = max([w.plan.stage[i.id] for i in self.stores if i.id in w.plan.in_row] + [w.plan.stage[i.id] - 1 for i in self.reduces])
        self.passes = range(last + 1)

    def accumulators(self, s: int) -> list[tuple[Instr, Accumulator]]:
        return [(i, Accumulator(f"acc{i.id}", i.args[0], i.dtype)) for i in self.reduces if self.plan.stage[i.id] == s + 1]

    def inner_stores(self, s: int) -> list[Instr]:
        return [i for i in self.stores if i.id in self.plan.in_row and self.plan.stage[i.id] == s]

    def outer_stores(self, s: int) -> list[Instr]:
        return [i for i in self.stores if i.id not in self.plan.in_row and self.plan.stage[i.id] == s]

    def open_outer(self, loops: list[Loop], parallel: bool, inside: Callable[[], None]) -> None:
        """Open the pointwise loops around ``inside``, on several threads when there is work for them."""
        if loops and loops[0].pragma == "" and parallel and self.plan.parallel:
            loops[0].pragma = self.w.parallel_for(len(loops))
        if not loops:
            inside()
            return
        with self.w.for_(loops[0]):
            self.open_outer(loops[1:], False, inside)

    def update(self, i: Instr, acc: Accumulator) -> Target:
        """Adds a value in the innermost loop."""
        source = self.w.by_id[i.args[1].id].dtype
        return Target(self.w.order[i.id], [i.args[1].id], lambda x: acc.update(cast(x, source, i.dtype)), deep=True)

    def split(self) -> "Share | None":
        """Shares the longest reduction loop among threads, when the pointwise loops are too short."""
        v, n = max(self.plan.inner, key=lambda loop: hint(loop[1]))
        if hint(n) < 4 * FEW:
            return None
        if not isinstance(n, int):
            text = size_text(n, tight=True)
            self.w.line(f"const {self.w.itype} step = {text} < {16 * BLOCKS} ? 16 : ({text} + {BLOCKS - 1})/{BLOCKS};")
        return Share(v, n, max(16, -(-hint(n) // BLOCKS)))

    def block_loop(self, share: "Share") -> Loop:
        if isinstance(share.size, int):
            stop = str(-(-share.size // share.step))
        else:
            stop = f"({size_text(share.size, tight=True)} + step - 1)/step"
        return Loop("b", stop, pragma=self.w.parallel_for())

    def restrict(self, loops: list[Loop], share: "Share") -> list[Loop]:
        """The loops of one block: its variable from ``b * step`` on."""
        n, step = size_text(share.size), share.text
        whole = isinstance(share.size, int) and share.size % share.step == 0
        stop = f"(b + 1) * {step}"
        return [Loop(share.var, stop if whole else f"({stop} < {n} ? {stop} : {n})", f"b * {step}") if loop.var == share.var else loop
                for loop in loops]


class Share(NamedTuple):
    """A reduction loop cut into at most ``BLOCKS`` blocks for threads. ``step``: the likely size of a block."""

    var: str
    size: Any
    step: int

    @property
    def text(self) -> str:
        return str(self.step) if isinstance(self.size, int) else "step"

    @property
    def blocks(self) -> int:
        """Room for the results of all blocks."""
        return -(-self.size // self.step) if isinstance(self.size, int) else BLOCKS
