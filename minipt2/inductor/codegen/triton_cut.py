"""The program that cuts a float32 operand into its three pieces of bfloat16, in the order in which it lies: see ``triton_pieces``."""
from __future__ import annotations

import torch

from .triton_pieces import CUTS, Pieces, extent, memory, operand, span
from .triton_template import TemplateWriter
from .triton_template_plan import TemplatePlan, Tile

BLOCK = 2048
"""Elements of a program."""


class Cut(TemplateWriter):
    """``name``: the operand, ``lhs`` or ``rhs``."""

    def __init__(self, plan: TemplatePlan, name: str):
        super().__init__(plan, Tile(16, 16, 16, 4, 1))
        self.operand = name

    def write(self) -> "Cut":
        c, name = self.contraction, self.operand
        count, step, start = span(c, name), extent(c, name), operand(c, name)[0].offset
        self.share(memory(name), 3 * step, torch.bfloat16)
        wide = ".to(tl.int64)" if self.plan.wide else ""
        mask = f", x < {count}" if count % BLOCK else ""
        place = f"(x + {start})" if start else "x"
        self.line(f"XBLOCK: tl.constexpr = {BLOCK}", f"x = tl.program_id(0){wide} * XBLOCK + tl.arange(0, XBLOCK)",
                  f"x1, x2, x3 = pieces(tl.load({name} + {place}{mask}))")
        self.line(*[f"tl.store({memory(name)} + {f'(x + {k * step})' if k else 'x'}, x{k + 1}{mask})" for k in range(3)])
        self.grid = (-(-count // BLOCK), 1)
        return self


def cuts(plan: TemplatePlan, tile: Tile) -> list[Cut]:
    """The programs that have to run before a template in ``tile``."""
    return [Cut(plan, name) for name in Pieces(plan.contraction, tile.cut).before] if tile.cut in CUTS else []
