"""Contractions: kept whole, because vendor libraries do them best. References are the ATen operators themselves.

Upstream: the extern kernels of ``torch._inductor`` (``ExternKernelChoice``, ``convolution``).
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .core import Number, TensorMeta, prim
from .meta import channels_last_strides, contiguous_strides, is_channels_last

T = TensorMeta
Ints = Sequence[int]
aten = torch.ops.aten


def _rows(a: TensorMeta, *shape: int) -> TensorMeta:
    return TensorMeta(shape, a.dtype, a.device, contiguous_strides(shape))


@prim("contraction", torch.mm)
def mm(a: T, b: T) -> T:
    """Matrix product of (m, k) and (k, n)."""
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"prims.mm: inner sizes of {a} and {b} differ")
    return _rows(a, a.shape[0], b.shape[1])


@prim("contraction", torch.bmm)
def bmm(a: T, b: T) -> T:
    """Matrix products of (n, m, k) and (n, k, p), one for each n."""
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise ValueError(f"prims.bmm: sizes of {a} and {b} do not match")
    return _rows(a, a.shape[0], a.shape[1], b.shape[2])


@prim("contraction", lambda bias, a, b, beta, alpha: torch.addmm(bias, a, b, beta=beta, alpha=alpha))
def addmm(bias: T, a: T, b: T, beta: Number = 1, alpha: Number = 1) -> T:
    """beta * bias + alpha * (a @ b); bias broadcasts to (m, n) and is not read when beta is 0."""
    return _rows(a, a.shape[0], b.shape[1])


@prim("contraction", lambda bias, a, b, beta, alpha: torch.baddbmm(bias, a, b, beta=beta, alpha=alpha))
def baddbmm(bias: T, a: T, b: T, beta: Number = 1, alpha: Number = 1) -> T:
    """beta * bias + alpha * (a @ b) for batches; bias broadcasts and is not read when beta is 0."""
    return _rows(a, a.shape[0], a.shape[1], b.shape[2])


def _wants_channels_last(*xs: TensorMeta) -> bool:
    return any(is_channels_last(x.shape, x.strides) for x in xs)


def _image(x: TensorMeta, shape: Ints, channels_last: bool) -> TensorMeta:
    strides = channels_last_strides(shape) if channels_last and len(shape) in (4, 5) else contiguous_strides(shape)
    return TensorMeta(tuple(shape), x.dtype, x.device, strides)


@prim("contraction", lambda *args: aten.convolution.default(*args))
def convolution(x: T, weight: T, bias: T | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
                output_padding: Ints, groups: int) -> T:
    """Convolution of (n, c, *spatial) with (out, c / groups, *kernel); transposed: with (c, out / groups, *kernel)."""
    spatial = []
    for i, n in enumerate(x.shape[2:]):
        s, p, d, k = (v[i] if len(v) > 1 else v[0] for v in (stride, padding, dilation, weight.shape[2:]))
        if transposed:
            o = output_padding[i] if len(output_padding) > 1 else output_padding[0]
            spatial.append((n - 1) * s - 2 * p + d * (k - 1) + o + 1)
        else:
            spatial.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return _image(x, (x.shape[0], channels, *spatial), _wants_channels_last(x, weight))


@prim("contraction", lambda *args: aten.convolution_backward.default(*args))
def convolution_backward(grad: T, x: T, weight: T, bias_sizes: Ints | None, stride: Ints, padding: Ints, dilation: Ints,
                         transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool]) -> tuple[Any, Any, Any]:
    """Gradients of convolution for x, weight and bias; None where output_mask is false."""
    last = _wants_channels_last(x, weight)
    metas = (_image(x, x.shape, last), _image(weight, weight.shape, last),
             _rows(grad, grad.shape[1]) if output_mask[2] else None)
    return tuple([m if wanted else None for m, wanted in zip(metas, output_mask)])
