"""Resizing images and sliding windows over them, by index arithmetic. Upstream: ``torch._decomp.decompositions`` (``upsample_*``, ``im2col``)."""
from __future__ import annotations

from functools import reduce
from typing import Sequence

import torch

from ...shapes.known import same
from .. import ops as p
from ..core import Value
from .indexing import _flat
from .registry import NoRule, opmath, rule

Ints = Sequence[int]
Scale = float | None


def _scale(size: int, out: int, given: Scale) -> float:
    """Source positions for one position of the result."""
    return 1.0 / given if given else size / out


def _nearest(x: Value, output_size: Ints, scales: Sequence[Scale], half: float) -> Value:
    """Enlargement by a whole number repeats; anything else picks the element at floor((i + half) * scale)."""
    n = len(output_size)
    for i, (out, given) in enumerate(zip(output_size, scales)):
        dim, size = x.ndim - n + i, x.shape[x.ndim - n + i]
        if same(out, size) and given in (None, 1.0):
            continue
        if same(out % size, 0) and (given is None or same(out // size, given)):
            spread = (*x.shape[:dim + 1], out // size, *x.shape[dim + 1:])
            x = p.broadcast_in_dim(x, spread, tuple([d + (d > dim) for d in range(x.ndim)]))
            x = p.reshape(x, (*spread[:dim], out, *spread[dim + 2:]))
        else:
            x = p.index_select(x, dim, nearest_taps(size, out, half, given, x)[0][0])
    return x


def nearest_taps(size: int, out: int, half: float, given: Scale, x: Value) -> list[tuple[Value, None]]:
    """One tap: the position of the source element that each position of the result shows."""
    at = p.floor((p.convert(p.iota(out, 0, 1, torch.int64, x.device), torch.float32) + half) * _scale(size, out, given))
    return [(p.minimum(p.convert(at, torch.int64), size - 1), None)]


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(x: Value, output_size: Ints, *scales: Scale) -> Value:
    return _nearest(x, output_size, scales or [None] * len(output_size), 0.0)


@rule("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d")
def upsample_nearest_exact(x: Value, output_size: Ints, *scales: Scale) -> Value:
    return _nearest(x, output_size, scales or [None] * len(output_size), 0.5)


@rule("upsample_nearest2d_backward")
def upsample_nearest2d_backward(grad: Value, output_size: Ints, input_size: Ints, *scales: Scale) -> Value:
    """The sum over the block that one element was repeated to."""
    blocks: list[int] = []
    for out, size, given in zip(output_size, input_size[2:], scales or (None, None)):
        if size == 0 or not same(out % size, 0) or not (given is None or same(out // size, given)):
            raise NoRule("nearest-neighbour resizing by a fraction")
        blocks += [size, out // size]
    return p.convert(p.sum(p.reshape(opmath(grad), (*grad.shape[:2], *blocks)), (3, 5)), grad.dtype)


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def upsample_linear(x: Value, output_size: Ints, align_corners: bool, *scales: Scale) -> Value:
    """One dimension after the other: a blend of the two elements around each source position."""
    if not x.dtype.is_floating_point:
        raise NoRule("linear resizing of integers")
    dtype, x = x.dtype, opmath(x)
    n = len(output_size)
    for i, (out, given) in enumerate(zip(output_size, scales or [None] * n)):
        x = _blend_along(x, x.ndim - n + i, out, align_corners, given)
    return p.convert(x, dtype)


def _blend_along(x: Value, dim: int, out: int, align_corners: bool, given: Scale) -> Value:
    if same(out, x.shape[dim]):
        return x
    return _weighted(x, dim, linear_taps(x.shape[dim], out, align_corners, given, x))


def _weighted(x: Value, dim: int, taps: list[tuple[Value, Value]]) -> Value:
    """The weighted sum of the source elements that ``taps`` (position, weight) name for each position along ``dim``."""
    parts = [p.index_select(x, dim, at) for at, _ in taps]
    weights = [p.broadcast_in_dim(weight, parts[0].shape, (dim,)) for _, weight in taps]
    return reduce(p.add, map(p.mul, parts, weights))


def _source(size: int, out: int, align_corners: bool, given: Scale, x: Value) -> Value:
    """Where in the source each position of the result lies."""
    i = p.convert(p.iota(out, 0, 1, torch.int64, x.device), x.dtype)
    if align_corners:
        return i * ((size - 1) / (out - 1) if out > 1 else 0.0)
    return (i + 0.5) * _scale(size, out, given) - 0.5


def linear_taps(size: int, out: int, align_corners: bool, given: Scale, x: Value) -> list[tuple[Value, Value]]:
    """The two elements around each source position, weighted by nearness."""
    at = _source(size, out, align_corners, given, x)
    at = at if align_corners else p.maximum(at, 0.0)
    low = p.minimum(p.convert(at, torch.int64), size - 1)
    weight = p.maximum(at - p.convert(low, x.dtype), 0.0)
    return [(low, 1.0 - weight), (p.minimum(low + 1, size - 1), weight)]


def cubic_taps(size: int, out: int, align_corners: bool, given: Scale, x: Value) -> list[tuple[Value, Value]]:
    """The four elements around each source position; Keys' cubic convolution with a = -0.75."""
    at = _source(size, out, align_corners, given, x)
    low = p.floor(at)
    t = at - low
    first = p.convert(low, torch.int64)
    weights = (_cubic_far(t + 1.0), _cubic_near(t), _cubic_near(1.0 - t), _cubic_far(2.0 - t))
    return [(p.minimum(p.maximum(first + k, 0), size - 1), weight) for k, weight in enumerate(weights, -1)]


_CUBIC = -0.75


def _cubic_near(t: Value) -> Value:
    """Weight of an element at distance 0 to 1."""
    return (t * (_CUBIC + 2) - (_CUBIC + 3)) * t * t + 1.0


def _cubic_far(t: Value) -> Value:
    """Weight of an element at distance 1 to 2."""
    return ((t * _CUBIC - 5 * _CUBIC) * t + 8 * _CUBIC) * t - 4 * _CUBIC


@rule("upsample_bicubic2d", library=True)
def upsample_bicubic2d(x: Value, output_size: Ints, align_corners: bool, *scales: Scale) -> Value:
    if not x.dtype.is_floating_point:
        raise NoRule("cubic resizing of integers")
    dtype, x = x.dtype, opmath(x)
    for i, (out, given) in enumerate(zip(output_size, scales or (None, None))):
        x = _weighted(x, 2 + i, cubic_taps(x.shape[2 + i], out, align_corners, given, x))
    return p.convert(x, dtype)


def _window_positions(size: int, kernel: int, dilation: int, padding: int, stride: int, device: torch.device) -> Value:
    """(kernel, count): position in the padded input of element k of window i."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    within = p.broadcast_in_dim(p.iota(kernel, 0, dilation, torch.int64, device), (kernel, count), (0,))
    return within + p.broadcast_in_dim(p.iota(count, 0, stride, torch.int64, device), (kernel, count), (1,))


@rule("im2col")
def im2col(x: Value, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Value:
    """(n, c, h, w) -> (n, c * kh * kw, windows)."""
    if x.ndim == 3:
        out = im2col(p.reshape(x, (1, *x.shape)), kernel_size, dilation, padding, stride)
        return p.reshape(out, out.shape[1:])
    n, c, h, w = x.shape
    rows = _window_positions(h, kernel_size[0], dilation[0], padding[0], stride[0], x.device)
    columns = _window_positions(w, kernel_size[1], dilation[1], padding[1], stride[1], x.device)
    padded = p.pad(x, (0, 0, *padding), (0, 0, *padding), 0 if not x.dtype.is_floating_point else 0.0)
    windows = p.index_select(p.index_select(padded, 2, _flat(rows)), 3, _flat(columns))
    windows = p.permute(p.reshape(windows, (n, c, *rows.shape, *columns.shape)), (0, 1, 2, 4, 3, 5))
    return p.reshape(windows, (n, c * rows.shape[0] * columns.shape[0], rows.shape[1] * columns.shape[1]))


@rule("col2im")
def col2im(x: Value, output_size: Ints, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints) -> Value:
    """The transpose of im2col: windows are added into the image."""
    if x.ndim == 2:
        out = col2im(p.reshape(x, (1, *x.shape)), output_size, kernel_size, dilation, padding, stride)
        return p.reshape(out, out.shape[1:])
    (h, w), n, c = output_size, x.shape[0], x.shape[1] // (kernel_size[0] * kernel_size[1])
    rows = _window_positions(h, kernel_size[0], dilation[0], padding[0], stride[0], x.device)
    columns = _window_positions(w, kernel_size[1], dilation[1], padding[1], stride[1], x.device)
    at = (rows.shape[0], columns.shape[0], rows.shape[1], columns.shape[1])
    indices = (None, None, p.broadcast_in_dim(rows, at, (0, 2)), p.broadcast_in_dim(columns, at, (1, 3)))
    image = p.full((n, c, h + 2 * padding[0], w + 2 * padding[1]), 0.0, x.dtype, x.device)
    image = p.index_put(image, indices, p.reshape(x, (n, c, *at)), True)
    return p.slice(image, (0, 0, *padding), (n, c, padding[0] + h, padding[1] + w), (1, 1, 1, 1))
