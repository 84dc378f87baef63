"""Long rows of half types that stay in registers, two elements in each: memory is read once, however often the row is walked.

Triton would keep the float32 of every element, twice the registers, because each walk computes the same float32 from the same bits::

    p0 = tl.load(in0_pairs + ...)                      # [1, RBLOCK // 2] of int32
    v1 = halves(p0, tl.bfloat16)                       # [1, RBLOCK] of float32, on the first walk
    v2 = halves(p0 ^ again, tl.bfloat16)               # on the second

``again`` is 0, the number of programs along an empty dimension of the grid less one, which no compiler knows: so that it unpacks anew, and
holds the pairs alone. All pieces are asked for before the first is needed. Mean and distances are two walks, which in registers cost less
than running means. Upstream has no counterpart.
"""
from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Iterator, Sequence

from ..ir import Instr
from ..scheduler.affine import Index
from .c_openmp_plan import Plan
from .index import size_text
from .triton import Writer
from .triton_blocks import FIRST_CACHE, Blocks
from .triton_ops import MEMORY
from .triton_reduce import Accumulator, accumulator
from .triton_rewalk import in_pairs

PAST = ', cache_modifier=".cg"'
"""Read past an SM's own cache."""
ANEW = ("", " ^ again", " ^ anew", " ^ (again & anew)")
"""What makes a walk's bits look like others."""


def resident(plan: Plan, blocks: Blocks) -> bool:
    """Whether ``blocks`` keep all of a row, and it can be read in pairs."""
    return bool(plan.inner) and blocks.split == 1 and blocks.held > 0 and bool(in_pairs(plan)) and blocks.r < plan.length <= blocks.held * blocks.r


class Resident(Writer):
    """A kernel whose row is ``blocks.held`` pieces of ``blocks.r``, all in registers."""

    def _rows(self) -> None:
        self.online = {}
        r = self.axes["r"]
        self.pieces = -(-r.length // r.block)
        self.held = [{} for _ in range(self.pieces)]
        self.pairs: list[dict[Any, str]] = [{} for _ in range(self.pieces)]
        self.round, self.piece, self.halved, self.asked = 0, 0, False, False
        roots = [i.args[1].id for i in self.reduces if self.plan.stage[i.id] == 1]
        self.first = {i.args[:2]: i for i in map(self.by_id.__getitem__, self.closure(roots)) if i.op == "load"}
        self.paired = in_pairs(self.plan) & self.first.keys()
        self.hints = self._hints()
        super()._rows()

    def _hints(self) -> dict[Any, str]:
        """What the cache should know of vectors that all rows read: as much of them as an SM's own cache holds beside little else is kept there, and the
        rest, as the rows, passes it by. Layer norm of 65536 in bfloat16 reads 384 KB a row from the second cache else, and is bound by that."""
        outer, room, hints = {v for v, _ in self.plan.outer}, FIRST_CACHE, {}
        types, length = {p.name: p.dtype for p in self.plan.params}, self.axes["r"].length
        for i in self.plan.instrs:
            if i.op == "load" and i.id in self.plan.in_row and not outer & set(i.args[1].names()) and i.args[:2] not in hints:
                room -= length * types[i.args[0]].itemsize
                hints[i.args[:2]] = ', eviction_policy="evict_last"' if room >= 0 else PAST
        return hints

    def cached(self, load: Instr) -> str:
        return self.hints.get(load.args[:2], "")

    def _pass(self, reduces: Sequence[Instr], stores: Sequence[Instr]) -> None:
        if not reduces and not stores:
            return
        roots = [i.args[1].id for i in reduces] + [n for i in stores for n in self.needs(i)]
        self.compute(roots, along_row=False)
        if not self.asked:
            self._ask_pairs()
        means = {i.id: self.name() for i in reduces if i.args[0] == "welford"}
        accs = [Accumulator("sum", i.dtype) if i.id in means else accumulator(i.args[0], i.dtype) for i in reduces]
        names = [[self.name("acc") for _ in acc.parts] for acc in accs]
        for acc, parts in zip(accs, names):
            self.line(*acc.begin(parts))
        for _ in self._walk():
            for i, acc, parts in zip(reduces, accs, names):
                self.compute([i.args[1].id])
                self.line(*acc.update(parts, self._element(i), self._rmask()))
            self._store_all(stores)
        for i, acc, parts in zip(reduces, accs, names):
            if i.id not in means:
                self.result(i, acc.lanes(parts))
                continue
            self.line(f"{means[i.id]} = {acc.lanes(parts)[0]} / {float(self.axes['r'].length)}")
            self.scopes[0][i.id] = means[i.id]
        self._distances([i for i in reduces if i.id in means], means)

    def _distances(self, reduces: Sequence[Instr], means: dict[int, str]) -> None:
        """A walk that sums squares of what lies between elements and their mean."""
        if not reduces:
            return
        accs = [(Accumulator("sum", i.dtype), [self.name("acc")]) for i in reduces]
        for acc, parts in accs:
            self.line(*acc.begin(parts))
        for _ in self._walk():
            for i, (acc, parts) in zip(reduces, accs):
                self.compute([i.args[1].id])
                self.line(f"{parts[0]}_far = {self._element(i)} - {means[i.id]}")
                self.line(*acc.update(parts, f"{parts[0]}_far * {parts[0]}_far", self._rmask()))
        for i, (acc, parts) in zip(reduces, accs):
            self.line(f"{means[i.id]}_m2 = {acc.lanes(parts)[0]}")

    def _rmask(self) -> str:
        return "rmask" if self.axes["r"].masked else ""

    def _walk(self) -> Iterator[None]:
        for self.piece in range(self.pieces):
            with self.staying(self.piece):
                yield
        self.round += 1

    def _in_order(self) -> list[Any]:
        return [place for place in self.first if place in self.paired]

    def _ask_pairs(self) -> None:
        """Loads of all pieces, before the first is needed. What a later walk is the first to read does not stay."""
        self.asked = True
        for name in dict.fromkeys(name for name, _ in self._in_order()):
            self.line(f"{name}_pairs = {name}.to(tl.pointer_type(tl.int32))")
        self.line("again = tl.num_programs(1) - 1", "anew = tl.num_programs(2) - 1")
        for self.piece in range(self.pieces):
            with self.staying(self.piece):
                for place in self._in_order():
                    self._load(self.first[place])

    @contextmanager
    def staying(self, k: int) -> Iterator[None]:
        r = self.axes["r"]
        begin, end = k * r.block, r.length
        last = begin + r.block > end
        self.axes["r"] = here = r if last else replace(r, vars=[(r.vars[0][0], r.block)])
        self.axis(here, str(begin))
        self.scopes.append(self.held[k])
        self.in_held = True
        yield
        self.in_held = False
        kept = self.scopes.pop().items()
        self.held[k] = {id: name for id, name in kept if self.by_id[id].op == "load" and self.by_id[id].args[:2] not in self.paired}
        self.axes["r"] = r

    def variable(self, name: str) -> str:
        text = super().variable(name)
        return "q" if self.halved and text == "r" else text

    def _load(self, i: Instr, other: str = "") -> str:
        if i.args[:2] not in self.paired or self.masks:
            return super()._load(i, other)
        known = self.pairs[self.piece]
        if i.args[:2] not in known:
            known[i.args[:2]] = self.name("p")
            self._load_pairs(i, known[i.args[:2]])
        return f"halves({known[i.args[:2]]}{ANEW[min(self.round, len(ANEW) - 1)]}, {MEMORY[i.dtype]})"

    def _load_pairs(self, i: Instr, name: str) -> None:
        buffer, index = i.args
        r = self.axes["r"]
        half = Index(index.const // 2, {v: c if v == self.plan.inner[0][0] else c // 2 for v, c in index.terms.items()})
        begin = f"{self.piece * r.block // 2} + " if self.piece else ""
        self.line(f"q = {begin}tl.arange(0, RBLOCK // 2)[None, :]")
        masks = ["xmask"] * self.axes["x"].masked + [f"(q < {size_text(r.length // 2)})"] * r.masked
        self.halved = True
        place = self.place(f"{buffer}_pairs", half, ())
        self.halved = False
        hint = PAST if self.hints else ""
        self.line(f"{name} = tl.load({place}{', ' + ' & '.join(masks) if masks else ''}{hint})")
