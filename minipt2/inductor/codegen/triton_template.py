"""A contraction and the loops after it as one Triton program: tiles of the product in registers, then the loops' own statements over a tile.

The program walks k in blocks, ``tl.dot`` adds to an accumulator in float32 (float32 operands in TF32 where torch's setting allows it, else exactly:
on tensor cores in pieces, ``triton_pieces``); ``triton_values.Body`` writes the rest over the axes m and n, for which a load of the product is the
accumulator. Operands lie in any order: strides are numbers in the text. Programs go over the result in bands of ``GROUP`` rows of tiles, so that
those that run at the same time read the same operands from the cache. A convolution walks taps and channels where a product walks k.
An operand that the program makes itself (``scheduler.operands``) is written by the same ``Body``, over axes of its own inside the walk.
Upstream: ``torch._inductor.kernel.mm``'s and ``conv``'s templates, ``codegen.triton.TritonTemplateKernel``; the bands: Triton's tutorial 3.
"""
from __future__ import annotations

import re
from contextlib import contextmanager
from math import prod
from typing import Any, Iterator

import torch

from ..scheduler.contraction import Operand
from ..scheduler.flat import uses
from .c_openmp_plan import Param
from .index import bare
from .triton_ops import HALF
from .triton_pieces import Pieces, extent, memory
from .triton_taps import all_taps, places, sum_of, tap
from .triton_template_plan import Made, TemplatePlan, Tile, operand_axes, result_axes
from .triton_values import Axis, Body


class TemplateWriter(Body):
    """The statements of a template's function, with the face of ``triton.Writer``."""

    def __init__(self, plan: TemplatePlan, tile: Tile):
        self.template, self.contraction, self.blocks = plan, plan.contraction, tile
        walked = {name: operand_axes(name, made, tile) for name, made in plan.made.items()}
        super().__init__(plan.loops, [*self._axes(plan, tile), *(a for axes in walked.values() for a in axes)])
        self.walked = {name: {a.name: self.axes.pop(a.name) for a in axes} for name, axes in walked.items()}
        """Axes of the operands that are made here."""
        self.exact = self._unrounded()
        self.work: dict[str, int] = {}
        self.work_types: list[torch.dtype] = []
        self.deep = "KBLOCK"
        """How many summands a step takes."""
        self.pieces = Pieces(plan.contraction, tile.cut) if isinstance(tile, Tile) and tile.cut else None
        rows, columns = plan.contraction.sizes[1:]
        self.tiles = (-(-rows // self.axes["m"].block), -(-columns // self.axes["n"].block))
        self.grid = (prod(self.tiles), plan.contraction.sizes[0])

    def _axes(self, plan: TemplatePlan, tile: Any) -> list[Axis]:
        return result_axes(plan, tile.m, tile.n)

    @property
    def statements(self) -> str:
        return "\n".join(self.lines)

    @property
    def params(self) -> list[Param]:
        """The pointers that the statements use."""
        used = set(re.findall(r"\w+", self.statements))
        return [p for p in self.plan.params if p.name in used]

    def share(self, name: str, count: int, dtype: torch.dtype) -> None:
        """The programs of this template share ``count`` elements of memory under ``name``."""
        self.work[name] = count * dtype.itemsize
        self.work_types.append(dtype)

    def write(self) -> "TemplateWriter":
        self._constants()
        self._tile()
        self._accumulate()
        self._elements()
        return self._finish()

    def _constants(self) -> None:
        t = self.blocks
        self.line(*[f"{name}BLOCK: tl.constexpr = {n}" for name, n in (("M", t.m), ("N", t.n), ("K", t.k)) if n])

    def _elements(self) -> None:
        """The axes of the tile's elements."""
        if "z" in self.axes:
            self.variables(self.axes["z"])
        self.axis(self.axes["m"], "pm")
        self.axis(self.axes["n"], "pn")

    def _finish(self) -> "TemplateWriter":
        """The loops after the product, over a tile."""
        for i in self.plan.instrs:
            if i.op == "store":
                self.compute(self.needs(i))
                self.store(i)
        return self

    # ------------------------------------------------------------ which tile
    def _tile(self) -> None:
        """Tile (pm, pn) of this program, and ``z``."""
        (down, across), group = self.tiles, self.blocks.group
        wide = ".to(tl.int64)" if self.plan.wide else ""
        if self.grid[1] > 1:
            self.line(f"z = tl.program_id(1){wide}")
        if down == 1 or across == 1:
            self.line(f"pm = {'0' if down == 1 else 'tl.program_id(0)'}", f"pn = {'0' if across == 1 else 'tl.program_id(0)'}")
            return
        self.line("pid = tl.program_id(0)")
        if down <= group:
            self.line(f"pm = pid % {down}", f"pn = pid // {down}")
            return
        band = group * across
        height = str(group) if down % group == 0 else f"tl.minimum({down} - first, {group})"
        self.line(f"first = pid // {band} * {group}", f"height = {height}", f"pm = first + pid % {band} % height", f"pn = pid % {band} // height")

    # ------------------------------------------------------------ the product
    def _accumulate(self) -> None:
        c = self.contraction
        self._edge("row", "pm", "MBLOCK", c.sizes[1])
        self._edge("col", "pn", "NBLOCK", c.sizes[2])
        if self.pieces is not None:
            for name in self.pieces.before:
                self.share(memory(name), 3 * extent(c, name), torch.bfloat16)
        zero = f"acc = tl.zeros([{'NBLOCK, MBLOCK' if self._turned else 'MBLOCK, NBLOCK'}], tl.float32)"
        self.line(zero)
        steps = places(self) if c.window else self._outsides()
        with self.open(f"for {steps.format(block=self.deep)}:"):
            self._step()
            self._dot()
        if self.pieces is not None:
            self._again(zero, steps)
        if self._turned:
            self.line("acc = tl.trans(acc)")

    def _again(self, zero: str, steps: str) -> None:
        """A tile in which infinity or NaN came out: of the numbers as they are, few at a time, so that this takes no more registers than the rest."""
        self.line("wrong = tl.max(tl.max(tl.where(acc - acc == 0.0, 0, 1), 1), 0)")
        with self.open("if wrong > 0:"):
            if not self.contraction.window:  # there, programs that share a tile count steps
                self.deep = "FEW"
                self.line("FEW: tl.constexpr = 16")
            self.line(zero)
            with self.open(f"for {steps.format(block=self.deep)}:"):
                self._step(whole=True)
                self.line('acc = tl.dot({}, {}, acc, input_precision="ieee")'.format(*self._sides("u", "v")))

    @property
    def _turned(self) -> bool:
        return self.pieces is not None and self.blocks.turned

    def _sides(self, u: str, v: str) -> tuple[str, str]:
        """What is the left and what the right operand of ``tl.dot``."""
        return (v, u) if self._turned else (u, v)

    def _edge(self, name: str, place: str, block: str, length: int) -> None:
        """Rows or columns of the operands. Those beyond the end read the last one's elements, which nobody stores, or nothing where neighbours
        are loaded together."""
        wide = ".to(tl.int64)" if self.plan.wide else ""
        text = f"{place}{wide} * {block} + tl.arange(0, {block})"
        clamped = self._sticks_out(name) and not self._together(name)
        self.line(f"{name} = tl.minimum({text}, {length - 1})" if clamped else f"{name} = {text}")

    def _sticks_out(self, name: str) -> bool:
        rows, columns = self.contraction.sizes[1:]
        return (rows % self.blocks.m if name == "row" else columns % self.blocks.n) != 0

    def _together(self, name: str) -> bool:
        """Whether the operand's elements lie side by side along its rows (or columns), and not along k."""
        c = self.contraction
        if (c.make_a if name == "row" else c.make_b) is not None:
            return False
        return c.a.strides[1] == 1 if name == "row" and not c.window else c.b.strides[2] == 1 if name == "col" else False

    def _outsides(self) -> str:
        """What comes before the walk over k; the walk."""
        for name, made in self.template.made.items():
            self._outside(name, made)
        return f"start in range({self.span(self.contraction.k, self.blocks.k)}, {{block}})"

    def _step(self, whole: bool = False) -> None:
        """A block of both operands as ``u`` and ``v``; of what was cut before, unless ``whole``, the pieces."""
        c = self.contraction
        if c.window:
            return (all_taps if c.few else tap)(self, whole)
        self.line(f"k = start + tl.arange(0, {self.deep})")
        for tile, name, o, edge in (("u", "lhs", c.a, "row"), ("v", "rhs", c.b, "col")):
            left = (name == "lhs") != self._turned
            edge, k = (f"{edge}[:, None]", "k[None, :]") if left else (f"{edge}[None, :]", "k[:, None]")
            if name in self.template.made:
                self._make(tile, name, o, k)
            else:
                self.load_tile(tile, name, o, (edge, k) if name == "lhs" else (k, edge), self.beyond(edge, k), whole)

    def load_tile(self, tile: str, name: str, o: Operand, place: tuple[str, str], mask: str, whole: bool, more: str = "") -> None:
        """The statements that load a tile of an operand, or its pieces."""
        parts = [(tile, name, o)] if whole or self.pieces is None else self.pieces.lying(tile, name, o)
        for value, pointer, lies in parts:
            self.line(f"{value} = tl.load({self._matrix(pointer, lies, place)[:-1]}{more}){mask})")

    def _outside(self, name: str, made: Made) -> None:
        """What of an operand that is made here does not change along k."""
        axes, starts = self.walked[name], {"z": "z", "edge": "row" if name == "lhs" else "col"}
        with self._over({n: a for n, a in axes.items() if n != f"{name}k"}):
            for a in self.axes.values():
                self.line(f"{a.name} = {starts[a.name.removeprefix(name)]}{a.place}")
                self.variables(a)
            self.compute([id for id in self.closure([made.value.id]) if f"{name}k" not in self.spread[id]])

    def _make(self, tile: str, name: str, o: Operand, k: str) -> None:
        """A tile of an operand, made of what its loops read; what lies beyond k is 0."""
        made = self.template.made[name]
        edge = f"{k} < {self.contraction.k}" if self.contraction.k % self.blocks.k else ""
        with self._over(self.walked[name]):
            along = self.axes.get(f"{name}k")
            if along is not None:
                self.line(f"{along.name} = {k}", *[f"{along.name}mask = {edge}"] * along.masked)
                self.variables(along)
            self.compute([made.value.id])
            value = self.in_memory(made.value, o.dtype)
        if len(self.spread[made.value.id] - {f"{name}z"}) < 2:
            sides = ["MBLOCK" if name == "lhs" else "NBLOCK", self.deep][::1 if (name == "lhs") != self._turned else -1]
            value = f"tl.broadcast_to({value}, [{', '.join(sides)}])"
        self.line(f"{tile} = tl.where({edge}, {value}, 0.0)" if edge else f"{tile} = {bare(value)}")

    @contextmanager
    def _over(self, axes: dict[str, Axis]) -> Iterator[None]:
        """Loads inside are over ``axes``."""
        of_result, self.axes = self.axes, axes
        yield
        self.axes = of_result

    def span(self, length: int, step: int) -> str:
        """The part of 0 to ``length`` that this program walks, in pieces of ``step``."""
        return f"0, {length}"

    def beyond(self, edge: str, k: str) -> str:
        """The further arguments of a load: what lies beyond the operand is 0."""
        c, name = self.contraction, edge[:3]
        parts = [f"({k} < {c.walked})"] if c.walked % self.blocks.k else []
        if self._sticks_out(name) and self._together(name):
            parts.append(f"({edge} < {c.sizes[1 if name == 'row' else 2]})")
        return f", {bare(' & '.join(parts))}, 0.0" if parts else ""

    def _matrix(self, name: str, o: Operand, place: tuple[str, str]) -> str:
        """Pointers to a tile of an operand."""
        terms = [("z", o.strides[0] if self.grid[1] > 1 else 0), (place[0], o.strides[1]), (place[1], o.strides[2])]
        # a dimension that the operand does not walk still has to be in the tile's shape
        flat = [f"0*{p}" for p, s in terms[1:] if s == 0]
        return f"{name} + ({' + '.join([sum_of(terms, o.offset), *flat])})"

    def _dot(self) -> None:
        if self.pieces is not None:
            self.line(*self.pieces.multiply(*self._sides("u", "v")))
            return
        precision = ""
        if self.contraction.a.dtype is torch.float32:
            precision = f', input_precision="{"tf32" if self.template.tf32 else "ieee"}"'
        self.line(f"acc = tl.dot(u, v, acc{precision})")

    # ------------------------------------------------------------ loops
    def define(self, id: int) -> None:
        """A product goes into the loops as it was added up: what a library rounds, for it must store it, is not rounded here."""
        i = self.by_id[id]
        if i.op == "product":
            self.scopes[-1][id] = "acc"
        elif i.op == "to_dtype" and i.args[0].id in self.exact and i.dtype in HALF:
            self.scopes[-1][id] = self.text(i.args[0].id)
        else:
            super().define(id)

    def _unrounded(self) -> set[int]:
        """Values of the product before it takes its dtype."""
        found: set[int] = set()
        for i in self.plan.instrs:
            if i.op == "product" or i.dtype is torch.float32 and i.op in ("mul", "add") and any(u in found for u in uses(i)):
                found.add(i.id)
        return found if self.contraction.result.dtype in HALF else set()
