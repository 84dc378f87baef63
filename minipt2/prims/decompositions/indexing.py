"""Gather, scatter, masks and their gradients. Upstream: ``torch._refs``, ``torch._decomp`` (``embedding``, ``index_add``, ``slice_backward``)."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from ...shapes.known import same, same_all
from .. import ops as p
from ..core import Value
from ..meta import broadcast_shapes, slice_bounds, sliced_shape, wrap_dim
from ..structural import index_shape
from ..promote import to_float
from .pointwise import where
from .registry import NoRule, broadcast_to, full_like, number, rule
from .views import slice_dim

V = Value | None


def _long(index: Value) -> Value:
    return p.convert(index, torch.int64)


def _flat(x: Value) -> Value:
    return p.reshape(x, (x.numel(),))


@rule("embedding")
def embedding(weight: Value, indices: Value, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Value:
    if sparse:
        raise NoRule("sparse gradients")
    rows = p.index_select(weight, 0, _flat(_long(indices)))
    return p.reshape(rows, (*indices.shape, weight.shape[1]))


@rule("embedding_dense_backward")
def embedding_dense_backward(grad: Value, indices: Value, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Value:
    if scale_grad_by_freq:
        raise NoRule("gradient scaled by frequency")
    rows, width = _flat(_long(indices)), grad.shape[-1]
    grad = p.reshape(grad, (rows.numel(), width))
    if padding_idx >= 0:
        grad = p.where(p.broadcast_in_dim(p.eq(rows, padding_idx), grad.shape, (0,)), 0.0, grad)
    return p.index_put(p.full((num_weights, width), 0.0, grad.dtype, grad.device), (rows,), grad, True)


def _indices(x: Value, indices: Sequence[V]) -> tuple[V, ...]:
    """Indices as int64 tensors of one shape; a bool mask has a size that only the data knows."""
    given = [i for i in indices if i is not None]
    if not given or any(i.dtype in (torch.bool, torch.uint8) for i in given):
        raise NoRule("index with a mask: the size of the result depends on the data")
    shape = broadcast_shapes(*[i.shape for i in given])
    return tuple([None if i is None else broadcast_to(_long(i), shape) for i in indices])


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(x: Value, indices: Sequence[V]) -> Value:
    spread = _indices(x, indices)
    at = [d for d, i in enumerate(spread) if i is not None]
    if len(at) == 1 and x.shape[at[0]] == 0:
        raise NoRule("index into an empty dimension")
    return p.index(x, spread)


@rule("index_put", "_unsafe_index_put")
def index_put(x: Value, indices: Sequence[V], values: Value, accumulate: bool = False) -> Value:
    mask = indices[0] if indices else None
    if len(indices) == 1 and mask is not None and mask.dtype is torch.bool and values.numel() == 1 and not accumulate:
        spread = p.broadcast_in_dim(mask, x.shape, tuple(range(mask.ndim)))
        return where(spread, p.convert(p.reshape(values, ()), x.dtype), x)
    spread_indices = _indices(x, indices)
    return p.index_put(x, spread_indices, broadcast_to(values, index_shape(x.shape, spread_indices)), accumulate)


@rule("index_select")
def index_select(x: Value, dim: int, index: Value) -> Value:
    if x.ndim == 0:
        return p.reshape(p.index_select(p.reshape(x, (1,)), 0, _flat(_long(index))), ())
    return p.index_select(x, wrap_dim(dim, x.ndim), _flat(_long(index)))


def _at_least_1d(*xs: Value) -> list[Value]:
    return [x if x.ndim else p.reshape(x, (1,)) for x in xs]


@rule("gather")
def gather(x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    source, at = _at_least_1d(x, _long(index))
    return p.reshape(p.gather(source, wrap_dim(dim, source.ndim), at), index.shape)


def _scatter(prim: Any, x: Value, dim: int, index: Value, src: Value) -> Value:
    if index.numel() == 0:
        return x
    target, at, values = _at_least_1d(x, _long(index), src)
    if not same_all(values.shape, at.shape):
        values = p.slice(values, (0,) * values.ndim, at.shape, (1,) * values.ndim)
    return p.reshape(prim(target, wrap_dim(dim, target.ndim), at, values), x.shape)


@rule("scatter.src")
def scatter_src(x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(p.scatter, x, dim, index, src)


@rule("scatter.value")
def scatter_value(x: Value, dim: int, index: Value, value: Any) -> Value:
    return _scatter(p.scatter, x, dim, index, full_like(index, value, x.dtype))


@rule("scatter_add")
def scatter_add(x: Value, dim: int, index: Value, src: Value) -> Value:
    return _scatter(p.scatter_add, x, dim, index, src)


@rule("index_add")
def index_add(x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    """An accumulating index_put along one dimension."""
    values = source if alpha == 1 else source * number(alpha, source.dtype)
    return _index_update(x, dim, index, values, True)


@rule("index_copy")
def index_copy(x: Value, dim: int, index: Value, source: Value) -> Value:
    return _index_update(x, dim, index, source, False)


@rule("index_fill.int_Scalar")
def index_fill(x: Value, dim: int, index: Value, value: Any) -> Value:
    if x.ndim == 0:
        return full_like(x, value)
    dim = wrap_dim(dim, x.ndim)
    shape = (*x.shape[:dim], index.numel(), *x.shape[dim + 1:])
    return _index_update(x, dim, index, p.full(shape, number(value, x.dtype), x.dtype, x.device), False)


def _index_update(x: Value, dim: int, index: Value, source: Value, accumulate: bool) -> Value:
    if x.ndim == 0 or x.dtype is not source.dtype or (accumulate and x.dtype is torch.bool):
        raise NoRule("index update of a scalar or with another dtype")
    dim = wrap_dim(dim, x.ndim)
    return p.index_put(x, (*[None] * dim, _flat(_long(index))), source, accumulate)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def masked_fill(x: Value, mask: Value, value: Any) -> Value:
    value = p.convert(value, x.dtype) if isinstance(value, Value) else number(value, x.dtype)
    return where(mask, value, x)


def _triangle(x: Value, diagonal: int, upper: bool) -> Value:
    rows = p.broadcast_in_dim(p.iota(x.shape[-2], diagonal, 1, torch.int64, x.device), x.shape, (x.ndim - 2,))
    columns = p.broadcast_in_dim(p.iota(x.shape[-1], 0, 1, torch.int64, x.device), x.shape, (x.ndim - 1,))
    return p.where(p.ge(columns, rows) if upper else p.le(columns, rows), x, number(0, x.dtype))


@rule("triu")
def triu(x: Value, diagonal: int = 0) -> Value:
    return _triangle(x, diagonal, True)


@rule("tril")
def tril(x: Value, diagonal: int = 0) -> Value:
    return _triangle(x, diagonal, False)


def apart(x: Value, dim: int, step: int) -> Value:
    """``x`` with ``step - 1`` zeros between the elements along ``dim`` (none after the last)."""
    if step == 1:
        return x
    n, zeros = x.shape[dim], (0,) * (x.ndim + 1)
    after = tuple([step - 1 if d == dim + 1 else 0 for d in range(x.ndim + 1)])
    spaced = p.pad(p.reshape(x, (*x.shape[:dim + 1], 1, *x.shape[dim + 1:])), zeros, after, number(0, x.dtype))
    return slice_dim(p.reshape(spaced, (*x.shape[:dim], n * step, *x.shape[dim + 1:])), dim, 0, (n - 1) * step + 1)


def _place(x: Value, shape: Sequence[int], dim: int, start: int, step: int) -> Value:
    """``x`` at start, start+step, ... of ``dim`` in zeros of ``shape``."""
    x = apart(x, dim, step)
    lo = [start if d == dim else 0 for d in range(x.ndim)]
    hi = [shape[d] - x.shape[d] - lo[d] for d in range(x.ndim)]
    return p.pad(x, tuple(lo), tuple(hi), number(0, x.dtype))


@rule("slice_backward")
def slice_backward(grad: Value, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Value:
    dim = wrap_dim(dim, grad.ndim)
    start, end = slice_bounds(input_sizes[dim], start, end)
    if any(same(n, 0) for n in grad.shape):
        return p.full(tuple(input_sizes), number(0, grad.dtype), grad.dtype, grad.device)
    return _place(grad, input_sizes, dim, start, step)


@rule("select_backward")
def select_backward(grad: Value, input_sizes: Sequence[int], dim: int, index: int) -> Value:
    dim = wrap_dim(dim, len(input_sizes))
    index = index + input_sizes[dim] if index < 0 else index
    return _place(p.reshape(grad, (*grad.shape[:dim], 1, *grad.shape[dim:])), input_sizes, dim, index, 1)


@rule("slice_scatter")
def slice_scatter(x: Value, src: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    dim = wrap_dim(dim, x.ndim)
    start, end = slice_bounds(x.shape[dim], start, end)
    src = broadcast_to(p.convert(src, x.dtype), (*x.shape[:dim], *sliced_shape((start,), (end,), (step,)), *x.shape[dim + 1:]))
    if src.numel() == 0:
        return x
    if step == 1:
        return p.cat((slice_dim(x, dim, 0, start), src, slice_dim(x, dim, end, x.shape[dim])), dim)
    i = p.broadcast_in_dim(p.iota(x.shape[dim], -start, 1, torch.int64, x.device), x.shape, (dim,))
    inside = p.ge(i, 0) & p.lt(i, end - start) & p.eq(p.remainder(i, step), 0)
    return p.where(inside, _place(src, x.shape, dim, start, step), x)


@rule("select_scatter")
def select_scatter(x: Value, src: Value, dim: int, index: int) -> Value:
    dim = wrap_dim(dim, x.ndim)
    index = index + x.shape[dim] if index < 0 else index
    return slice_scatter(x, p.reshape(src, (*src.shape[:dim], 1, *src.shape[dim:])), dim, index, index + 1)


@rule("diagonal_backward")
def diagonal_backward(grad: Value, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Value:
    zeros = p.full(tuple(input_sizes), number(0, grad.dtype), grad.dtype, grad.device)
    return diagonal_scatter(zeros, grad, offset, dim1, dim2)


@rule("diagonal_scatter")
def diagonal_scatter(x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The diagonal repeated along the columns, shown where column - row equals offset."""
    dim1, dim2 = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    rows, columns = x.shape[dim1], x.shape[dim2]
    if src.numel() == 0:
        return x
    lead = [0] * (src.ndim - 1)
    first = max(0, -offset)
    padded = p.pad(src, (*lead, first), (*lead, rows - first - src.shape[-1]), number(0, src.dtype))
    places = [d for d in range(x.ndim) if d not in (dim1, dim2)] + [dim1]
    order = sorted(range(len(places)), key=places.__getitem__)
    spread = p.broadcast_in_dim(p.permute(padded, tuple(order)), x.shape, tuple(sorted(places)))
    row = p.broadcast_in_dim(p.iota(rows, offset, 1, torch.int64, x.device), x.shape, (dim1,))
    column = p.broadcast_in_dim(p.iota(columns, 0, 1, torch.int64, x.device), x.shape, (dim2,))
    return p.where(p.eq(row, column), spread, x)


@rule("one_hot")
def one_hot(x: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        raise NoRule("the number of classes depends on the data")
    x = p.valid(x, p.ge(x, 0) & p.lt(x, num_classes))
    shape = (*x.shape, num_classes)
    classes = p.broadcast_in_dim(p.iota(num_classes, 0, 1, torch.int64, x.device), shape, (x.ndim,))
    return p.convert(p.eq(p.broadcast_in_dim(x, shape, tuple(range(x.ndim))), classes), torch.int64)


@rule("native_dropout_backward")
def native_dropout_backward(grad: Value, mask: Value, scale: float) -> Value:
    if not grad.dtype.is_floating_point:
        grad = p.convert(grad, torch.get_default_dtype())
    return grad * p.convert(mask, grad.dtype) * to_float(scale)


@rule("take")
def take(x: Value, index: Value) -> Value:
    flat = p.index(_flat(x), (_flat(_long(index)),))
    return p.reshape(flat, index.shape)


@rule("scatter_reduce.two")
def scatter_reduce(x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True) -> Value:
    if reduce != "sum" or not include_self:
        raise NoRule("scatter with a reduction other than a sum")
    return _scatter(p.scatter_add, x, dim, index, src)


@rule("masked_scatter")
def masked_scatter(x: Value, mask: Value, source: Value) -> Value:
    """The n-th element where mask holds takes the n-th element of source."""
    shape = broadcast_shapes(x.shape, mask.shape)
    mask = broadcast_to(mask, shape)
    if source.numel() == 0 or not shape:
        raise NoRule("masked_scatter of a scalar or from nothing")
    order = p.cumsum(p.convert(_flat(mask), torch.int64), 0) - 1
    order = p.valid(order, p.lt(order, source.numel()))
    picked = p.index_select(_flat(p.convert(source, x.dtype)), 0, p.minimum(p.maximum(order, 0), source.numel() - 1))
    return p.where(mask, p.reshape(picked, shape), broadcast_to(x, shape))


@rule("diag_embed")
def diag_embed(x: Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Value:
    size, ndim = x.shape[-1] + abs(offset), x.ndim + 1
    dim1, dim2 = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    shape = list(x.shape[:-1])
    for dim in sorted((dim1, dim2)):
        shape.insert(dim, size)
    return diagonal_scatter(p.full(tuple(shape), number(0, x.dtype), x.dtype, x.device), x, offset, dim1, dim2)
