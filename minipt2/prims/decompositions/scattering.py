"""Scatters with a reduction, updates along an index, and the gradients of padding and windows, all sums into zeros.

Upstream: ``torch._refs`` (``index_fill``, ``index_copy``), ``torch._inductor.lowering`` (``scatter_reduce``), ``torch._decomp`` (``*_pad*_backward``).
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import contiguous_strides, numel, wrap_dim
from .indexing import _flat, _indices, _long, _scatter, index_put, scatter_reduce as plain_scatter_reduce
from .joining import padded_index
from .registry import NoRule, broadcast_to, complete, full_like, number, overload, rule

Ints = Sequence[int]
_HOW = {"add": "sum", "multiply": "prod"}


def _reduced(x: Value, dim: int, index: Value, src: Value, how: str, include_self: bool) -> Value:
    return _scatter(lambda *args: p.scatter_reduce(*args, how, include_self), x, dim, index, src)


@rule("scatter.reduce", library=True)
def scatter_with(x: Value, dim: int, index: Value, src: Value, *, reduce: str) -> Value:
    return _reduced(x, dim, index, src, _HOW[reduce], True)


@rule("scatter.value_reduce", library=True)
def scatter_value_with(x: Value, dim: int, index: Value, value: Any, *, reduce: str) -> Value:
    return _reduced(x, dim, index, full_like(index, value, x.dtype), _HOW[reduce], True)


def scatter_reduce(x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True) -> Value:
    if reduce == "sum" and include_self:
        return plain_scatter_reduce(x, dim, index, src, reduce)
    return _reduced(x, dim, index, src, reduce, include_self)


complete[overload("scatter_reduce.two")] = scatter_reduce  # compilers without the prim keep to the sum


@rule("index_reduce", library=True)
def index_reduce(x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True) -> Value:
    if x.ndim == 0:
        raise NoRule("index_reduce of a scalar")
    dim = wrap_dim(dim, x.ndim)
    spread = p.broadcast_in_dim(_flat(_long(index)), source.shape, (dim,))
    return _reduced(x, dim, spread, source, reduce, include_self)


@rule("index_fill.int_Tensor", library=True)
def index_fill_tensor(x: Value, dim: int, index: Value, value: Value) -> Value:
    value = p.convert(value, x.dtype)
    if x.ndim == 0:
        return value
    dim = wrap_dim(dim, x.ndim)
    shape = (*x.shape[:dim], index.numel(), *x.shape[dim + 1:])
    return p.index_put(x, (*[None] * dim, _flat(_long(index))), broadcast_to(value, shape), False)


@rule("put", library=True)
def put(x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    out = p.index_put(_flat(x), (_flat(_long(index)),), _flat(source), accumulate)
    return p.reshape(out, x.shape)


@rule("_unsafe_masked_index", library=True)
def masked_index(x: Value, mask: Value, indices: Sequence[Value | None], fill: Any) -> Value:
    """x[indices] where mask holds (indices elsewhere may lie outside), fill elsewhere."""
    picked = p.index(x, _indices(x, _inside(x, indices)))
    return p.where(broadcast_to(mask, picked.shape), picked, number(fill, x.dtype))


def _inside(x: Value, indices: Sequence[Value | None]) -> list[Value | None]:
    return [None if i is None else p.minimum(p.maximum(_long(i), 0), n - 1) for i, n in zip(indices, x.shape)]


@rule("_unsafe_masked_index_put_accumulate", library=True)
def masked_index_put(x: Value, mask: Value, indices: Sequence[Value | None], values: Value) -> Value:
    kept = p.where(broadcast_to(mask, values.shape), values, number(0, values.dtype))
    return index_put(x, _inside(x, indices), kept, True)


def _padding_backward(grad: Value, x: Value, padding: Ints, mode: str) -> Value:
    """Each place of the padded tensor gives its gradient to the place it shows."""
    for i in range(len(padding) // 2):
        lo, hi, dim = padding[2 * i], padding[2 * i + 1], x.ndim - 1 - i
        shape = (*grad.shape[:dim], x.shape[dim], *grad.shape[dim + 1:])
        at = padded_index(x.shape[dim], lo, hi, mode, x.device)
        grad = p.index_put(p.full(shape, number(0, grad.dtype), grad.dtype, grad.device), (*[None] * dim, at), grad, True)
    return grad


@rule("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward", library=True)
def reflection_pad_backward(grad: Value, x: Value, padding: Ints) -> Value:
    return _padding_backward(grad, x, padding, "reflect")


@rule("replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward", library=True)
def replication_pad_backward(grad: Value, x: Value, padding: Ints) -> Value:
    return _padding_backward(grad, x, padding, "replicate")


@rule("unfold_backward", library=True)
def unfold_backward(grad: Value, input_sizes: Ints, dim: int, size: int, step: int) -> Value:
    """(..., windows, ..., size) -> zeros of input_sizes with every window added where it lay."""
    zeros = p.full(tuple(input_sizes), number(0, grad.dtype), grad.dtype, grad.device)
    if not input_sizes:
        return zeros + p.reshape(grad, ())
    dim = wrap_dim(dim, len(input_sizes))
    count = grad.shape[dim]
    starts = p.broadcast_in_dim(p.iota(count, 0, step, torch.int64, grad.device), (count, size), (0,))
    at = starts + p.broadcast_in_dim(p.iota(size, 0, 1, torch.int64, grad.device), (count, size), (1,))
    order = [*range(dim + 1), grad.ndim - 1, *range(dim + 1, grad.ndim - 1)]
    flat = p.reshape(p.permute(grad, tuple(order)), (*input_sizes[:dim], count * size, *input_sizes[dim + 1:]))
    return p.index_put(zeros, (*[None] * dim, _flat(at)), flat, True)


@rule("as_strided_scatter", library=True)
def as_strided_scatter(x: Value, src: Value, size: Ints, stride: Ints, storage_offset: int | None = None) -> Value:
    """x, seen as its elements in memory order, with src at offset + sum of index * stride."""
    if x.strides != contiguous_strides(x.shape):
        raise NoRule("as_strided_scatter on memory that is not row-major")
    place = p.full(tuple(size), storage_offset or 0, torch.int64, x.device)
    for d, (n, step) in enumerate(zip(size, stride)):
        place = place + p.broadcast_in_dim(p.iota(n, 0, step, torch.int64, x.device), tuple(size), (d,))
    return p.reshape(p.index_put(_flat(x), (_flat(place),), _flat(src), False), x.shape)


@rule("masked_scatter_backward", library=True)
def masked_scatter_backward(grad: Value, mask: Value, sizes: Ints) -> Value:
    """The n-th element of source gets the gradient of the n-th place where mask holds."""
    count = numel(sizes)
    mask = _flat(broadcast_to(mask, grad.shape))
    order = p.cumsum(p.convert(mask, torch.int64), 0) - 1
    kept = p.where(mask, _flat(grad), number(0, grad.dtype))
    zeros = p.full((count,), number(0, grad.dtype), grad.dtype, grad.device)
    return p.reshape(p.index_put(zeros, (p.minimum(p.maximum(order, 0), count - 1),), kept, True), tuple(sizes))
