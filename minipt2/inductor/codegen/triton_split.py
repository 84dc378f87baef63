"""A few long rows: several programs share each, and a second, small kernel puts their results together.

``Part`` walks a chunk of the row, pieces that lie evenly apart, and leaves what it has in a workspace, ``[chunk, row]``; ``Final`` reduces over the
chunks, in order, and goes on with what follows the reduction. Upstream: ``torch._inductor.ir.Reduction.create_multilayer``.
"""
from __future__ import annotations

from typing import Sequence

from ..ir import Instr
from .triton import Writer
from .index import size_text
from .triton_blocks import power
from .triton_reduce import Accumulator, Welford, accumulator

FINAL = 8192
"""Results of chunks that a program of the second kernel takes: a few columns, so that more than one SM is at work."""


class _Sharing(Writer):
    def _declare(self) -> list[tuple[Instr, list[str]]]:
        """The pieces of workspace of each reduction."""
        pieces = []
        for i in self.reduces:
            acc = accumulator(i.args[0], i.dtype)
            names = [f"work{len(self.work) + k}" for k in range(len(acc.parts))]
            self.work.update({n: self.blocks.split * self.most.rows * acc.held.itemsize for n in names})
            self.work_types += [acc.held] * len(names)
            pieces.append((i, names))
        return pieces


class Part(_Sharing):
    """Stores along the row belong to it, too."""

    def _rows(self) -> None:
        self.pieces = dict((i.id, names) for i, names in self._declare())
        self.grid = (self.grid[0], self.blocks.split)
        self.spans = [*self.spans[:1], self.blocks.split]
        self.line(f"chunk = {self.program(1)}" + ".to(tl.int64)" * self.plan.wide)
        self._pass(self.reduces, [i for i in self.stores if i.id in self.plan.in_row])

    def walked(self, end: str) -> tuple[str, str]:
        """Programs take every so manieth piece: together they go through memory from its beginning to its end."""
        return "chunk * RBLOCK", str(self.blocks.split * self.blocks.r)

    def accumulator(self, i: Instr) -> "Accumulator | Welford":
        return accumulator(i.args[0], i.dtype, even=not self.axes["r"].masked)

    def finish(self, i: Instr, names: Sequence[str]) -> None:
        acc = self.accumulator(i)
        self.line(*acc.merge(names))
        for piece, text in zip(self.pieces[i.id], acc.partial(names)):
            rows = size_text(self.axes["x"].length, tight=True)
            self.line(f"tl.store({piece} + (chunk * {rows} + x), {text}" + (", xmask)" if self.axes["x"].masked else ")"))


class Final(_Sharing):
    """One program for each row, or for a few of them."""

    def constants(self) -> None:
        self.axes["x"].block = min(self.axes["x"].block, max(FINAL // power(self.blocks.split), 4))
        self.line(f"XBLOCK: tl.constexpr = {self.axes['x'].block}", f"SBLOCK: tl.constexpr = {power(self.blocks.split)}")

    def _rows(self) -> None:
        split, rows = self.blocks.split, size_text(self.axes["x"].length, tight=True)
        self.line("s = tl.arange(0, SBLOCK)[None, :]")
        masks = ["xmask"] * self.axes["x"].masked + [f"(s < {split})"] * (power(split) != split)
        for i, pieces in self._declare():
            acc, names = accumulator(i.args[0], i.dtype), []
            for piece in pieces:
                names.append(self.name("acc"))
                other = "0.0" if len(pieces) > 1 else acc.start
                mask = f", {' & '.join(masks)}, {other}" if masks else ""
                self.line(f"{names[-1]} = tl.load({piece} + (s * {rows} + x){mask})")
            self.line(*acc.merge(names))
            self.result(i, acc.lanes(names))
        self._store_all([i for i in self.stores if i.id not in self.plan.in_row])
