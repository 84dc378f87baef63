"""Average pooling where windows do not overlap or cover everything; nearest-neighbour resizing. Max pooling stays a fallback.

Upstream: ``torch._decomp.decompositions`` (``adaptive_avg_pool2d``, ``upsample_nearest``).
"""
from __future__ import annotations

from typing import Sequence

from .. import ops as p
from ..core import Value
from ..meta import numel
from .registry import NoRule, opmath, rule

Ints = Sequence[int]


def _blocks(x: Value, out: Ints, kernel: Ints) -> Value:
    """Mean over blocks of ``kernel`` that tile the last dimensions, of which there are ``out``."""
    n = len(out)
    lead = x.shape[:-n]
    if all(k == size for k, size in zip(kernel, x.shape[-n:])):
        total = p.sum(opmath(x), tuple(range(x.ndim - n, x.ndim)), True)
    else:
        paired = tuple([v for pair in zip(out, kernel) for v in pair])
        total = p.sum(p.reshape(opmath(x), (*lead, *paired)), tuple(range(len(lead) + 1, len(lead) + 2 * n, 2)))
    return p.convert(total / float(numel(kernel)), x.dtype)


def _spread(grad: Value, shape: Ints, kernel: Ints) -> Value:
    """The gradient of ``_blocks``: each block gets its share."""
    n = len(kernel)
    lead, out = grad.shape[:-n], grad.shape[-n:]
    share = p.convert(opmath(grad) / float(numel(kernel)), grad.dtype)
    if all(v == 1 for v in out):
        return p.broadcast_in_dim(share, tuple(shape), tuple(range(len(shape))))
    paired = tuple([v for pair in zip(out, kernel) for v in pair])
    places = (*range(len(lead)), *range(len(lead), len(lead) + 2 * n, 2))
    return p.reshape(p.broadcast_in_dim(share, (*lead, *paired), places), tuple(shape))


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(x: Value, output_size: Ints) -> Value:
    sizes = x.shape[-len(output_size):]
    if x.numel() == 0 or not x.dtype.is_floating_point or any(out == 0 or size % out for size, out in zip(sizes, output_size)):
        raise NoRule("adaptive pooling with windows of different sizes")
    return _blocks(x, output_size, [size // out for size, out in zip(sizes, output_size)])


def _adaptive_backward(grad: Value, x: Value, n: int) -> Value:
    sizes, out = x.shape[-n:], grad.shape[-n:]
    if x.numel() == 0 or any(o == 0 or size % o for size, o in zip(sizes, out)):
        raise NoRule("adaptive pooling with windows of different sizes")
    return _spread(grad, x.shape, [size // o for size, o in zip(sizes, out)])


@rule("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad: Value, x: Value) -> Value:
    return _adaptive_backward(grad, x, 2)


@rule("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad: Value, x: Value) -> Value:
    return _adaptive_backward(grad, x, 3)


def _tiles(x: Value, kernel: Ints, stride: Ints, padding: Ints, divisor: int | None) -> tuple[list[int], list[int]]:
    """(output sizes, kernel) of a pooling whose windows tile the input exactly."""
    kernel = list(kernel)
    stride = (list(stride) * len(kernel) if len(stride) == 1 else list(stride)) or kernel
    sizes = x.shape[-len(kernel):]
    if x.numel() == 0 or not x.dtype.is_floating_point or stride != kernel or any(padding) or divisor or any(s % k for s, k in zip(sizes, kernel)):
        raise NoRule("average pooling with overlapping or padded windows")
    return [s // k for s, k in zip(sizes, kernel)], kernel


@rule("avg_pool2d", "avg_pool3d")
def avg_pool(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: int | None = None) -> Value:
    if len(kernel_size) == 1:
        raise NoRule("average pooling with a one-number kernel")
    return _blocks(x, *_tiles(x, kernel_size, stride, padding, divisor_override))


@rule("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(grad: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_include_pad: bool,
                      divisor_override: int | None) -> Value:
    if len(kernel_size) == 1:
        raise NoRule("average pooling with a one-number kernel")
    return _spread(grad, x.shape, _tiles(x, kernel_size, stride, padding, divisor_override)[1])


def _nearest(x: Value, output_size: Ints, scales: Sequence[float | None]) -> Value:
    """Whole-number enlargement repeats; anything else picks by index."""
    n = len(output_size)
    for i, (out, scale) in enumerate(zip(output_size, scales)):
        dim = x.ndim - n + i
        size = x.shape[dim]
        if out == size:
            continue
        if out % size or (scale is not None and scale != out // size):
            raise NoRule("nearest-neighbour resizing by a fraction")
        times = out // size
        spread = p.broadcast_in_dim(x, (*x.shape[:dim + 1], times, *x.shape[dim + 1:]), tuple([d + (d > dim) for d in range(x.ndim)]))
        x = p.reshape(spread, (*x.shape[:dim], out, *x.shape[dim + 1:]))
    return x


@rule("upsample_nearest1d")
def upsample_nearest1d(x: Value, output_size: Ints, scales: float | None = None) -> Value:
    return _nearest(x, output_size, (scales,))


@rule("upsample_nearest2d")
def upsample_nearest2d(x: Value, output_size: Ints, scales_h: float | None = None, scales_w: float | None = None) -> Value:
    return _nearest(x, output_size, (scales_h, scales_w))


@rule("upsample_nearest2d_backward")
def upsample_nearest2d_backward(grad: Value, output_size: Ints, input_size: Ints, scales_h: float | None = None,
                                scales_w: float | None = None) -> Value:
    """The sum over the block that one element was repeated to."""
    sizes, blocks = input_size[2:], []
    for out, size, scale in zip(output_size, sizes, (scales_h, scales_w)):
        if size == 0 or out % size or (scale is not None and scale != out // size):
            raise NoRule("nearest-neighbour resizing by a fraction")
        blocks += [size, out // size]
    split = p.reshape(opmath(grad), (*grad.shape[:2], *blocks))
    return p.convert(p.sum(split, (3, 5)), grad.dtype)
