"""Elementwise prims and creation: closures that are inlined where they are read.

Upstream: the pointwise section of ``torch._inductor.lowering``.
"""
from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Sequence

import sympy
import torch

from ..ops import BINARY, UNARY, ops
from .registry import lowering, lowerings
from .tensors import FREE, NUMBERS, Index, Lazy, Tensor, join

CHEAP = frozenset("abs neg sign signbit isnan isinf bitwise_not logical_not relu add sub mul maximum minimum fmax fmin eq ne lt le gt ge "
                  "bitwise_and bitwise_or bitwise_xor shift_left shift_right copysign logical_and logical_or floor ceil round trunc".split())
"""Operations that cost no more than reading their result back from memory."""


def operand(x: Any, index: Index, dtype: torch.dtype) -> Any:
    """The value of a tensor operand at ``index``, or a number (``g.operand`` of one) in the tensors' ``dtype``."""
    if isinstance(x, sympy.Symbol):
        return ops.to_dtype(ops.scalar(x, torch.int64 if x.is_integer else torch.float64), dtype)
    return ops.constant(x, dtype) if isinstance(x, NUMBERS) else x.load(index)


def _elementwise(name: str, g: Any, *xs: Any) -> Lazy:
    xs = tuple(map(g.operand, xs))
    tensors = [x for x in xs if not isinstance(x, NUMBERS)]
    op, dtype = getattr(ops, name), tensors[0].dtype
    if len(xs) == 1:
        inner: Callable[[Index], Any] = lambda index: op(tensors[0].load(index))
    else:
        a, b = xs
        inner = lambda index: op(operand(a, index, dtype), operand(b, index, dtype))
    return g.lazy(inner, join(*[t.cost for t in tensors], heavy=name not in CHEAP))


lowerings.update({name: partial(_elementwise, name) for name in UNARY + BINARY})


@lowering("isfinite")
def _isfinite(g: Any, x: Tensor) -> Lazy:
    if not x.dtype.is_floating_point:
        return _constant(g, True)
    return g.lazy(lambda index: ops.lt(ops.abs(x.load(index)), ops.constant(math.inf, x.dtype)), join(x.cost, ops=2))


@lowering("where")
def _where(g: Any, cond: Tensor, a: Any, b: Any) -> Lazy:
    dtype, a, b = g.dtype, g.operand(a), g.operand(b)
    return g.lazy(lambda index: ops.where(cond.load(index), operand(a, index, dtype), operand(b, index, dtype)),
                  join(*[t.cost for t in (cond, a, b) if not isinstance(t, NUMBERS)]))


@lowering("valid")
def _valid(g: Any, x: Tensor, ok: Tensor) -> Lazy:
    return g.lazy(lambda index: ops.valid(x.load(index), ok.load(index)), join(x.cost, ok.cost))


@lowering("fma")
def _fma(g: Any, a: Tensor, b: Tensor, c: Tensor) -> Lazy:
    return g.lazy(lambda index: ops.add(ops.mul(a.load(index), b.load(index)), c.load(index)), join(a.cost, b.cost, c.cost, ops=2))


@lowering("convert")
def _convert(g: Any, x: Tensor, dtype: torch.dtype) -> Lazy:
    return g.lazy(lambda index: ops.to_dtype(x.load(index), dtype), join(x.cost))


@lowering("bitcast")
def _bitcast(g: Any, x: Tensor, dtype: torch.dtype) -> Lazy:
    return g.lazy(lambda index: ops.bitcast(ops.to_dtype(x.load(index), x.dtype), dtype), join(x.cost))


@lowering("random_bits")
def _random_bits(g: Any, seed: Tensor, draw: int, shape: Sequence[Any]) -> Lazy:
    def inner(index: Index) -> Any:
        position: Any = sympy.Integer(0)
        for i, n in zip(index, shape):
            position = position * n + i
        return ops.random_bits(seed.load([]), ops.index_expr(sympy.expand(position), torch.int64), draw)
    return g.lazy(inner, join(seed.cost, heavy=True))


def _constant(g: Any, value: bool | int | float) -> Lazy:
    dtype, value = g.dtype, g.operand(value)
    return g.lazy(lambda index: operand(value, index, dtype), FREE)


@lowering("full")
def _full(g: Any, shape: Sequence[int], value: bool | int | float, dtype: torch.dtype, device: Any) -> Lazy:
    return _constant(g, value)


@lowering("iota")
def _iota(g: Any, length: int, start: int | float, step: int | float, dtype: torch.dtype, device: Any) -> Lazy:
    if all(isinstance(x, int) or isinstance(x, sympy.Expr) and x.is_integer for x in (start, step)):
        def inner(index: Index) -> Any:
            return ops.to_dtype(ops.index_expr(index[0] * step + start, torch.int64), dtype)
    else:  # eager computes in double and rounds once
        first, by = g.operand(start), g.operand(step)

        def inner(index: Index) -> Any:
            i = ops.to_dtype(ops.index_expr(index[0], torch.int64), torch.float64)
            return ops.to_dtype(ops.add(ops.mul(i, operand(by, index, torch.float64)), operand(first, index, torch.float64)), dtype)
    return g.lazy(inner, FREE)
