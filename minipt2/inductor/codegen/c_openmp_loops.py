"""Loop nests of the kinds of kernel: pointwise, reductions along rows, reductions along columns.

Upstream: ``torch._inductor.codegen.cpp`` (``CppKernelProxy``, ``CppVecKernel``, ``OuterLoopFusedKernel``).
"""
from __future__ import annotations

from contextlib import contextmanager, nullcontext
from math import prod
from typing import Any, Iterator, Sequence

from ..ir import Instr
from ..scheduler.affine import Index
from ..scheduler.flat import uses
from .c_openmp_ops import VALUE, cast, cost, is_float
from .c_openmp_plan import STACK_BYTES, Plan
from .c_openmp_reduce import Accumulator, combine, identity
from .c_openmp_values import Loop, Target, Writer

FEW = 8
"""Iterations of parallel loops below which threads would be left without work."""
BLOCK = 2048
"""Elements of an inner loop given to a thread at a time."""
LINE = 64
"""Elements of a row walked at a time where another operand is walked across: its cache lines are used while they are there."""
SUM_RUN = 1024
"""Most elements added one after the other before the partial sum is put aside: rounding errors grow with the run, not with the row."""
TILE = 512
KEEP_COST = 5
"""Additions' worth of recomputation above which a value of an earlier stage is kept instead."""


def write_body(plan: Plan) -> Writer:
    """The statements of a kernel's function."""
    w = Writer(plan)
    if w.checks:
        w.line("int bad = 0;")
    if not plan.inner:
        _pointwise(w)
    elif plan.column:
        from .c_openmp_columns import Column
        Column(w).write()
    else:
        Row(w).write()
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
    loops = {v: Loop(v, str(n)) for v, n in plan.outer}
    last = vars[-1]
    free = [v for v in vars if not _collides(w, v)]
    order = [loops[v] for v in vars]
    across = _walked_across(w, vars)
    if across is not None:
        order = _block(order, last, sizes[last], LINE, before=across)
    elif last in free and plan.parallel and (free[:1] != vars[:1] or prod(sizes[v] for v in vars[:-1]) < FEW):
        block = BLOCK if vars[0] in free else max(16, sizes[last] // FEW)
        if sizes[last] > block:
            order = _block(order, last, sizes[last], block, before=vars[0] if vars[0] not in free else last)
    perfect = 0
    if plan.parallel:
        perfect = _parallel(w, order, {v: n for v, n in plan.outer}, set(free))
    if last in free:
        if perfect == len(order):
            order[0].pragma = order[0].pragma.replace("parallel for", "parallel for simd")
        else:
            order[-1].pragma = "#pragma omp simd" + w.bad_clause()
    w.nest(order, targets, perfect)


def _parallel(w: Writer, order: list[Loop], sizes: dict[str, int], free: set[str]) -> int:
    """Share the outermost loops among threads; returns how many of them."""
    count, iterations = 0, 1
    for loop in order:
        if loop.var in sizes and loop.var not in free or count and iterations >= 4 * FEW or loop.start != "0":
            break
        if count == len(order) - 1 and count:
            break
        iterations *= -(-int(loop.stop) // loop.step)
        count += 1
    if count:
        more = f" collapse({count})" if count > 1 else ""
        order[0].pragma = f"#pragma omp parallel for{more} schedule(static){w.bad_clause()}"
    return count


def _block(order: list[Loop], var: str, size: int, block: int, before: str) -> list[Loop]:
    """Walk ``var`` in blocks, with the loop over blocks outside the loop ``before``."""
    if size <= block:
        return order
    out = []
    for loop in order:
        if loop.var == before:
            out.append(Loop("b", str(size), step=block))
        if loop.var == var:
            loop = Loop(var, _least(f"b + {block}", size, size % block == 0), "b")
        out.append(loop)
    return out


def _least(text: str, size: int, exact: bool) -> str:
    return text if exact else f"({text} < {size} ? {text} : {size})"


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
        if i.op in ("load", "store") and abs(i.args[1].stride(last)) > 1:
            for v in vars[:-1]:
                if abs(i.args[1].stride(v)) == 1:
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

    def update(self, i: Instr, acc: Accumulator) -> Target:
        """Adds a value in the innermost loop."""
        source = self.w.by_id[i.args[1].id].dtype
        return Target(self.w.order[i.id], [i.args[1].id], lambda x: acc.update(cast(x, source, i.dtype)), deep=True)

    def split(self) -> tuple[str, int] | None:
        """(variable, block) to share the longest reduction loop among threads, when the pointwise loops are too short."""
        v, n = max(self.plan.inner, key=lambda loop: loop[1])
        return (v, -(-n // min(32, n))) if n >= 4 * FEW else None

    def block_loop(self, v: str, step: int) -> Loop:
        n = dict(self.plan.inner)[v]
        return Loop("b", str(-(-n // step)), pragma="#pragma omp parallel for schedule(static)" + self.w.bad_clause())

    def restrict(self, loops: list[Loop], v: str, step: int) -> list[Loop]:
        """The loops of one block: ``v`` from ``b * step`` on."""
        n = dict(self.plan.inner)[v]
        stop = _least(f"(b + 1) * {step}", n, n % step == 0)
        return [Loop(v, stop, f"b * {step}") if loop.var == v else loop for loop in loops]


class Row(Reduction):
    """Vector lanes along the innermost reduction loop; the stages of one row follow each other while it is in cache."""

    def write(self) -> None:
        plan, w = self.plan, self.w
        shared = plan.parallel and plan.rows < FEW and plan.length * 2 >= BLOCK and self.split() is not None
        self.shared = self.split() if shared else None
        self.kept = {} if shared else self._plan_kept()
        loops = [Loop(v, str(n)) for v, n in plan.outer]
        if not loops:
            self._row()
            return
        if plan.parallel and not shared:
            more = f" collapse({len(loops)})" if len(loops) > 1 else ""
            loops[0].pragma = f"#pragma omp parallel for{more} schedule(static){w.bad_clause()}"
        self._open(loops)

    def _open(self, loops: Sequence[Loop]) -> None:
        if not loops:
            self._row()
            return
        with self.w.for_(loops[0]):
            self._open(loops[1:])

    def _row(self) -> None:
        w = self.w
        for id, (array, dtype, _) in self.kept.items():
            w.line(f"{VALUE[dtype]} {array}[{self.plan.length}] __attribute__((aligned(64)));")
        w.arrays.clear()
        for s in self.passes:
            w.nest([], [w.store_target(i) for i in self.outer_stores(s)])
            if self.accumulators(s) or self.inner_stores(s):
                self._pass(s)
        w.nest([], [w.store_target(i) for i in self.outer_stores(len(self.passes))])

    def _pass(self, s: int) -> None:
        w, accs = self.w, self.accumulators(s)
        targets = [w.store_target(i) for i in self.inner_stores(s)]
        loops = [Loop(v, str(n)) for v, n in self.plan.inner]
        for id, (array, _, first) in self.kept.items():
            if first == s:
                targets.append(self._keep(id, array))
        self._share_outer(targets, accs)
        if self.shared is None:
            self._loops(loops, accs, targets)
        else:
            self._blocks(loops, accs, targets)
        for i, acc in accs:
            w.line(f"const {VALUE[i.dtype]} v{i.id}r = {acc.result()};")
            w.scopes[-1][i.id] = f"v{i.id}r"
        row = frozenset(v for v, _ in self.plan.inner)
        for id, (array, _, first) in self.kept.items():
            if first == s:
                w.arrays[id] = (f"{array}[{self._position()}]", row)

    def _share_outer(self, targets: list[Target], accs: list[tuple[Instr, Accumulator]]) -> None:
        """Compute what does not change along the row before its loops open."""
        w = self.w
        needs = [n for t in targets for n in t.needs] + [i.args[1].id for i, _ in accs]
        w.nest([], [Target(w.order[id], [id], lambda *_: []) for id in w.closure(needs) if id not in self.plan.in_row and id not in w.arrays])

    def _keep(self, id: int, array: str) -> Target:
        place = f"{array}[{self._position()}]"
        return Target(self.w.order[id], [id], lambda x: [f"{place} = {x};"], deep=True)

    def _position(self) -> str:
        parts, stride = [], 1
        for v, n in reversed(self.plan.inner):
            parts.append(v if stride == 1 else f"{v}*{stride}")
            stride *= n
        return " + ".join(reversed(parts))

    def _loops(self, loops: list[Loop], accs: list[tuple[Instr, Accumulator]], targets: list[Target]) -> None:
        """The loops of one pass; sums over long rows go through partial sums of ``SUM_RUN`` elements."""
        w = self.w
        v, n = self.plan.inner[-1]
        sums = any(acc.kind in ("sum", "prod") and is_float(acc.dtype) for _, acc in accs)
        if sums and n > 4 * SUM_RUN:
            last = loops[-1]
            step = _least(f"s + {SUM_RUN}", n, False) if last.start == "0" else f"(s + {SUM_RUN} < {last.stop} ? s + {SUM_RUN} : {last.stop})"
            loops = loops[:-1] + [Loop("s", last.stop, last.start, SUM_RUN), Loop(v, step, "s")]
        nested = len(loops) > 1 and bool(accs)
        inside = [(i, Accumulator(acc.name + "p", acc.kind, acc.dtype)) for i, acc in accs] if nested else accs
        for _, acc in accs:
            w.line(*acc.declare())
        clauses = "".join(" " + acc.clause() for _, acc in inside)
        loops[-1].pragma = f"#pragma omp simd{clauses}{w.bad_clause()}"
        targets = targets + [self.update(i, acc) for i, acc in inside]
        w.nest(loops, targets, around=self._partial(len(loops) - 2, accs, inside) if nested else None)

    def _partial(self, level: int, accs: list[tuple[Instr, Accumulator]], inside: list[tuple[Instr, Accumulator]]) -> Any:
        @contextmanager
        def around(d: int) -> Iterator[None]:
            if d != level:
                yield
                return
            for _, acc in inside:
                self.w.line(*acc.declare())
            yield
            for (_, acc), (_, part) in zip(accs, inside):
                self.w.line(*acc.update(part.name))
                if acc.flagged:
                    self.w.line(f"{acc.name}_nan |= {part.name}_nan;")
        return around

    def _blocks(self, loops: list[Loop], accs: list[tuple[Instr, Accumulator]], targets: list[Target]) -> None:
        """Blocks of the row on several threads, their results combined in order (the sum does not depend on the number of threads)."""
        w = self.w
        v, step = self.shared
        block = self.block_loop(v, step)
        parts = [(i, Accumulator(acc.name + "b", acc.kind, acc.dtype)) for i, acc in accs]
        for _, acc in parts:
            w.line(f"{VALUE[acc.dtype]} {acc.name}_all[{block.stop}];")
        with w.for_(block):
            self._loops(self.restrict(loops, v, step), parts, targets)
            for _, acc in parts:
                w.line(f"{acc.name}_all[b] = {acc.result()};")
        for (_, acc), (_, part) in zip(accs, parts):
            w.line(*acc.declare())
            with w.open(f"for (int b = 0; b < {block.stop}; b++)"):
                w.line(*acc.update(f"{part.name}_all[b]"))

    def _plan_kept(self) -> dict[int, tuple[str, Any, int]]:
        """Values along the row that a later pass needs and that cost too much to compute again: id -> (array, dtype, first pass)."""
        kept: dict[int, tuple[str, Any, int]] = {}
        room = STACK_BYTES
        made: dict[int, int] = {}
        price = recompute_costs(self.w, self.plan)
        for s in self.passes:
            roots = [i.args[1].id for i, _ in self.accumulators(s)] + [i.args[2].id for i in self.inner_stores(s)]
            seen: set[int] = set()
            todo = list(roots)
            while todo:
                id = todo.pop()
                if id in seen or id in kept or id not in self.plan.in_row:
                    continue
                seen.add(id)
                dtype = self.w.by_id[id].dtype
                size = self.plan.length * dtype.itemsize
                if id in made and price[id] > KEEP_COST and size <= room and dtype is not None:
                    kept[id] = (f"row{id}", dtype, made[id])
                    room -= size
                    continue
                todo += [u for u in uses(self.w.by_id[id]) if u in self.w.by_id]
            for id in seen:
                made.setdefault(id, s)
        return kept


def recompute_costs(w: Writer, plan: Plan) -> dict[int, int]:
    """Price of computing each value from memory again; what does not change along the row is free."""
    price: dict[int, int] = {}
    for i in plan.instrs:
        own = cost(i.op, i.dtype)
        price[i.id] = 0 if i.id not in plan.in_row else own + sum(price.get(u, 0) for u in set(uses(i)))
    return price
