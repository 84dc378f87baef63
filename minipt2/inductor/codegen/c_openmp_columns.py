"""Reductions whose contiguous dimension is kept (batch-norm statistics in channels-last, bias gradients): lanes along it.

A row of accumulators stands for a tile of the kept dimension while the reduced rows stream by.
Upstream: ``torch._inductor.codegen.cpp`` (vertical reductions of ``CppVecKernel``).
"""
from __future__ import annotations

from contextlib import contextmanager
from math import prod
from typing import Any, Iterator

from ..ir import Instr
from ..scheduler.flat import uses
from ..sizes import exact, hint
from .c_openmp_loops import FEW, Reduction
from .c_openmp_ops import VALUE, cast
from .c_openmp_reduce import Accumulator, combine, identity
from .c_openmp_values import Loop, Target, Writer
from .index import at_least, capped, size_text

TILE, WIDE_TILE = 512, 4096
HOT_ELEMENTS = 1 << 14
"""Elements of a tile's rows that a later stage may expect in cache."""
RUN = 256
"""Rows added up before their sums are put aside (rounding)."""


class Column(Reduction):
    """Vector lanes along the last pointwise loop, inside the reduction loops."""

    def __init__(self, w: Writer):
        super().__init__(w)
        self.lane, self.width = self.plan.outer[-1]
        self.beside = self.plan.outer[:-1]
        tiles = -(-hint(self.width) // TILE)
        few = prod(hint(n) for _, n in self.beside) * tiles < FEW
        self.tile = capped(self.width, WIDE_TILE if few else TILE)
        if self.passes[-1] > 0:
            self.tile = capped(self.width, max(16, min(self.tile, HOT_ELEMENTS // max(1, self.plan.length) // 16 * 16)))
        self.tiled = at_least(self.width, self.tile + 1)
        self.count = str(self.tile) if isinstance(self.width, int) else "lanes"
        """How many elements of a tile's arrays are used."""
        self.shared = self.split() if self.plan.parallel and few else None
        self.rounds = any(acc.rounds for s in self.passes for _, acc in self.accumulators(s))

    @property
    def place(self) -> str:
        """Position of the lane in a tile's arrays."""
        return f"{self.lane} - t" if self.tiled else self.lane

    def lanes(self, pragma: bool = True) -> Loop:
        stop = size_text(self.width)
        if self.tiled:
            stop = f"t + {self.count}" if exact(self.width, self.tile) is not None or self.count == "lanes" else (
                f"(t + {self.tile} < {stop} ? t + {self.tile} : {stop})")
        return Loop(self.lane, stop, "t" if self.tiled else "0", pragma="#pragma omp simd" + self.w.bad_clause() if pragma else "")

    def write(self) -> None:
        loops = [self.w.loop(v, n) for v, n in self.beside]
        if self.tiled:
            loops.append(self.w.loop("t", self.width, step=self.tile))
        self.open_outer(loops, self.shared is None, self._tile)

    def _tile(self) -> None:
        w = self.w
        w.arrays.clear()
        if self.count == "lanes":
            left = f"{size_text(self.width)} - t"
            w.line(f"const {w.itype} lanes = {left} < {self.tile} ? {left} : {self.tile};")
        for s in self.passes:
            self._outer(s)
            if self.accumulators(s) or self.inner_stores(s):
                self._materialise(s)
                self._pass(s)
        self._outer(len(self.passes))

    def _outer(self, s: int) -> None:
        stores = self.outer_stores(s)
        if stores:
            self.w.nest([self.lanes()], [self.w.store_target(i) for i in stores])

    def _materialise(self, s: int) -> None:
        """Put what the pass needs for each lane, and what costs more than a load, into arrays."""
        w = self.w
        roots = [i.args[1].id for i, _ in self.accumulators(s)] + [n for i in self.inner_stores(s) for n in w.store_target(i).needs]
        ids = w.closure(roots)
        used = {u for id in ids if id in self.plan.in_row and id not in w.arrays for u in uses(w.by_id[id])} | set(roots)
        targets = []
        for id in sorted(used & set(ids)):
            i = w.by_id[id]
            if id in self.plan.in_row or id in w.arrays or i.op in ("load", "constant", "scalar", "index_expr") or i.dtype is None:
                continue
            if self.lane not in w.variables(w.closure([id]))[id]:
                continue
            w.line(f"{VALUE[i.dtype]} m{id}[{self.tile}] __attribute__((aligned(64)));")
            targets.append((id, Target(w.order[id], [id], lambda x, id=id: [f"m{id}[{self.place}] = {x};"], deep=True)))
        if targets:
            w.nest([self.lanes()], [t for _, t in targets])
        for id, _ in targets:
            w.arrays[id] = (f"m{id}[{self.place}]", frozenset([self.lane]))

    # ------------------------------------------------------------ one pass over the rows
    def _pass(self, s: int) -> None:
        w, accs = self.w, self.accumulators(s)
        loops = [w.loop(v, n) for v, n in self.plan.inner]
        for _, acc in accs:
            self._declare(acc.name, acc)
        if self.shared is None or self.plan.length < 2 * FEW:
            self._rows(loops, accs, s)
        else:
            self._blocks(loops, accs, s)
        for i, acc in accs:
            element = f"{acc.name}[{self.place}]"
            w.arrays[i.id] = (f"({element} != 0)" if acc.ctype == "int" and i.dtype.itemsize == 1 else element, frozenset([self.lane]))

    def _declare(self, name: str, acc: Accumulator) -> None:
        w = self.w
        w.line(f"{acc.ctype} {name}[{self.tile}] __attribute__((aligned(64)));",
               f"for (int l = 0; l < {self.count}; l++) {name}[l] = {identity(acc.kind, acc.dtype)};")

    def _rows(self, loops: list[Loop], accs: list[tuple[Instr, Accumulator]], s: int) -> None:
        w = self.w
        level = self._partial_level(loops) if self.rounds and accs else None
        if level is not None and level[1]:
            k, step = level
            last = loops[k]
            stop = f"(s + {step} < {last.stop} ? s + {step} : {last.stop})"
            loops = loops[:k] + [Loop("s", last.stop, last.start, step), Loop(last.var, stop, "s")] + loops[k + 1:]
        suffix = "p" if level is not None else ""
        targets = [w.store_target(i, deep=True) for i in self.inner_stores(s)]
        targets += [self._accumulate(i, acc, acc.name + suffix) for i, acc in accs]
        around = None if level is None else self._partial(level[0] if level[1] else level[0] - 1, accs)
        w.nest(loops + [self.lanes()], targets, around=around)

    def _accumulate(self, i: Instr, acc: Accumulator, name: str) -> Target:
        place, source = f"{name}[{self.place}]", self.w.by_id[i.args[1].id].dtype
        return Target(self.w.order[i.id], [i.args[1].id],
                      lambda x: [f"{place} = {combine(acc.kind, acc.dtype, cast(x, source, i.dtype), place)};"], deep=True)

    def _partial_level(self, loops: list[Loop]) -> tuple[int, Any] | None:
        """Where sums are put aside: (loop to cut, step), or (loop, 0) to do so in each iteration of the loop before it; None: nowhere.

        Symbolic loops may be long, whatever they were: they are cut in any case.
        """
        inner = [(v, self.shared.step if self.shared and v == self.shared.var and isinstance(n, int) else n) for v, n in self.plan.inner]
        sizes = [hint(n) for _, n in inner]
        known = all(isinstance(n, int) for _, n in inner)
        if known and prod(sizes) <= 4 * RUN:
            return None
        k = max((j for j in range(len(sizes)) if prod(sizes[j:]) >= RUN // 4), default=0)
        if not known and isinstance(inner[k][1], int):
            k = max(j for j, (_, n) in enumerate(inner) if not isinstance(n, int))
        step = max(1, RUN // max(prod(sizes[k + 1:]), 1))
        if not all(isinstance(n, int) for _, n in inner[k + 1:]):
            return k, f"({RUN}/({'*'.join(size_text(n, tight=True) for _, n in inner[k + 1:])} + 1) + 1)"
        if at_least(inner[k][1], 2 * step + 1):
            return k, step
        return (k, 0) if k else None

    def _partial(self, level: int, accs: list[tuple[Instr, Accumulator]]) -> Any:
        @contextmanager
        def around(d: int) -> Iterator[None]:
            if d == level:
                for _, acc in accs:
                    self._declare(acc.name + "p", acc)
            yield
            if d == level:
                self._merge(accs, "p", "l")
        return around

    def _merge(self, accs: list[tuple[Instr, Accumulator]], suffix: str, index: str) -> None:
        for _, acc in accs:
            text = combine(acc.kind, acc.dtype, f"{acc.name}{suffix}[{index}]", f"{acc.name}[l]")
            self.w.line(f"for (int l = 0; l < {self.count}; l++) {acc.name}[l] = {text};")

    def _blocks(self, loops: list[Loop], accs: list[tuple[Instr, Accumulator]], s: int) -> None:
        """Blocks of rows on several threads; their sums are added in order, whatever the number of threads."""
        w = self.w
        block = self.block_loop(self.shared)
        inside = [(i, Accumulator(acc.name + "b", acc.kind, acc.dtype)) for i, acc in accs]
        for _, acc in accs:
            w.line(f"{acc.ctype} {acc.name}_all[{self.shared.blocks}][{self.tile}];")
        with w.for_(block):
            for _, acc in inside:
                self._declare(acc.name, acc)
            self._rows(self.restrict(loops, self.shared), inside, s)
            for (_, acc), (_, part) in zip(accs, inside):
                w.line(f"for (int l = 0; l < {self.count}; l++) {acc.name}_all[b][l] = {part.name}[l];")
        if accs:
            with w.open(f"for (int b = 0; b < {block.stop}; b++)"):
                self._merge(accs, "_all[b]", "l")
