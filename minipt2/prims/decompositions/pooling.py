"""Average pooling: a reduction where windows tile the input, a sum of slices where they overlap.

Upstream: ``torch._inductor.lowering`` (``avg_pool2d``, ``_adaptive_avg_pool2d``).
"""
from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Iterator, Sequence

import torch

from ...shapes.known import same
from .. import ops as p
from ..core import Value
from ..meta import numel
from ..promote import to_float
from .indexing import apart
from .registry import NoRule, broadcast_to, opmath, rule

Ints = Sequence[int]


def _blocks(x: Value, out: Ints, kernel: Ints) -> Value:
    """Mean over blocks of ``kernel`` that tile the last dimensions, of which there are ``out``."""
    n = len(out)
    lead = x.shape[:-n]
    if all(same(o, 1) for o in out):
        total = p.sum(opmath(x), tuple(range(x.ndim - n, x.ndim)), True)
    else:
        paired = tuple([v for pair in zip(out, kernel) for v in pair])
        total = p.sum(p.reshape(opmath(x), (*lead, *paired)), tuple(range(len(lead) + 1, len(lead) + 2 * n, 2)))
    return p.convert(total / to_float(numel(kernel)), x.dtype)


def _spread(grad: Value, shape: Ints, kernel: Ints) -> Value:
    """The gradient of ``_blocks``: each block gets its share."""
    n = len(kernel)
    lead, out = grad.shape[:-n], grad.shape[-n:]
    share = p.convert(opmath(grad) / to_float(numel(kernel)), grad.dtype)
    if all(same(v, 1) for v in out):
        return p.broadcast_in_dim(share, tuple(shape), tuple(range(len(shape))))
    paired = tuple([v for pair in zip(out, kernel) for v in pair])
    places = (*range(len(lead)), *range(len(lead), len(lead) + 2 * n, 2))
    return p.reshape(p.broadcast_in_dim(share, (*lead, *paired), places), tuple(shape))


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(x: Value, output_size: Ints) -> Value:
    sizes = x.shape[-len(output_size):]
    if x.numel() == 0 or not x.dtype.is_floating_point or any(out == 0 or not same(size % out, 0) for size, out in zip(sizes, output_size)):
        raise NoRule("adaptive pooling with windows of different sizes")
    return _blocks(x, output_size, [size // out for size, out in zip(sizes, output_size)])


def _adaptive_backward(grad: Value, x: Value, n: int) -> Value:
    sizes, out = x.shape[-n:], grad.shape[-n:]
    if x.numel() == 0 or any(o == 0 or not same(size % o, 0) for size, o in zip(sizes, out)):
        raise NoRule("adaptive pooling with windows of different sizes")
    return _spread(grad, x.shape, [size // o for size, o in zip(sizes, out)])


@rule("_adaptive_avg_pool2d_backward")
def adaptive_avg_pool2d_backward(grad: Value, x: Value) -> Value:
    return _adaptive_backward(grad, x, 2)


@rule("_adaptive_avg_pool3d_backward")
def adaptive_avg_pool3d_backward(grad: Value, x: Value) -> Value:
    return _adaptive_backward(grad, x, 3)


MAX_WINDOW = 36


class _Pool:
    """Sizes of one average pooling over the last ``len(kernel)`` dimensions of ``x``."""

    def __init__(self, x: Value, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool):
        n = len(kernel)
        self.kernel, self.padding = list(kernel), list(padding) * (n if len(padding) == 1 else 1)
        self.stride = list(stride) * (n if len(stride) == 1 else 1) or self.kernel
        self.sizes, self.first = x.shape[-n:], x.ndim - n
        spans = [size + 2 * pad - k for size, pad, k in zip(self.sizes, self.padding, self.kernel)]
        self.out = [span // s + 1 for span, s in zip(spans, self.stride)]
        if x.numel() == 0 or not x.dtype.is_floating_point or numel(kernel) > MAX_WINDOW and not self.tiles:
            raise NoRule("average pooling of integers, of nothing or over large windows")
        if ceil_mode and not all(same(span % s, 0) for span, s in zip(spans, self.stride)):
            raise NoRule("average pooling with windows that hang over the edge")

    @property
    def tiles(self) -> bool:
        """Whether the windows tile the input: pooling is then a reduction of a reshape."""
        return self.stride == self.kernel and not any(self.padding) and all(same(s % k, 0) for s, k in zip(self.sizes, self.kernel))

    def divisor(self, x: Value, count_include_pad: bool, override: int | None) -> float | Value:
        """What window sums are divided by: a number, or a tensor (of the output's last dimensions) where padding doesn't count."""
        if override or count_include_pad or not any(self.padding):
            return to_float(override or numel(self.kernel))
        counts = []
        for i, (size, out, k, s, pad) in enumerate(zip(self.sizes, self.out, self.kernel, self.stride, self.padding)):
            start = p.iota(out, -pad, s, torch.int64, x.device)
            inside = p.minimum(start + k, size) - p.maximum(start, 0)
            counts.append(p.broadcast_in_dim(p.convert(inside, x.dtype), tuple(self.out), (i,)))
        return reduce(p.mul, counts)

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """Every place in a window."""
        return product(*[range(k) for k in self.kernel])

    def pads(self, values: Ints) -> tuple[int, ...]:
        """``values`` for the pooled dimensions, 0 for the others."""
        return (0,) * self.first + tuple(values)


def _over(x: Value, divisor: float | Value) -> Value:
    return x / (broadcast_to(divisor, x.shape) if isinstance(divisor, Value) else divisor)


@rule("avg_pool2d", "avg_pool3d")
def avg_pool(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), ceil_mode: bool = False, count_include_pad: bool = True,
             divisor_override: int | None = None) -> Value:
    """A sum of shifted, strided slices of the padded input, one for each place in the window."""
    if len(kernel_size) == 1:
        raise NoRule("average pooling with a one-number kernel")
    pool = _Pool(x, kernel_size, stride, padding, ceil_mode)
    if pool.tiles and not divisor_override:
        return _blocks(x, pool.out, pool.kernel)
    wide = p.pad(opmath(x), pool.pads(pool.padding), pool.pads(pool.padding), 0.0)
    lead, parts = x.shape[:pool.first], []
    for at in pool.offsets():
        ends = [o + (n - 1) * s + 1 for o, n, s in zip(at, pool.out, pool.stride)]
        parts.append(p.slice(wide, pool.pads(at), (*lead, *ends), (*[1] * len(lead), *pool.stride)))
    return p.convert(_over(reduce(p.add, parts), pool.divisor(wide, count_include_pad, divisor_override)), x.dtype)


@rule("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(grad: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_include_pad: bool,
                      divisor_override: int | None) -> Value:
    """The gradient, spread out by the stride, added at each place in the window."""
    if len(kernel_size) == 1:
        raise NoRule("average pooling with a one-number kernel")
    pool = _Pool(x, kernel_size, stride, padding, ceil_mode)
    if pool.tiles and not divisor_override:
        return _spread(grad, x.shape, pool.kernel)
    wide = opmath(grad)
    share = _over(wide, pool.divisor(wide, count_include_pad, divisor_override))
    for dim, step in enumerate(pool.stride, pool.first):
        share = apart(share, dim, step)
    parts = []
    for at in pool.offsets():
        lo = [o - pad for o, pad in zip(at, pool.padding)]
        hi = [size - n - before for size, n, before in zip(pool.sizes, share.shape[pool.first:], lo)]
        parts.append(p.pad(share, pool.pads(lo), pool.pads(hi), 0.0))
    return p.convert(reduce(p.add, parts), x.dtype)
