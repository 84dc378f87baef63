"""Gradients of resizing: every source element gets back what the elements it was blended into received.

Along one dimension resizing is a product with a matrix of weights, most of them 0; the gradient is the product with its transpose.
Upstream: ``torch._decomp`` has none; ATen's ``UpSample*.cpp``.
"""
from __future__ import annotations

from typing import Callable, Sequence

from .. import ops as p
from ..core import Value
from ..meta import numel
from .registry import NoRule, opmath, rule
from .resizing import Scale, cubic_taps, linear_taps, nearest_taps

Ints = Sequence[int]
Taps = list[tuple[Value, Value | None]]


def _transpose_along(grad: Value, dim: int, size: int, taps: Taps) -> Value:
    """Sum over taps of weight * grad, added at the tap's source position along ``dim``."""
    shape = (*grad.shape[:dim], size, *grad.shape[dim + 1:])
    total = p.full(shape, 0.0, grad.dtype, grad.device)
    for at, weight in taps:
        share = grad if weight is None else grad * p.broadcast_in_dim(weight, grad.shape, (dim,))
        total = p.index_put(total, (*[None] * dim, at), share, True)
    return total


def _backward(grad: Value, output_size: Ints, input_size: Ints, scales: Sequence[Scale], taps: Callable[..., Taps]) -> Value:
    n = len(output_size)
    if grad.numel() == 0 or numel(input_size) == 0:
        raise NoRule("resizing of nothing")
    out, wide = grad.dtype, opmath(grad)
    for i, (size, wanted, scale) in enumerate(zip(input_size[2:], output_size, scales or [None] * n)):
        wide = _transpose_along(wide, 2 + i, size, taps(size, wanted, scale, wide))
    return p.convert(wide, out)


@rule("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward", library=True)
def upsample_linear_backward(grad: Value, output_size: Ints, input_size: Ints, align_corners: bool, *scales: Scale) -> Value:
    return _backward(grad, output_size, input_size, scales, lambda size, out, scale, x: linear_taps(size, out, align_corners, scale, x))


@rule("upsample_bicubic2d_backward", library=True)
def upsample_bicubic_backward(grad: Value, output_size: Ints, input_size: Ints, align_corners: bool, *scales: Scale) -> Value:
    return _backward(grad, output_size, input_size, scales, lambda size, out, scale, x: cubic_taps(size, out, align_corners, scale, x))


@rule("upsample_nearest1d_backward", "upsample_nearest3d_backward", library=True)
def upsample_nearest_backward(grad: Value, output_size: Ints, input_size: Ints, *scales: Scale) -> Value:
    return _backward(grad, output_size, input_size, scales, lambda size, out, scale, x: nearest_taps(size, out, 0.0, scale, x))


@rule("_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward", "_upsample_nearest_exact3d_backward", library=True)
def upsample_nearest_exact_backward(grad: Value, output_size: Ints, input_size: Ints, *scales: Scale) -> Value:
    return _backward(grad, output_size, input_size, scales, lambda size, out, scale, x: nearest_taps(size, out, 0.5, scale, x))
