"""Products of few tiles and many summands: several programs share each tile's summands, and a second program adds up their parts.

``Part`` accumulates its share of the steps and leaves it in a workspace in float32, ``[part, row, column]``; ``Sum`` adds the parts, in order, so
that the result is the same at every run, and goes on with the loops after the product. Upstream: ``torch._inductor.kernel.mm``'s ``decompose_k``.
"""
from __future__ import annotations

from math import prod

import torch

from .triton_blocks import power
from .triton_template import TemplateWriter
from .triton_template_plan import TemplatePlan, Tile

WIDE, MANY = 128, 1024
"""Columns, and elements, that a program of the second kernel takes: enough programs to keep all SMs loading."""


class _Sharing(TemplateWriter):
    """``size``: elements of the product."""

    def __init__(self, plan: TemplatePlan, tile: Tile):
        assert plan.contraction.sizes[0] == 1, "parts take the place of a batch in the grid"
        super().__init__(plan, tile)
        self.size = prod(plan.contraction.sizes)

    def _piece(self, split: int) -> None:
        self.share("work0", split * self.size, torch.float32)

    def _place(self) -> tuple[str, str]:
        """Of the tile's elements in a part, and whether they are there."""
        masks = [f"{a}mask" for a in "mn" if self.axes[a].masked]
        return f"m * {self.contraction.sizes[2]} + n", ", " + " & ".join(masks) if masks else ""


class Part(_Sharing):
    def write(self) -> "Part":
        self._piece(self.blocks.split)
        self._constants()
        self._tile()
        self.line("part = tl.program_id(1)")
        self._accumulate()
        self._elements()
        at, mask = self._place()
        self.line(f"tl.store(work0 + (part * {self.size} + {at}), acc{mask})")
        self.grid = (self.grid[0], self.blocks.split)
        return self

    def span(self, length: int, step: int) -> str:
        """The steps of this part; the last one's may end early."""
        share = -(-length // (step * self.blocks.split)) * step
        self.line(f"begin = part * {share}")
        end = f"begin + {share}" if share * self.blocks.split == length else f"tl.minimum(begin + {share}, {length})"
        return f"begin, {end}"


class Sum(_Sharing):
    """``blocks``: a tile of its own."""

    def __init__(self, plan: TemplatePlan, tile: Tile):
        rows, columns = plan.contraction.sizes[1:]
        n = min(power(columns), WIDE)
        super().__init__(plan, Tile(min(power(rows), max(MANY // n, 1)), n, 0, stages=1))
        self.split = tile.split

    def write(self) -> "Sum":
        self._piece(self.split)
        self._constants()
        self._tile()
        self._elements()
        at, mask = self._place()
        self.line("acc = tl.zeros([MBLOCK, NBLOCK], tl.float32)")
        with self.open(f"for part in tl.static_range({self.split}):"):
            self.line(f"acc += tl.load(work0 + (part * {self.size} + {at}){mask}{', 0.0' * bool(mask)})")
        self._finish()
        return self
