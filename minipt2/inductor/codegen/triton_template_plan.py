"""What a contraction's template is made of, under canonical names: the tile, the loops after the product, the operands and the loops that make them.

Upstream: the rendering context of ``torch._inductor.codegen.triton.TritonTemplateKernel``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Sequence

import torch

from ..ir import Instr, Ref
from ..precision import convolutions_in_tf32, products_in_tf32
from ..scheduler.contraction import Contraction, Operand
from ..scheduler.kernels import Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.nodes import walk
from ..scheduler.operands import prologues
from ..scheduler.templates import Template, without_product
from .c_openmp_plan import Param, Plan, rename_buffers
from .triton_values import Axis

GROUP = 8
"""Rows of tiles in a band."""


@dataclass(frozen=True)
class Tile:
    """``m`` x ``n`` elements of the product in one program, ``k`` summands at a time; ``group``: rows of tiles in a band; ``split``: programs that
    share the summands of one tile; ``cut``: float32 operands are multiplied in pieces (``triton_pieces.CUTS`` says where they are cut)."""

    m: int
    n: int
    k: int
    warps: int = 4
    stages: int = 3
    group: int = GROUP
    split: int = 1
    cut: str = ""

    @property
    def turned(self) -> bool:
        """Whether the program makes the transposed product: what is cut in registers has to be the left operand."""
        return self.cut == "lhs"

    def __str__(self) -> str:
        return (f"{self.m}×{self.n}×{self.k}, {self.warps} warps, {self.stages} stages" + f", bands of {self.group}" * (self.group != GROUP)
                + f", in {self.split} parts" * (self.split > 1) + f", cut: {self.cut}" * bool(self.cut))


@dataclass
class TemplatePlan:
    """What a template's text is made of, under canonical names: equal plans have equal text."""

    contraction: Contraction
    loops: Plan
    axes: dict[str, list[tuple[str, int]]]
    operands: list[Param]
    tf32: bool
    made: dict[str, "Made"] = field(default_factory=dict, kw_only=True)
    """By ``lhs`` or ``rhs``: an operand that the program makes itself."""


@dataclass
class Made:
    """``value`` is the operand's element; its loops by ``z``, ``edge`` (row or column) and ``k``."""

    value: Ref
    axes: dict[str, list[tuple[str, int]]]


def template_plan(step: Template, schedule: Schedule) -> TemplatePlan:
    """``step`` with its loop variables and buffers renamed."""
    c = step.contraction
    names, axes, after = canonical(step)
    before, made = _made_here(c, names, 1 + max(i.id for i in walk(after)))
    read = [(o, name) for o, name in ((c.a, "lhs"), (c.b, "rhs")) if name not in made]
    loops, operands = renamed(step, schedule, [*before, *after], names, axes, read, prod(c.sizes))
    return TemplatePlan(c, loops, axes, operands, tf32_allowed(c), made=made)


def canonical(step: Template) -> tuple[dict[str, str], dict[str, list[tuple[str, int]]], list[Instr]]:
    """New names of ``step``'s loop variables, its loops by axis under these, and its instructions with the product as one of them."""
    names = {v: f"p{k}" for k, v in enumerate(v for vars in step.axes.values() for v, _ in vars)}
    axes = {axis: [(names[v], n) for v, n in vars] for axis, vars in step.axes.items()}
    return names, axes, without_product(step).flat.instrs


def renamed(step: Template, schedule: Schedule, instrs: Sequence[Instr], names: dict[str, str], axes: dict[str, list[tuple[str, int]]],
            read: Sequence[tuple[Operand, str]], elements: int, inner: Sequence[tuple[str, int]] = ()) -> tuple[Plan, list[Param]]:
    """``instrs`` as the loops of ``step`` under ``names``, and the operands ``read`` (with the names of their pointers), which stand first.
    ``elements``: of the result; where they or any buffer reach beyond 32 bits, positions are 64-bit. ``inner``: loops besides ``axes``."""
    instrs, params = rename_buffers(instrs, names, schedule)
    operands = [Param(o.buffer, name, o.dtype, False) for o, name in read]
    loops = Plan(instrs, [d for vars in axes.values() for d in vars], [*inner], False, [*operands, *params], 0.0, step.flat.stage)
    loops.wide = any(storage_bytes(schedule.layouts[p.buffer]) >= 1 << 31 for p in loops.params) or elements >= 1 << 31
    return loops, operands


def _made_here(c: Contraction, names: dict[str, str], first: int) -> tuple[list[Instr], dict[str, Made]]:
    """What makes operands, as instructions with ids from ``first`` on; their loops get names in ``names``."""
    instrs, made = [], {}
    for name, loops in prologues(c):
        place = {i.id: first + k for k, i in enumerate(loops.instrs)}
        names.update((v, f"{name[0]}{k}") for k, v in enumerate(v for vars in loops.axes.values() for v, _ in vars))
        instrs += [i._replace(id=place[i.id], args=tuple(Ref(place[a.id], a.part) if isinstance(a, Ref) else a for a in i.args)) for i in loops.instrs]
        made[name] = Made(Ref(place[loops.value.id]), {axis: [(names[v], n) for v, n in vars] for axis, vars in loops.axes.items()})
        first += len(place)
    return instrs, made


def result_axes(plan: TemplatePlan, m: int, n: int) -> list[Axis]:
    """Of the result, in blocks of ``m`` rows and ``n`` columns."""
    axes = [Axis("z", plan.axes["z"], 1)] if plan.axes["z"] else []
    return axes + [Axis("m", plan.axes["m"] or [("m", 1)], m, "[:, None]"), Axis("n", plan.axes["n"] or [("n", 1)], n, "[None, :]")]


def operand_axes(name: str, made: Made, tile: Tile) -> list[Axis]:
    """Of an operand that is made in the program: batch, row (or column) of the result and ``k``, as they lie in its tile. Rows never leave the
    operand: ``TemplateWriter._edge``."""
    edge, k = ("[:, None]", "[None, :]") if (name == "lhs") != tile.turned else ("[None, :]", "[:, None]")
    axes = [Axis(f"{name}z", made.axes["z"], 1), Axis(f"{name}edge", made.axes["edge"], 1, edge), Axis(f"{name}k", made.axes["k"], tile.k, k)]
    return [a for a in axes if a.vars]


def tf32_allowed(c: Contraction) -> bool:
    """Whether torch lets this product of float32 numbers be taken in TF32."""
    return convolutions_in_tf32() if c.extern.target is torch.ops.aten.convolution.default else products_in_tf32()
