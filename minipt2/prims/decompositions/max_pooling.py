"""Max pooling with the positions of the maxima, and unpooling. Upstream: ``torch._inductor.lowering`` (``max_pool2d_with_indices``)."""
from __future__ import annotations

import math
from itertools import product
from typing import Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import numel
from ..pooling import pooled_size
from .registry import NoRule, number, rule

Ints = Sequence[int]


def least(dtype: torch.dtype) -> float | int:
    """What no element is below."""
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def _each(values: Ints, n: int) -> list[int]:
    return list(values) * (n if len(values) == 1 else 1)


@rule("max_pool2d_with_indices", library=True)
def max_pool2d(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
               ceil_mode: bool = False) -> tuple[Value, Value]:
    return _max_pool(x, 2, kernel_size, stride, padding, dilation, ceil_mode)


@rule("max_pool3d_with_indices", library=True)
def max_pool3d(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
               ceil_mode: bool = False) -> tuple[Value, Value]:
    return _max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool(x: Value, n: int, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> tuple[Value, Value]:
    """The largest of the strided slices of the padded input, one slice for each place in the window; the first one wins, and NaN."""
    kernel, pads, steps = _each(kernel_size, n), _each(padding, n), _each(dilation, n)
    strides = _each(stride, n) or kernel
    first, sizes = x.ndim - n, x.shape[-n:]
    out = [pooled_size(*v, ceil_mode) for v in zip(sizes, kernel, strides, pads, steps)]
    over = [torch.sym_max(0, (o - 1) * s + d * (k - 1) + 1 - size - pad) for o, s, d, k, size, pad in zip(out, strides, steps, kernel, sizes, pads)]
    lead = (0,) * first
    padded = p.pad(x, (*lead, *pads), (*lead, *over), least(x.dtype))
    best = where = None
    for at in product(*map(range, kernel)):
        starts = [i * d for i, d in zip(at, steps)]
        ends = [b + (o - 1) * s + 1 for b, o, s in zip(starts, out, strides)]
        here = p.slice(padded, (*lead, *starts), (*x.shape[:first], *ends), (*[1] * first, *strides))
        flat = _positions(here, [b - pad for b, pad in zip(starts, pads)], strides, sizes)
        if best is None:
            best, where = here, _positions(here, [b - pad for b, pad in zip(starts, pads)], strides, sizes, steps)
            continue
        wins = p.gt(here, best)
        wins = p.logical_or(wins, p.isnan(here)) if x.dtype.is_floating_point else wins
        best, where = p.where(wins, here, best), p.where(wins, flat, where)
    return best, where


def _positions(like: Value, starts: Ints, strides: Ints, sizes: Ints, skip: Ints = ()) -> Value:
    """For each window the flat position, in the image, of its element that lies ``starts`` from the first window's corner; where that is padding
    before the image, of the first one in steps of ``skip`` that is not."""
    n, total, step = len(sizes), None, 1
    for d in reversed(range(n)):
        if skip and starts[d] < 0:
            at = p.iota(like.shape[like.ndim - n + d], starts[d], strides[d], torch.int64, like.device)
            missing = p.floordiv(p.maximum(p.neg(at), 0) + (skip[d] - 1), skip[d])
            along = (at + missing * skip[d]) * step
        else:
            along = p.iota(like.shape[like.ndim - n + d], starts[d] * step, strides[d] * step, torch.int64, like.device)
        spread = p.broadcast_in_dim(along, like.shape, (like.ndim - n + d,))
        total, step = spread if total is None else total + spread, step * sizes[d]
    return total


def scatter_flat(grad: Value, indices: Value, shape: Ints, n: int) -> Value:
    """``grad`` added at its flat positions in the last ``n`` dimensions of zeros of ``shape``."""
    lead, image = tuple(shape[:len(shape) - n]), numel(shape[len(shape) - n:])
    rows, count = numel(lead), numel(grad.shape[grad.ndim - n:])
    zeros = p.full((rows, image), number(0, grad.dtype), grad.dtype, grad.device)
    out = p.scatter_add(zeros, 1, p.reshape(indices, (rows, count)), p.reshape(grad, (rows, count)))
    return p.reshape(out, tuple(shape))


@rule("max_pool2d_with_indices_backward", library=True)
def max_pool2d_backward(grad: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool,
                        indices: Value) -> Value:
    return scatter_flat(grad, indices, x.shape, 2)


@rule("max_pool3d_with_indices_backward", library=True)
def max_pool3d_backward(grad: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool,
                        indices: Value) -> Value:
    return scatter_flat(grad, indices, x.shape, 3)


def _windows(size: int, out: int) -> list[tuple[int, int]]:
    """Start and end of each window of an adaptive pooling: they cover the input and may overlap."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


@rule("adaptive_max_pool2d", "adaptive_max_pool3d", library=True)
def adaptive_max_pool(x: Value, output_size: Ints) -> tuple[Value, Value]:
    """Each window's elements are gathered to one row; those of a short window are filled up with its last element."""
    n = len(output_size)
    sizes, lead = x.shape[-n:], x.shape[:-n]
    if x.numel() == 0:
        raise NoRule("adaptive pooling of nothing")
    windows = [_windows(size, out) for size, out in zip(sizes, output_size)]
    most = [max(end - start for start, end in w) for w in windows]
    flat, total, step = None, (*output_size, *most), 1
    for d in reversed(range(n)):
        starts = _numbers([start for start, _ in windows[d]], x.device)
        ends = _numbers([end - 1 for _, end in windows[d]], x.device)
        place = p.broadcast_in_dim(starts, (output_size[d], most[d]), (0,)) + p.broadcast_in_dim(
            p.iota(most[d], 0, 1, torch.int64, x.device), (output_size[d], most[d]), (1,))
        place = p.minimum(place, p.broadcast_in_dim(ends, place.shape, (0,))) * step
        spread = p.broadcast_in_dim(place, total, (d, n + d))
        flat, step = spread if flat is None else flat + spread, step * sizes[d]
    count, width = numel(output_size), numel(most)
    picked = p.index_select(p.reshape(x, (*lead, numel(sizes))), len(lead), p.reshape(flat, (count * width,)))
    picked = p.reshape(picked, (*lead, count, width))
    best = p.argmax(picked, len(lead) + 1, True)
    rows = p.broadcast_in_dim(p.reshape(flat, (count, width)), picked.shape, (len(lead), len(lead) + 1))
    shape = (*lead, *output_size)
    return (p.reshape(p.gather(picked, len(lead) + 1, best), shape), p.reshape(p.gather(rows, len(lead) + 1, best), shape))


def _numbers(values: Ints, device: torch.device) -> Value:
    """A vector of these integers."""
    parts = tuple([p.full((1,), v, torch.int64, device) for v in values])
    return parts[0] if len(parts) == 1 else p.cat(parts, 0)


@rule("adaptive_max_pool2d_backward", library=True)
def adaptive_max_pool2d_backward(grad: Value, x: Value, indices: Value) -> Value:
    return scatter_flat(grad, indices, x.shape, 2)


@rule("adaptive_max_pool3d_backward", library=True)
def adaptive_max_pool3d_backward(grad: Value, x: Value, indices: Value) -> Value:
    return scatter_flat(grad, indices, x.shape, 3)


@rule("max_unpool2d", "max_unpool3d", library=True)
def max_unpool(x: Value, indices: Value, output_size: Ints, *_: Ints) -> Value:
    """Elements back at the positions that pooling told."""
    n = len(output_size)
    lead, count = x.shape[:-n], numel(x.shape[-n:])
    rows, image = numel(lead), numel(output_size)
    zeros = p.full((rows, image), number(0, x.dtype), x.dtype, x.device)
    out = p.scatter(zeros, 1, p.reshape(indices, (rows, count)), p.reshape(x, (rows, count)))
    return p.reshape(out, (*lead, *output_size))


def _random_starts(samples: Value, size: int, out: int, kernel: int, axis: int) -> Value:
    """(n, c, out): where each window begins: steps of a constant fraction, rounded down, shifted by the sample; the last one at the end."""
    n, c = samples.shape[:2]
    shape = (n, c, out)
    sample = p.broadcast_in_dim(p.reshape(p.slice(samples, (0, 0, axis), (n, c, axis + 1), (1, 1, 1)), (n, c)), shape, (0, 1))
    if out == 1:
        return p.full(shape, size - kernel, torch.int64, samples.device)
    step = (size - kernel) / (out - 1)
    i = p.broadcast_in_dim(p.iota(out, 0, 1, torch.int64, samples.device), shape, (2,))
    start = p.trunc((p.convert(i, samples.dtype) + sample) * step) - p.trunc(sample * step)
    return p.where(p.eq(i, out - 1), size - kernel, p.convert(start, torch.int64))


def _fractional(x: Value, kernel: Ints, out: Ints, samples: Value, axes: Ints) -> tuple[Value, Value]:
    n = len(kernel)
    batch = x if x.ndim == n + 2 else p.reshape(x, (1, *x.shape))
    lead, sizes = batch.shape[:2], batch.shape[2:]
    total, flat, step = (*lead, *out, *kernel), None, 1
    for d in reversed(range(n)):
        starts = p.broadcast_in_dim(_random_starts(samples, sizes[d], out[d], kernel[d], axes[d]), total, (0, 1, 2 + d))
        within = p.broadcast_in_dim(p.iota(kernel[d], 0, 1, torch.int64, x.device), total, (2 + n + d,))
        place = (starts + within) * step
        flat, step = place if flat is None else flat + place, step * sizes[d]
    count, width = numel(out), numel(kernel)
    image = p.reshape(batch, (*lead, numel(sizes)))
    rows = p.reshape(flat, (*lead, count, width))
    picked = p.reshape(p.gather(image, 2, p.reshape(flat, (*lead, count * width))), rows.shape)
    best = p.argmax(picked, 3, True)
    shape = (*x.shape[:x.ndim - n], *out)
    return p.reshape(p.gather(picked, 3, best), shape), p.reshape(p.gather(rows, 3, best), shape)


@rule("fractional_max_pool2d", library=True)
def fractional_max_pool2d(x: Value, kernel_size: Ints, output_size: Ints, random_samples: Value) -> tuple[Value, Value]:
    return _fractional(x, kernel_size, output_size, random_samples, (1, 0))


@rule("fractional_max_pool3d", library=True)
def fractional_max_pool3d(x: Value, kernel_size: Ints, output_size: Ints, random_samples: Value) -> tuple[Value, Value]:
    return _fractional(x, kernel_size, output_size, random_samples, (0, 1, 2))


@rule("fractional_max_pool2d_backward", "fractional_max_pool3d_backward", library=True)
def fractional_max_pool_backward(grad: Value, x: Value, kernel_size: Ints, output_size: Ints, indices: Value) -> Value:
    return scatter_flat(grad, indices, x.shape, len(output_size))
