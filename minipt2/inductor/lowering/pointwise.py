"""Elementwise prims and creation: closures that are inlined where they are read.

Upstream: the pointwise section of ``torch._inductor.lowering``.
"""
from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Sequence

import sympy
import torch

from ...prims.promote import LOW_PRECISION, opmath_dtype
from ..ops import BINARY, UNARY, ops
from .registry import lowering, lowerings
from .tensors import FREE, NUMBERS, Index, Lazy, Tensor, join

CHEAP = frozenset("abs neg sign signbit isnan isinf bitwise_not logical_not relu add sub mul maximum minimum fmax fmin eq ne lt le gt ge "
                  "bitwise_and bitwise_or bitwise_xor shift_left shift_right copysign logical_and logical_or floor ceil round trunc".split())
"""Operations that cost no more than reading their result back from memory."""


AS_IT_IS = {"cpu": frozenset(("mul", "div", "floordiv", "truncdiv")), "cuda": frozenset(("mul", "div", "floordiv", "truncdiv", "add", "sub"))}
"""Operators whose eager kernel on a device takes a number beside half-precision tensors in float32. All others round it to half precision first.
(ATen: ``BinaryOpsKernel.cpp``; ``opmath_gpu_kernel_with_scalars`` with a functor on ``opmath_t``, ``CUDAFunctorOnSelf_add``.)"""
FIRST_TOO = frozenset(("mul", "add", "sub"))
"""… also where the number stands first."""


def operand(x: Any, index: Index, dtype: torch.dtype, rounded: bool = True) -> Any:
    """The value of a tensor operand at ``index``, or a number (``g.operand`` of one) in the tensors' ``dtype``; of a half type ``rounded`` to it."""
    if isinstance(x, sympy.Symbol):
        held = dtype if rounded else opmath_dtype(dtype)
        return ops.to_dtype(ops.scalar(x, torch.int64 if x.is_integer else torch.float64), held)
    if not isinstance(x, NUMBERS):
        return x.load(index)
    return ops.constant(in_dtype(x, dtype) if rounded else x, dtype)


def in_dtype(x: bool | int | float, dtype: torch.dtype) -> bool | int | float:
    """The number that an element of ``dtype`` holds for ``x``; constants of half types are float32."""
    return torch.tensor(x, dtype=dtype).item() if dtype in LOW_PRECISION else x


def _elementwise(name: str, g: Any, *xs: Any) -> Lazy:
    xs = tuple(map(g.operand, xs))
    tensors = [x for x in xs if not isinstance(x, NUMBERS)]
    op, dtype = getattr(ops, name), tensors[0].dtype
    if len(xs) == 1:
        inner: Callable[[Index], Any] = lambda index: op(tensors[0].load(index))
    else:
        inner = _binary(name, *xs, tensors[0])
    return g.lazy(inner, join(*[t.cost for t in tensors], heavy=name not in CHEAP))


def _binary(name: str, a: Any, b: Any, tensor: Tensor) -> Callable[[Index], Any]:
    """``name`` of two operands, numbers among them as eager's kernel on the device of ``tensor`` takes them."""
    op, dtype, host = getattr(ops, name), tensor.dtype, tensor.device.type == "cpu"
    rounded = name not in AS_IT_IS["cpu" if host else "cuda"]
    if name == "div" and not host and isinstance(b, (bool, int, float)) and (inverse := reciprocal(b, dtype)) is not None:
        return lambda index: ops.mul(operand(a, index, dtype), ops.constant(inverse, dtype))
    if isinstance(a, sympy.Symbol) and not rounded and name in FIRST_TOO:  # an operation's dtype is that of its first operand
        if name == "sub":
            return lambda index: ops.add(ops.neg(b.load(index)), operand(a, index, dtype, False))
        a, b = b, a
    return lambda index: op(operand(a, index, dtype, rounded or name not in FIRST_TOO), operand(b, index, dtype, rounded))


def reciprocal(number: bool | int | float, dtype: torch.dtype) -> float | None:
    """What eager on a GPU multiplies by where it divides by ``number``; None if that overflows."""
    divisor = torch.tensor(number, dtype=opmath_dtype(dtype))
    inverse = divisor.reciprocal()
    return None if inverse.isinf() and divisor != 0 else inverse.item()


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
