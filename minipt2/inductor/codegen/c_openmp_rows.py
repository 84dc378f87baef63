"""Reductions along contiguous rows: vector lanes along the innermost reduction loop, one row after the other.

The stages of a row (maximum, sum, quotient) follow each other while it is in cache. What a later stage needs and would be
dear to compute again is kept on the stack. Upstream: ``torch._inductor.codegen.cpp`` (horizontal reductions, ``OuterLoopFusedKernel``).
"""
from __future__ import annotations

from math import prod
from typing import Any, Sequence

import torch

from ..ir import Instr
from ..scheduler.costs import cost
from ..scheduler.flat import uses
from ..sizes import exact, hint, number
from .c_openmp_loops import FEW, Reduction
from .c_openmp_ops import VALUE, cast
from .c_openmp_plan import STACK_BYTES
from .c_openmp_reduce import Accumulator, combine, identity
from .c_openmp_values import Loop, Target
from .index import at_least, size_text

KEEP_COST = 5
"""Additions' worth of recomputation above which a value of an earlier stage is kept instead."""
LIGHT = 9
"""A body cheaper than this waits for the latency of its additions: several sums run side by side."""
SUM_RUN = 1024
"""Most elements a vector lane adds one after the other: rounding errors grow with the run, not with the row."""
LANES = 32
SHORT = 64
"""Innermost reduction loops up to this length keep a sum for each iteration across the loops around them."""

Sums = Sequence[tuple[Instr, Accumulator]]


class Row(Reduction):
    """``kept``: id -> (array, dtype, first pass, early): values along the row that are put into arrays on the stack."""

    def write(self) -> None:
        plan = self.plan
        shared = plan.parallel and plan.rows < FEW and plan.length >= LANES * LANES
        self.shared = self.split() if shared else None
        self.kept = {} if self.shared else self._plan_kept()
        self.row_size = number(prod(n for _, n in plan.inner))
        if not isinstance(self.row_size, int):
            for array, dtype, _, _ in self.kept.values():
                self.w.array(array, array_type(dtype), self.row_size, each_thread=True)
        self.open_outer([self.w.loop(v, n) for v, n in plan.outer], self.shared is None, self._row)

    def _row(self) -> None:
        w = self.w
        for array, dtype, _, _ in self.kept.values():
            declare = w.array if isinstance(self.row_size, int) else w.own_part
            declare(array, array_type(dtype), self.row_size)
        w.arrays.clear()
        for s in self.passes:
            w.nest([], [w.store_target(i) for i in self.outer_stores(s)])
            if self.accumulators(s) or self.inner_stores(s):
                self._pass(s)
        w.nest([], [w.store_target(i) for i in self.outer_stores(len(self.passes))])

    # ------------------------------------------------------------ one pass over the row
    def _pass(self, s: int) -> None:
        w, accs = self.w, self.accumulators(s)
        loops = [w.loop(v, n) for v, n in self.plan.inner]
        self._known_outside([t for i in self.inner_stores(s) for t in w.store_target(i).needs] + [i.args[1].id for i, _ in accs])
        early = [self._keep(id) for id, (_, _, first, early) in self.kept.items() if first == s and early]
        if early:
            loops[-1].pragma = "#pragma omp simd" + w.bad_clause()
            w.nest(loops, early)
            self._use_kept(s, early=True)
        targets = [w.store_target(i) for i in self.inner_stores(s)]
        targets += [self._keep(id) for id, (_, _, first, early) in self.kept.items() if first == s and not early]
        if self.shared is None:
            self._sums(loops, accs, targets)
        else:
            self._blocks(loops, accs, targets)
        for i, acc in accs:
            w.line(f"const {VALUE[i.dtype]} v{i.id}r = {acc.result()};")
            w.scopes[-1][i.id] = f"v{i.id}r"
        self._use_kept(s, early=False)

    def _known_outside(self, needs: Sequence[int]) -> None:
        """Compute what does not change along the row before its loops open."""
        w = self.w
        ids = [id for id in w.closure(needs) if id not in self.plan.in_row and id not in w.arrays]
        w.nest([], [Target(w.order[id], [id], lambda *_: []) for id in ids])

    def _use_kept(self, s: int, early: bool) -> None:
        row = frozenset(v for v, _ in self.plan.inner)
        for id, (array, _, first, was_early) in self.kept.items():
            if first == s and was_early == early:
                self.w.arrays[id] = (f"{array}[{self._position()}]", row)

    def _keep(self, id: int) -> Target:
        place = f"{self.kept[id][0]}[{self._position()}]"
        return Target(self.w.order[id], [id], lambda x: [f"{place} = {x};"], deep=True)

    def _position(self) -> str:
        parts, stride = [], 1
        for v, n in reversed(self.plan.inner):
            parts.append(v if stride == 1 else f"{v}*{size_text(stride, tight=True)}")
            stride = number(stride * n)
        return " + ".join(reversed(parts))

    # ------------------------------------------------------------ loops of a pass
    def _sums(self, loops: list[Loop], accs: Sums, targets: list[Target]) -> None:
        """Declare the accumulators and write the loops; sums over long rows go through partial sums."""
        w = self.w
        for _, acc in accs:
            w.line(*acc.declare())
        v, n = self.plan.inner[-1]
        if at_least(n, 2 * SUM_RUN * LANES + 1) and any(acc.rounds for _, acc in accs):
            last, step = loops[-1], SUM_RUN * LANES
            loops = loops[:-1] + [Loop("s", last.stop, last.start, step), Loop(v, f"(s + {step} < {last.stop} ? s + {step} : {last.stop})", "s")]
        if len(loops) == 1:
            self._innermost(loops[0], accs, targets)
            return
        if accs and not at_least(n, SHORT + 1):
            self._short_rows(loops, accs, targets)
            return
        inside = [(i, Accumulator(acc.name + "p", acc.kind, acc.dtype)) for i, acc in accs]

        def partial() -> list[str]:
            for _, acc in inside:
                w.line(*acc.declare())
            self._innermost(loops[-1], inside, targets)
            return [line for (_, acc), (_, part) in zip(accs, inside) for line in acc.absorb(part)]

        w.nest(loops[:-1], [Target(0, [], partial, deep=True)])

    def _short_rows(self, loops: list[Loop], accs: Sums, targets: list[Target]) -> None:
        """Many short runs (the channels of a group, in channels-last): a sum for each place of the run, added up at the end."""
        w, (v, n) = self.w, self.plan.inner[-1]
        outer, last = loops[:-1], loops[-1]
        if at_least(self._iterations(outer), 2 * SUM_RUN + 1):
            cut = outer[-1]
            outer = outer[:-1] + [Loop("s", cut.stop, cut.start, SUM_RUN), Loop(cut.var, f"(s + {SUM_RUN} < {cut.stop} ? s + {SUM_RUN} : {cut.stop})", "s")]
        last.pragma = "#pragma omp simd" + w.bad_clause()

        def run(level: list[Loop]) -> list[str]:
            for _, acc in accs:
                w.line(f"{acc.ctype} {acc.name}_l[{n}];", f"for (int l = 0; l < {n}; l++) {acc.name}_l[l] = {identity(acc.kind, acc.dtype)};")
            w.nest([*level, last], targets + [self._lane(i, acc, v) for i, acc in accs])
            w.line("#pragma omp simd" + "".join(" " + acc.clause() for _, acc in accs))
            with w.open(f"for (int l = 0; l < {n}; l++)"):
                w.line(*[line for _, acc in accs for line in acc.update(f"{acc.name}_l[l]")])
            return []

        k = next((j for j, loop in enumerate(outer) if loop.var == "s"), len(outer) - 1 if len(outer) > 1 else None)
        if k is None:
            run(outer)
        else:
            w.nest(outer[:k + 1], [Target(0, [], lambda: run(outer[k + 1:]), deep=True)])

    def _iterations(self, loops: list[Loop]) -> Any:
        sizes = dict(self.plan.inner)
        return sizes.get(loops[-1].var, 1) if loops else 1

    def _innermost(self, loop: Loop, accs: Sums, targets: list[Target]) -> None:
        w, n = self.w, self.plan.inner[-1][1]
        lanes = LANES if len(accs) <= 2 else LANES // 2
        if accs and hint(n) >= 4 * lanes and self._weight(accs, targets) <= LIGHT:
            loop = self._side_by_side(loop, n, lanes, accs, targets)
            if loop is None:
                return
        clauses = "".join(" " + acc.clause() for _, acc in accs)
        loop.pragma = f"#pragma omp simd{clauses}{w.bad_clause()}"
        w.nest([loop], targets + [self.update(i, acc) for i, acc in accs])

    def _side_by_side(self, loop: Loop, n: Any, lanes: int, accs: Sums, targets: list[Target]) -> Loop | None:
        """``lanes`` sums run side by side in registers; returns the loop over what is left, None when nothing is."""
        w = self.w
        even = exact(n, lanes) is not None and loop.start == "0" and loop.stop == size_text(n)
        for _, acc in accs:
            w.line(f"{acc.ctype} {acc.name}_l[{lanes}];", f"for (int l = 0; l < {lanes}; l++) {acc.name}_l[l] = {identity(acc.kind, acc.dtype)};")
        u = w.name("u")
        if even:
            outer = Loop(u, size_text(n), step=lanes)
        else:
            w.line(f"{w.itype} {u} = {loop.start};")
            outer = Loop(u, loop.stop, step=lanes, head=f"for (; {u} + {lanes} <= {loop.stop}; {u} += {lanes})")
        inner = Loop(loop.var, f"{u} + {lanes}", u, pragma="#pragma omp simd" + w.bad_clause())
        w.nest([outer, inner], targets + [self._lane(i, acc, f"{loop.var} - {u}") for i, acc in accs], perfect=2)
        w.line("#pragma omp simd" + "".join(" " + acc.clause() for _, acc in accs))
        with w.open(f"for (int l = 0; l < {lanes}; l++)"):
            w.line(*[line for _, acc in accs for line in acc.update(f"{acc.name}_l[l]")])
        return None if even else Loop(loop.var, loop.stop, u)

    def _lane(self, i: Instr, acc: Accumulator, lane: str) -> Target:
        place, source = f"{acc.name}_l[{lane}]", self.w.by_id[i.args[1].id].dtype
        return Target(self.w.order[i.id], [i.args[1].id],
                      lambda x: [f"{place} = {combine(acc.kind, acc.dtype, cast(x, source, i.dtype), place)};"], deep=True)

    def _weight(self, accs: Sums, targets: list[Target]) -> int:
        """Cost of one iteration; narrow operands, which fill vectors with more elements, count as heavy."""
        w = self.w
        ids = [id for id in w.closure([i.args[1].id for i, _ in accs] + [n for t in targets for n in t.needs]) if id not in w.arrays]
        if any(i.op == "load" and w.types[i.args[0]].itemsize < 4 for i in map(w.by_id.__getitem__, ids)):
            return LIGHT + 1
        return sum(cost(w.by_id[id].op, w.by_id[id].dtype) for id in ids)

    def _blocks(self, loops: list[Loop], accs: Sums, targets: list[Target]) -> None:
        """Blocks of the row on several threads, their results combined in order (a sum does not depend on the number of threads)."""
        w = self.w
        block = self.block_loop(self.shared)
        parts = [(i, Accumulator(acc.name + "b", acc.kind, acc.dtype)) for i, acc in accs]
        for _, acc in parts:
            w.line(f"{VALUE[acc.dtype]} {acc.name}_all[{self.shared.blocks}];")
        with w.for_(block):
            self._sums(self.restrict(loops, self.shared), parts, targets)
            for _, acc in parts:
                w.line(f"{acc.name}_all[b] = {acc.result()};")
        for (_, acc), (_, part) in zip(accs, parts):
            w.line(*acc.declare())
            with w.open(f"for (int b = 0; b < {block.stop}; b++)"):
                w.line(*acc.update(f"{part.name}_all[b]"))

    # ------------------------------------------------------------ what is kept
    def _plan_kept(self) -> dict[int, tuple[str, Any, int, bool]]:
        kept: dict[int, tuple[str, Any, int, bool]] = {}
        room = STACK_BYTES
        made: dict[int, int] = {}
        price = self._prices()
        for s in self.passes:
            roots = [i.args[1].id for i, _ in self.accumulators(s)] + [i.args[2].id for i in self.inner_stores(s)]
            seen: set[int] = set()
            todo = list(roots)
            widen = self._to_widen(roots, price) if self.accumulators(s) else set()
            while todo:
                id = todo.pop()
                if id in seen or id in kept or id not in self.plan.in_row:
                    continue
                seen.add(id)
                dtype = self.w.by_id[id].dtype
                size = self.plan.length * max(4, dtype.itemsize)
                if size <= room and (id in widen or id in made and price[id] > KEEP_COST):
                    kept[id] = (f"row{id}", dtype, made.get(id, s), id in widen)
                    room -= size
                    continue
                todo += [u for u in uses(self.w.by_id[id]) if u in self.w.by_id]
            for id in seen:
                made.setdefault(id, s)
        return kept

    def _prices(self) -> dict[int, int]:
        """Price of computing each value from memory again; what does not change along the row is free."""
        price: dict[int, int] = {}
        for i in self.plan.instrs:
            inside = sum(price.get(u, 0) for u in set(uses(i)))
            price[i.id] = cost(i.op, i.dtype) + inside if i.id in self.plan.in_row else 0
        return price

    def _to_widen(self, roots: Sequence[int], price: dict[int, int]) -> set[int]:
        """Values of 4 bytes and more made from operands of one byte (masks): converted in a loop of their own, since in a loop with
        sums or exponentials they would force four vectors where registers hold one."""
        w = self.w
        ids = [id for id in w.closure(roots) if id in self.plan.in_row]
        narrow = {id for id in ids if w.by_id[id].op == "load" and w.types[w.by_id[id].args[0]].itemsize == 1}
        wide: set[int] = set()
        for id in ids:
            i = w.by_id[id]
            from_narrow = [u for u in set(uses(i)) if u in narrow]
            if from_narrow and i.dtype is not None:
                if i.dtype.itemsize == 1:
                    narrow.add(id)
                elif price[id] <= LIGHT:
                    wide.add(id)
                else:
                    wide.update(from_narrow)
        return wide


def array_type(dtype: torch.dtype) -> str:
    """Elements of arrays on the stack are as wide as the floats computed beside them."""
    return "int" if dtype.itemsize == 1 else VALUE[dtype]
