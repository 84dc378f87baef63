"""Attention as a loop nest: softmax(scores) @ values that somebody accumulates, then ordinary loops over its elements.

A call of a fused attention kernel is ``out[b, h, m, n] = product[b, h, m, n]``, where loading ``product`` means what a template holds in registers
after a walk over the keys. What happens to a score before the softmax (scale, mask, bias) is a loop body as well, over (b, h, m, key): it loads
``scores``, the products of queries and keys, and masks and biases from memory as they lie.
Upstream: ``torch._inductor.kernel.flex_attention`` (``score_mod``), for calls instead of a function of the user's.
"""
from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Iterator, Mapping, Sequence

import torch

from ..ir import Buffer, Extern, Instr, Layout, Ref, TensorRef
from ..ir.buffers import tensor_refs
from .affine import Index
from .contraction import Operand, known, seen
from .nodes import Access, Node, list_accesses

aten = torch.ops.aten
DTYPES = (torch.bfloat16, torch.float16)
KEY = "r0"
"""The loop variable over keys."""
LOG2E = 1 / math.log(2)
DEEPEST = 256
"""Elements of a head that a program can hold for a block of queries."""
CALLS = frozenset((
    aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
))
"""Kernels whose queries that see no key get 0 (the softmax written out gives NaN; whoever wants that selects it afterwards)."""


@dataclass(frozen=True)
class Attention:
    """``product[b, h, m, n] = sum over keys r of softmax_r(score[b, h, m, r]) * value[b, g, r, n]``, with key and value heads ``g = h // group``.

    ``query``, ``key`` and ``value``: strides of (batch, head, place, element). ``causal``: query m sees the keys up to m. ``bias``: added to
    scores, or where it is boolean the scores that count; of any shape that expands to (batch, heads, queries, keys).
    """

    extern: Extern
    query: Operand
    key: Operand
    value: Operand
    shape: tuple[int, int, int, int]
    """Batch, heads, queries, elements of a value."""
    keys: int
    depth: int
    """Elements of a query."""
    group: int
    scale: float
    causal: bool
    bias: TensorRef | None

    @property
    def made(self) -> str:
        """The buffer that the call makes."""
        return self.extern.outputs[0].name

    @property
    def product(self) -> str:
        """The name by which loops read what was accumulated."""
        return f"{self.made}.product"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Of batch and heads, rows and columns of the result."""
        b, h, m, n = self.shape
        return b * h, m, n

    @property
    def result(self) -> Layout:
        return self.extern.outputs[0].layout

    @property
    def operands(self) -> frozenset[str]:
        """Buffers that programs read all along."""
        return frozenset((self.query.buffer, self.key.buffer, self.value.buffer, *([self.bias.buffer] if self.bias else [])))

    @property
    def folds(self) -> bool:
        """Whether the scale may wait for the exponential: the largest score scaled is the largest of the scaled ones, and does not overflow."""
        return self.bias is None and 0 < self.scale * LOG2E <= 1

    def node(self, buffers: Mapping[str, Buffer], fresh: Iterator[int]) -> Node:
        """The loop nest that reads the product and stores the result. Its first accesses say which variables make batch and heads together, rows,
        columns, then batch and heads each."""
        vars = [f"p{next(fresh)}" if n > 1 else None for n in self.shape]
        sizes = {v: n for v, n in zip(vars, self.shape) if v is not None}
        b, h, m, n = place = [Index() if v is None else Index.var(v) for v in vars]
        index = _walk(self.result.strides, place, self.result.offset)
        dtype = self.result.dtype
        instrs = (Instr(0, "load", (self.product, index), torch.float32), Instr(1, "to_dtype", (Ref(0),), dtype),
                  Instr(2, "store", (self.made, index, Ref(1), None), None))
        node = Node(self.extern, sizes, frozenset(), instrs)
        marks = [Access("", p, "value", 0) for p in (b.scale(self.shape[1]) + h, m, n, b, h)]
        node.accesses = marks + list(list_accesses(instrs, lambda name: 0 if name == self.product else dtype.itemsize))
        return node

    def scores(self, buffers: Mapping[str, Buffer], place: Sequence[Index], first: int) -> list[Instr]:
        """What a score becomes before the softmax, at ``place`` (batch, head, query), ids from ``first`` on; the last value is the score."""
        ids = itertools.count(first)
        out: list[Instr] = []

        def emit(op: str, *args: Any, dtype: torch.dtype = torch.float32) -> Ref:
            out.append(Instr(next(ids), op, args, dtype))
            return Ref(out[-1].id)

        key = Index.var(KEY)
        score = emit("scores", place[2] + key)
        if not self.folds and self.scale != 1:
            score = emit("mul", score, emit("constant", float(self.scale)))
        if self.bias is not None:
            layout = seen(self.bias, buffers)
            strides = [0 if n == 1 else s for n, s in zip((1, 1, 1, *layout.sizes)[-4:], (0, 0, 0, *layout.strides)[-4:])]
            bias = emit("load", self.bias.buffer, _walk(strides, [*place, key], layout.offset), dtype=layout.dtype)
            if layout.dtype is torch.bool:
                emit("where", bias, score, emit("constant", -math.inf))
            else:
                emit("add", score, bias if layout.dtype is torch.float32 else emit("to_dtype", bias))
        return out


def attention_of(step: Extern, buffers: Mapping[str, Buffer]) -> Attention | None:
    """``step`` as attention; None where it is none, or none that the template computes (dropout, sizes that vary, float32, statistics for a backward)."""
    if step.target not in CALLS or not _alone(step) or not all(known(seen(r, buffers)) for r in tensor_refs((step.args, step.kwargs))):
        return None
    given = _arguments(step)
    q, k, v = (seen(given[name], buffers) for name in ("query", "key", "value"))
    bias = given.get("attn_bias", given.get("attn_mask"))
    shape = (*q.sizes[:3], v.sizes[3]) if len(q.sizes) == len(k.sizes) == len(v.sizes) == 4 else (0,)
    if 0 in (*shape, *k.sizes) or given["dropout_p"] or given.get("return_debug_mask"):
        return None
    same = q.dtype == k.dtype == v.dtype == step.outputs[0].layout.dtype and q.dtype in DTYPES
    fits = k.sizes[0] == v.sizes[0] == shape[0] and k.sizes[1:3] == v.sizes[1:3] and k.sizes[3] == q.sizes[3] and shape[1] % k.sizes[1] == 0
    if not same or not fits or max(q.sizes[3], v.sizes[3]) > DEEPEST or not (bias is None or _fits(seen(bias, buffers), (*shape[:3], k.sizes[2]))):
        return None
    scale = given.get("scale")
    heads = [Operand(given[name].buffer, x.dtype, tuple(0 if n == 1 else s for n, s in zip(x.sizes, x.strides)), x.offset)
             for name, x in (("query", q), ("key", k), ("value", v))]
    return Attention(step, *heads, shape, k.sizes[2], q.sizes[3], shape[1] // k.sizes[1], q.sizes[3] ** -0.5 if scale is None else scale,
                     bool(given.get("is_causal")), bias)


def _alone(step: Extern) -> bool:
    """Whether nobody reads more than the result, of sizes that are known."""
    return bool(step.outputs) and step.outputs[0] is not None and not any(step.outputs[1:]) and known(step.outputs[0].layout)


def _arguments(step: Extern) -> dict[str, Any]:
    """The call's arguments by name."""
    schema = step.target._schema.arguments
    return {a.name: a.default_value for a in schema} | {a.name: v for a, v in zip(schema, step.args)} | step.kwargs


def _fits(bias: Layout, scores: Sequence[int]) -> bool:
    sizes = (1, 1, 1, 1, *bias.sizes)[-4:]
    return len(bias.sizes) <= 4 and (bias.dtype is torch.bool or bias.dtype.is_floating_point and bias.dtype is not torch.float64) and all(
        n in (1, s) for n, s in zip(sizes, scores))


def _walk(strides: Sequence[Any], place: Sequence[Index], start: Any) -> Index:
    return sum((p.scale(int(s)) for p, s in zip(place, strides)), Index(int(start)))
