"""Joining, padding, repeating and reordering. Upstream: ``torch._refs`` (``cat``, ``constant_pad_nd``, ``roll``), ``torch._decomp``."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from ...shapes.known import same, same_all
from .. import ops as p
from ..core import Value
from ..meta import wrap_dim, wrap_dims
from ..promote import computation_dtype
from .registry import number, rule
from .views import slice_dim, unsqueeze

Ints = Sequence[int]


@rule("cat", "concat", "concatenate")
def cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    """Operands of shape (0,) count for nothing, whatever the rank of the others."""
    dtype = computation_dtype(*tensors)
    kept = [x for x in tensors if not same_all(x.shape, (0,))] or [tensors[0]]
    return p.cat(tuple([p.convert(x, dtype) for x in kept]), wrap_dim(dim, kept[0].ndim))


@rule("stack")
def stack(tensors: Sequence[Value], dim: int = 0) -> Value:
    dim = wrap_dim(dim, tensors[0].ndim + 1)
    dtype = computation_dtype(*tensors)
    return p.cat(tuple([p.convert(unsqueeze(x, dim), dtype) for x in tensors]), dim)


@rule("constant_pad_nd")
def constant_pad_nd(x: Value, pad: Ints, value: Any = 0) -> Value:
    """``pad`` lists (before, after) pairs from the last dimension on."""
    lo, hi = [0] * x.ndim, [0] * x.ndim
    for i in range(len(pad) // 2):
        lo[-1 - i], hi[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return p.pad(x, tuple(lo), tuple(hi), number(value, x.dtype))


def padded_index(size: int, lo: int, hi: int, mode: str, device: torch.device) -> Value:
    """For each place of a padded dimension, the place of the source it shows."""
    i = p.iota(size + lo + hi, -lo, 1, torch.int64, device)
    if mode == "replicate":
        return p.minimum(p.maximum(i, 0), size - 1)
    return (size - 1) - p.abs((size - 1) - p.abs(i))


def _pad_by_index(x: Value, pad: Ints, mode: str) -> Value:
    for i in range(len(pad) // 2):
        lo, hi, dim = pad[2 * i], pad[2 * i + 1], x.ndim - 1 - i
        if not (same(lo, 0) and same(hi, 0)):
            x = p.index_select(x, dim, padded_index(x.shape[dim], lo, hi, mode, x.device))
    return x


@rule("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: Value, padding: Ints) -> Value:
    return _pad_by_index(x, padding, "reflect")


@rule("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(x: Value, padding: Ints) -> Value:
    return _pad_by_index(x, padding, "replicate")


@rule("repeat")
def repeat(x: Value, repeats: Ints) -> Value:
    """Every dimension of size n becomes (times, n), then times * n."""
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    x = p.reshape(x, shape)
    paired = tuple([n for pair in zip(repeats, shape) for n in pair])
    spread = p.broadcast_in_dim(x, paired, tuple(range(1, 2 * len(shape), 2)))
    return p.reshape(spread, tuple([a * b for a, b in zip(repeats, shape)]))


@rule("repeat_interleave.self_int")
def repeat_interleave(x: Value, repeats: int, dim: int | None = None, *, output_size: int | None = None) -> Value:
    if dim is None:
        x, dim = p.reshape(x, (x.numel(),)), 0
    dim = wrap_dim(dim, x.ndim)
    spread = p.broadcast_in_dim(x, (*x.shape[:dim + 1], repeats, *x.shape[dim + 1:]), tuple([d + (d > dim) for d in range(x.ndim)]))
    return p.reshape(spread, (*x.shape[:dim], x.shape[dim] * repeats, *x.shape[dim + 1:]))


@rule("roll")
def roll(x: Value, shifts: Ints, dims: Ints = ()) -> Value:
    if not dims:
        return p.reshape(roll(p.reshape(x, (x.numel(),)), shifts, (0,)), x.shape)
    for shift, dim in zip(shifts, dims):
        dim = wrap_dim(dim, x.ndim)
        size = x.shape[dim] if x.ndim else 0
        shift = 0 if size == 0 else shift % size
        if not same(shift, 0):
            x = p.cat((slice_dim(x, dim, size - shift, size), slice_dim(x, dim, 0, size - shift)), dim)
    return x


@rule("flip")
def flip(x: Value, dims: Ints) -> Value:
    return p.flip(x, wrap_dims(dims, x.ndim, empty_means_all=False))


@rule("rot90")
def rot90(x: Value, k: int = 1, dims: Ints = (0, 1)) -> Value:
    a, b = wrap_dim(dims[0], x.ndim), wrap_dim(dims[1], x.ndim)
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    k %= 4
    if k == 2:
        return p.flip(x, tuple(sorted((a, b))))
    if k == 1:
        return p.permute(p.flip(x, (b,)), tuple(order))
    return p.flip(p.permute(x, tuple(order)), (b,)) if k == 3 else x


@rule("block_diag")
def block_diag(tensors: Sequence[Value]) -> Value:
    dtype = computation_dtype(*tensors)
    blocks = [p.convert(x if x.ndim == 2 else p.reshape(x, (1, x.numel())), dtype) for x in tensors]
    width, at, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(p.pad(block, (0, at), (0, width - at - block.shape[1]), number(0, dtype)))
        at += block.shape[1]
    return p.cat(tuple(rows), 0)


@rule("pixel_shuffle")
def pixel_shuffle(x: Value, upscale_factor: int) -> Value:
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r)."""
    *lead, c, h, w = x.shape
    r, n = upscale_factor, len(lead)
    split = p.reshape(x, (*lead, c // (r * r), r, r, h, w))
    return p.reshape(p.permute(split, (*range(n + 1), n + 3, n + 1, n + 4, n + 2)), (*lead, c // (r * r), h * r, w * r))


@rule("pixel_unshuffle")
def pixel_unshuffle(x: Value, downscale_factor: int) -> Value:
    """(..., c, h * r, w * r) -> (..., c * r * r, h, w)."""
    *lead, c, h, w = x.shape
    r, n = downscale_factor, len(lead)
    split = p.reshape(x, (*lead, c, h // r, r, w // r, r))
    return p.reshape(p.permute(split, (*range(n + 1), n + 2, n + 4, n + 1, n + 3)), (*lead, c * r * r, h // r, w // r))
