"""Matrix products and convolutions: one prim each, after shapes are brought to what it takes. Attention kernels stay ATen.

Upstream: ``torch._inductor.kernel`` (which ops are templates or extern calls), ``torch._decomp`` (``mv``, ``dot``, ``addmv``).
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import broadcast_shapes, numel
from ..promote import computation_dtype, opmath_dtype
from .registry import NoRule, broadcast_to, number, opmath, rule

Ints = Sequence[int]


@rule("mm")
def mm(a: Value, b: Value) -> Value:
    return p.mm(a, b)


@rule("bmm")
def bmm(a: Value, b: Value) -> Value:
    return p.bmm(a, b)


@rule("addmm")
def addmm(bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return p.addmm(bias, a, b, beta, alpha)


@rule("baddbmm")
def baddbmm(bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return p.baddbmm(bias, a, b, beta, alpha)


@rule("addbmm")
def addbmm(bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """The batch joins the inner dimension: one matrix product."""
    n, m, k = a.shape
    left = p.reshape(p.permute(a, (1, 0, 2)), (m, n * k))
    return p.addmm(bias, left, p.reshape(b, (n * k, b.shape[2])), beta, alpha)


@rule("mv")
def mv(a: Value, v: Value) -> Value:
    return p.reshape(p.mm(a, p.reshape(v, (*v.shape, 1))), (a.shape[0],))


@rule("dot", "vdot")
def dot(a: Value, b: Value) -> Value:
    return p.reshape(p.mm(p.reshape(a, (1, *a.shape)), p.reshape(b, (*b.shape, 1))), ())


@rule("addmv")
def addmv(bias: Value, a: Value, v: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _blend(bias, mv(a, v), beta, alpha)


def _blend(bias: Value, product: Value, beta: Any, alpha: Any) -> Value:
    """beta * bias + alpha * product in the opmath dtype; bias is not read when beta is 0."""
    dtype, wide = product.dtype, opmath(product)
    result = wide * number(alpha, wide.dtype)
    if beta != 0:
        result = result + broadcast_to(p.convert(bias, wide.dtype), product.shape) * number(beta, wide.dtype)
    return p.convert(result, dtype)


@rule("addr")
def addr(x: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    dtype = computation_dtype(x, a, b)
    if dtype is torch.bool:
        raise NoRule("addr of bool")
    shape = (a.shape[0], b.shape[0])
    wide = opmath_dtype(dtype)
    outer = p.broadcast_in_dim(p.convert(a, wide), shape, (0,)) * p.broadcast_in_dim(p.convert(b, wide), shape, (1,))
    return p.convert(_blend(x, outer, beta, alpha), dtype)


@rule("linear")
def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x @ weight.T + bias over the last dimension."""
    if weight.ndim != 2:
        raise NoRule("linear with a vector as weight")
    rows, transposed = p.reshape(x, (numel(x.shape[:-1]), x.shape[-1])), p.permute(weight, (1, 0))
    out = p.mm(rows, transposed) if bias is None else p.addmm(bias, rows, transposed, 1, 1)
    return p.reshape(out, (*x.shape[:-1], weight.shape[0]))


@rule("matmul")
def matmul(a: Value, b: Value) -> Value:
    if a.ndim == 1 and b.ndim == 1:
        return dot(a, b)
    if b.ndim <= 2 and a.ndim >= 2:
        b2 = b if b.ndim == 2 else p.reshape(b, (*b.shape, 1))
        out = p.mm(p.reshape(a, (numel(a.shape[:-1]), a.shape[-1])), b2)
        return p.reshape(out, a.shape[:-1] + (b.shape[1:] if b.ndim == 2 else ()))
    if a.ndim == 1:
        out = matmul(p.reshape(a, (1, *a.shape)), b)
        return p.reshape(out, out.shape[:-2] + out.shape[-1:])
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    n = numel(batch)
    left = p.reshape(broadcast_to(a, (*batch, *a.shape[-2:])), (n, *a.shape[-2:]))
    right = p.reshape(broadcast_to(b, (*batch, *b.shape[-2:])), (n, *b.shape[-2:]))
    return p.reshape(p.bmm(left, right), (*batch, a.shape[-2], b.shape[-1]))


@rule("convolution", "_convolution", "convolution_overrideable")
def convolution(x: Value, weight: Value, bias: Value | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
                output_padding: Ints, groups: int, *flags: bool) -> Value:
    return p.convolution(x, weight, bias, tuple(stride), tuple(padding), tuple(dilation), transposed, tuple(output_padding), groups)


@rule("convolution_backward")
def convolution_backward(grad: Value, x: Value, weight: Value, bias_sizes: Ints | None, stride: Ints, padding: Ints, dilation: Ints,
                         transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool]) -> tuple[Any, Any, Any]:
    sizes = None if bias_sizes is None else tuple(bias_sizes)
    return p.convolution_backward(grad, x, weight, sizes, tuple(stride), tuple(padding), tuple(dilation), transposed,
                                  tuple(output_padding), groups, tuple(output_mask))
