"""Attention and the loops after it as one Triton program: a block of queries walks the keys with the softmax's maximum and sum in registers.

For each block of keys the program takes its scores (``tl.dot``, float32), lets the loops of the score work on them (scale, mask, bias: statements of
``triton_values.Body`` over the axes m and r), and brings what it has accumulated to the new maximum. Scores are masked only in the blocks that
the diagonal or the end of the keys cuts through; blocks behind a causal diagonal are not read. A query that sees no key gets 0.
The method: FlashAttention (Dao et al., 2022; 2023). Upstream: ``torch._inductor.kernel.flex_attention``'s template.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Sequence

from ..scheduler.attention import KEY, LOG2E, Attention
from ..scheduler.kernels import Schedule
from ..scheduler.nodes import walk
from ..scheduler.templates import Template
from .triton_blocks import power
from .triton_ops import MEMORY
from .triton_template import TemplateWriter
from .triton_template_plan import TemplatePlan, canonical, renamed, result_axes
from .triton_values import Axis

INFINITY = 'float("-inf")'


@dataclass(frozen=True)
class AttentionTile:
    """``m`` queries in one program, ``r`` keys at a time."""

    m: int
    r: int
    warps: int = 4
    stages: int = 2

    def __str__(self) -> str:
        return f"{self.m} queries × {self.r} keys, {self.warps} warps, {self.stages} stages"


@dataclass
class Rest(Axis):
    """What is left of the keys after the last whole block, in a block of its own."""

    @property
    def constant(self) -> str:
        return "TBLOCK"


@dataclass
class AttentionPlan(TemplatePlan):
    """``score``: the value that the loops of a score end with."""

    score: int

    @property
    def attention(self) -> Attention:
        return self.contraction


def attention_plan(step: Template, schedule: Schedule) -> AttentionPlan:
    """``step`` with its loop variables and buffers renamed; the loops of the score come first."""
    a: Attention = step.contraction
    names, axes, after = canonical(step)
    _, m, _, b, h = (mark.index for mark in step.group.nodes[0].accesses[:5])
    scores = a.scores(schedule.buffers, (b, h, m), 1 + max(i.id for i in walk(after)))
    read = [(a.query, "query"), (a.key, "key"), (a.value, "value")]
    loops, operands = renamed(step, schedule, [*scores, *after], names, axes, read, prod(a.shape), [(KEY, a.keys)])
    return AttentionPlan(a, loops, axes, operands, False, scores[-1].id)


class AttentionWriter(TemplateWriter):
    """The statements of an attention's function."""

    def __init__(self, plan: AttentionPlan, tile: AttentionTile):
        super().__init__(plan, tile)
        self.attention, self.score = plan.attention, plan.score
        self.plan.in_row = {i.id for i in self.plan.instrs if "r" in self.spread[i.id]}
        self.deep = max(power(self.attention.depth), 16)
        self.wide = ".to(tl.int64)" if self.plan.wide else ""

    def _axes(self, plan: AttentionPlan, tile: AttentionTile) -> list[Axis]:
        a = plan.attention
        return [*result_axes(plan, tile.m, max(power(a.shape[3]), 16)), Axis("r", [(KEY, a.keys)], tile.r, "[None, :]", looped=True)]

    def write(self) -> "AttentionWriter":
        self.line(*[f"{name}BLOCK: tl.constexpr = {n}" for name, n in zip("MNRD", (self.blocks.m, self.axes["n"].block, self.blocks.r, self.deep))])
        if not self.attention.causal and self.attention.keys % self.blocks.r:
            self.line(f"TBLOCK: tl.constexpr = {rest(self.attention.keys, self.blocks.r)}")
        self._place()
        self._begin()
        self._walk()
        self.line("acc = acc / tl.where(total == 0.0, 1.0, total)[:, None]")
        self._finish()
        return self

    # ------------------------------------------------------------ which queries
    def _place(self) -> None:
        """Block ``pm`` of queries of head ``z``; under a causal mask the longest walks go first."""
        a, down = self.attention, self.tiles[0]
        self.line(f"z = tl.program_id(1){self.wide}" if self.grid[1] > 1 else "z = 0")
        pid = "0" if down == 1 else f"{down - 1} - tl.program_id(0)" if a.causal else "tl.program_id(0)"
        self.line(f"pm = {pid}")
        if "z" in self.axes:
            self.variables(self.axes["z"])
        self.axis(self.axes["m"], "pm" if down > 1 else "0")
        self.axis(self.axes["n"], "0")
        self.line(f"d = tl.arange(0, DBLOCK){self.wide}")
        heads = a.shape[1]
        self.line("batch = z" if heads == 1 else f"batch = z // {heads}", "head = 0" if heads == 1 else f"head = z % {heads}")

    def _begin(self) -> None:
        a = self.attention
        for name, o, head in (("query", a.query, "head"), ("key", a.key, self._kv), ("value", a.value, self._kv)):
            self.line(f"{name} += {_sum([('batch', o.strides[0]), (head, o.strides[1])], o.offset)}")
        self.line(f"q = tl.load(query + ({_sum([('m', a.query.strides[2]), ('d[None, :]', a.query.strides[3])], 0)})"
                  + self._others("mmask" * self.axes["m"].masked, self._depth("d[None, :]")) + ")")
        self.line(f"top = tl.full([MBLOCK], {INFINITY}, tl.float32)", "total = tl.zeros([MBLOCK], tl.float32)",
                  "acc = tl.zeros([MBLOCK, NBLOCK], tl.float32)")
        self.compute([self.score], along_row=False)

    @property
    def _kv(self) -> str:
        """The head of keys and values that belongs to ``head``."""
        return "head" if self.attention.group == 1 else f"head // {self.attention.group}"

    def _depth(self, place: str) -> str:
        return f"{place} < {self.attention.depth}" if self.attention.depth != self.deep else ""

    def _others(self, *parts: str) -> str:
        """The further arguments of a load: what lies beyond the operand is 0."""
        return f", {_all(parts)}, 0.0" if any(parts) else ""

    # ------------------------------------------------------------ the keys
    def _walk(self) -> None:
        """Blocks that all queries see whole, then those that the diagonal or the end of the keys cuts through."""
        a, r, all_of_it = self.attention, self.blocks.r, self.axes["r"]
        whole = a.keys // r * r
        if a.causal:
            seen = "pm * MBLOCK" if self.blocks.m % r == 0 else "(pm * MBLOCK + 1) // RBLOCK * RBLOCK"
            # keys may end before the queries do
            self.line(f"whole = {seen if whole >= self.tiles[0] * self.blocks.m else f'tl.minimum({seen}, {whole})'}",
                      f"end = tl.minimum(pm * MBLOCK + MBLOCK, {a.keys})")
            self._blocks("0", "whole", replace(all_of_it, vars=[(KEY, r)]))
            self._blocks("whole", "end", all_of_it, ["r <= m"])
            return
        if whole:
            self._blocks("0", str(whole), replace(all_of_it, vars=[(KEY, r)]))
        if whole < a.keys:
            self._blocks(str(whole), str(a.keys), Rest("r", all_of_it.vars, rest(a.keys, r), all_of_it.place, looped=True, ragged=True))

    def _blocks(self, begin: str, end: str, keys: Axis, counts: Sequence[str] = ()) -> None:
        """Blocks along ``keys`` from ``begin`` to ``end``. ``counts``: which scores count."""
        a, block, edge = self.attention, keys.constant, keys.masked
        self.axes["r"] = keys
        with self.open(f"for start in range({begin}, {end}, {block}):"):
            self.axis(keys, "start")
            self.line(f"k = tl.load(key + ({_sum([('d[:, None]', a.key.strides[3]), ('r', a.key.strides[2])], 0)})"
                      + self._others("rmask" * edge, self._depth("d[:, None]")) + ")")
            self.line(f"score = tl.dot(q, k, tl.zeros([MBLOCK, {block}], tl.float32))")
            self.compute([self.score])
            self._softmax(self.text(self.score), [*counts, *["rmask"] * edge])
            self.line(f"s = start + tl.arange(0, {block})[:, None]{self.wide}")
            self.line(f"v = tl.load(value + ({_sum([('s', a.value.strides[2]), ('n', a.value.strides[3])], 0)})"
                      + self._others(f"s < {a.keys}" * edge, "nmask" * self.axes["n"].masked) + ")")
            self.line(f"acc = tl.dot(weights.to({MEMORY[a.value.dtype]}), v, acc * fade[:, None])", "top = best")

    def _softmax(self, score: str, counts: Sequence[str]) -> None:
        """The block's ``weights``, and by what the earlier ones ``fade``: exponentials of base 2 above the largest score so far. Where the scale
        was left for here, ``top`` is scaled already: one multiplication and addition for each score."""
        if counts:
            self.line(f"score = tl.where({_all(counts)}, {score}, {INFINITY})")
            score = "score"
        by = f" * {self.attention.scale * LOG2E!r}" if self.attention.folds else ""
        self.line(f"best = tl.maximum(top, tl.max({score}, 1){by})",
                  f"shift = tl.where(best == {INFINITY}, 0.0, best)",
                  f"weights = tl.exp2({score}{by} - shift[:, None])" if by else f"weights = tl.exp2(({score} - shift[:, None]) * {LOG2E!r})",
                  "fade = tl.exp2(top - shift)" if by else f"fade = tl.exp2((top - shift) * {LOG2E!r})",
                  "total = total * fade + tl.sum(weights, 1)")

    def define(self, id: int) -> None:
        if self.by_id[id].op == "scores":
            self.scopes[-1][id] = "score"
        else:
            super().define(id)


def rest(keys: int, block: int) -> int:
    """Of the block for the keys after the last whole one of ``block``; a product takes 16 at least."""
    return max(power(keys % block), 16)


def _all(conditions: Sequence[str]) -> str:
    """The conditions that there are, together."""
    parts = [c for c in conditions if c]
    return parts[0] if len(parts) == 1 else " & ".join(f"({c})" if " " in c else c for c in parts)


def _sum(terms: list[tuple[str, int]], start: int) -> str:
    """``terms`` with their strides; a dimension of a block that is not walked still has to be in its shape."""
    parts = [name if s == 1 else f"{name} * {s}" for name, s in terms if s or name not in ("batch", "head")]
    return " + ".join(parts + [str(start)] * (start != 0 or not parts))
