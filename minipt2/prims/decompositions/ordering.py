"""Sorting and what follows from it: order statistics, searching, scans. Upstream: ``torch._refs``, ``torch._decomp`` (``isin``)."""
from __future__ import annotations

from typing import Any

import torch

from .. import ops as p
from ..core import Value
from ..meta import wrap_dim
from ..promote import computation_dtype, is_float, is_integer, to_float
from .registry import NoRule, full_like, number, prepare, rule
from .views import slice_dim

Pair = tuple[Value, Value]


def _sorted(x: Value, dim: int, descending: bool = False) -> Pair:
    return p.sort(x, wrap_dim(dim, x.ndim), descending)


@rule("sort.stable", library=True)
def sort_stable(x: Value, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Pair:
    return sort(x, dim, descending)


@rule("sort", library=True)
def sort(x: Value, dim: int = -1, descending: bool = False) -> Pair:
    return _sorted(x, dim, descending) if x.ndim else (x, full_like(x, 0, torch.int64))


@rule("topk", library=True)
def topk(x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if x.ndim == 0:
        return x, full_like(x, 0, torch.int64)
    dim = wrap_dim(dim, x.ndim)
    values, places = _sorted(x, dim, largest)
    return slice_dim(values, dim, 0, k), slice_dim(places, dim, 0, k)


@rule("kthvalue", library=True)
def kthvalue(x: Value, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    if x.ndim == 0:
        return x, full_like(x, 0, torch.int64)
    dim = wrap_dim(dim, x.ndim)
    return _at(_sorted(x, dim), dim, k - 1, keepdim)


def _at(found: Pair, dim: int, place: int, keepdim: bool) -> Pair:
    picked = [slice_dim(v, dim, place, place + 1) for v in found]
    shape = picked[0].shape if keepdim else picked[0].shape[:dim] + picked[0].shape[dim + 1:]
    return p.reshape(picked[0], shape), p.reshape(picked[1], shape)


@rule("median.dim", library=True)
def median_dim(x: Value, dim: int, keepdim: bool = False) -> Pair:
    """The lower one of the two in the middle; the first NaN where there is one."""
    return _median(x, dim, keepdim, False)


@rule("nanmedian.dim", library=True)
def nanmedian_dim(x: Value, dim: int, keepdim: bool = False) -> Pair:
    return _median(x, dim, keepdim, True)


def _median(x: Value, dim: int, keepdim: bool, skip_nan: bool) -> Pair:
    """NaNs are sorted behind the rest: skipping them, the middle moves with their number; else the first of them is taken."""
    if x.ndim == 0:
        return x, full_like(x, 0, torch.int64)
    dim = wrap_dim(dim, x.ndim)
    n, found = x.shape[dim], _sorted(x, dim)
    if n == 0:
        raise NoRule("the median of nothing")
    if not is_float(x.dtype):
        return _at(found, dim, (n - 1) // 2, keepdim)
    count = p.sum(p.convert(p.bitwise_not(p.isnan(x)), torch.int64), (dim,), True)
    if skip_nan:
        place = p.maximum(p.floordiv(count - 1, 2), 0)
    else:
        place = p.where(p.eq(count, n), full_like(count, (n - 1) // 2), count)
    picked = tuple([p.gather(v, dim, place) for v in found])
    return picked if keepdim else _at(picked, dim, 0, False)


@rule("median", library=True)
def median(x: Value) -> Value:
    return _median(p.reshape(x, (x.numel(),)), 0, False, False)[0]


@rule("nanmedian", library=True)
def nanmedian(x: Value) -> Value:
    return _median(p.reshape(x, (x.numel(),)), 0, False, True)[0]


@rule("searchsorted.Tensor", library=True)
def searchsorted(ordered: Value, values: Value, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Value | None = None) -> Value:
    if sorter is not None:
        ordered = p.gather(ordered, ordered.ndim - 1, sorter)
    dtype = computation_dtype(ordered, values)
    ordered, flat = p.convert(ordered, dtype), p.convert(values, dtype)
    if values.ndim == 0:
        flat = p.reshape(flat, (1,) * ordered.ndim)
    places = p.reshape(p.searchsorted(ordered, flat, right or side == "right"), values.shape)
    return p.convert(places, torch.int32) if out_int32 else places


@rule("searchsorted.Scalar", library=True)
def searchsorted_number(ordered: Value, value: Any, **options: Any) -> Value:
    return searchsorted(ordered, _tensor(value, ordered), **options)


def _tensor(value: Any, like: Value) -> Value:
    dtype = computation_dtype(like, value)
    return p.full((), number(value, dtype), dtype, like.device)


@rule("bucketize.Tensor", library=True)
def bucketize(x: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return searchsorted(boundaries, x, out_int32=out_int32, right=right)


@rule("bucketize.Scalar", library=True)
def bucketize_number(x: Any, boundaries: Value, **options: Any) -> Value:
    return bucketize(_tensor(x, boundaries), boundaries, **options)


@rule("isin.Tensor_Tensor", "isin.Tensor_Scalar", "isin.Scalar_Tensor", library=True)
def isin(x: Any, among: Any, *, assume_unique: bool = False, invert: bool = False) -> Value:
    """Every element of x against every one of the others."""
    dtype = computation_dtype(x, among)
    shape = x.shape if isinstance(x, Value) else ()
    device = (x if isinstance(x, Value) else among).device
    x, among = (p.convert(v, dtype) if isinstance(v, Value) else p.full((), number(v, dtype), dtype, device) for v in (x, among))
    table = (*shape, among.numel())
    pairs = p.eq(p.broadcast_in_dim(x, table, tuple(range(len(shape)))),
                 p.broadcast_in_dim(p.reshape(among, (among.numel(),)), table, (len(shape),)))
    found = p.any(pairs, (len(shape),))
    return p.bitwise_not(found) if invert else found


@rule("cumprod", library=True)
def cumprod(x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    x = p.convert(x, dtype or (torch.int64 if is_integer(x.dtype) else x.dtype))
    return x if x.ndim == 0 else p.cumprod(x, wrap_dim(dim, x.ndim))


@rule("logcumsumexp", "_logcumsumexp", library=True)
def logcumsumexp(x: Value, dim: int) -> Value:
    return x if x.ndim == 0 else p.logcumsumexp(x, wrap_dim(dim, x.ndim))


@rule("cummax", library=True)
def cummax(x: Value, dim: int) -> Pair:
    return p.cummax(x, wrap_dim(dim, x.ndim)) if x.ndim else (x, full_like(x, 0, torch.int64))


@rule("cummin", library=True)
def cummin(x: Value, dim: int) -> Pair:
    return p.cummin(x, wrap_dim(dim, x.ndim)) if x.ndim else (x, full_like(x, 0, torch.int64))


@rule("_aminmax", "_aminmax.dim", library=True)
def aminmax(x: Value, dim: int | None = None, keepdim: bool = False) -> Pair:
    dims = tuple(range(x.ndim)) if dim is None else (wrap_dim(dim, x.ndim),) if x.ndim else ()
    if 0 in [x.shape[d] for d in dims]:
        raise NoRule("an extremum of no elements")
    return p.amin(x, dims, keepdim), p.amax(x, dims, keepdim)


@rule("histc", library=True)
def histc(x: Value, bins: int = 100, min: Any = 0, max: Any = 0) -> Value:
    """Counts of the elements in equal bins from min to max (of the data when both are equal)."""
    if not is_float(x.dtype) or x.numel() == 0:
        raise NoRule("a histogram of integers or of nothing")
    flat = p.reshape(x, (x.numel(),))
    low, high = (p.full((), to_float(v), x.dtype, x.device) for v in (min, max))
    if min == max:
        low, high = p.amin(flat, (0,)), p.amax(flat, (0,))
        low, high = p.where(p.eq(low, high), low - 1.0, low), p.where(p.eq(low, high), high + 1.0, high)
    low, high, flat = prepare([low, high, flat], None)
    inside = p.logical_and(p.ge(flat, low), p.le(flat, high))
    place = p.convert(p.floor((flat - low) / (high - low) * to_float(bins)), torch.int64)
    place = p.minimum(p.maximum(p.where(inside, place, 0), 0), bins - 1)
    return p.index_put(p.full((bins,), 0.0, x.dtype, x.device), (place,), p.convert(inside, x.dtype), True)


def _histogram(x: Value, edges: Value, weight: Value | None, density: bool) -> tuple[Value, Value]:
    """(what falls between neighbouring edges, the last of which belongs to the last bin; edges)."""
    bins, flat = edges.shape[0] - 1, p.reshape(x, (x.numel(),))
    place = p.searchsorted(edges, flat, True) - 1
    last = p.broadcast_in_dim(slice_dim(edges, 0, bins, bins + 1), flat.shape, (0,))
    place = p.where(p.eq(flat, last), full_like(place, bins - 1), place)
    inside = p.logical_and(p.ge(place, 0), p.lt(place, bins))
    amount = full_like(flat, 1.0) if weight is None else p.reshape(weight, flat.shape)
    zeros = p.full((bins,), 0.0, x.dtype, x.device)
    counts = p.index_put(zeros, (p.where(inside, place, full_like(place, 0)),), p.where(inside, amount, 0.0), True)
    if density:
        widths = slice_dim(edges, 0, 1, bins + 1) - slice_dim(edges, 0, 0, bins)
        counts = counts / (widths * p.broadcast_in_dim(p.sum(counts, (0,), False), (bins,), ()))
    return counts, edges


@rule("histogram.bins_tensor", library=True)
def histogram_edges(x: Value, bins: Value, *, weight: Value | None = None, density: bool = False) -> tuple[Value, Value]:
    return _histogram(x, bins, weight, density)


@rule("mode", library=True)
def mode(x: Value, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent elements, and the position of its last occurrence: runs of equal ones in sorted order."""
    if x.ndim == 0:
        return x, full_like(x, 0, torch.int64)
    if x.dtype is torch.bool or x.numel() == 0:
        raise NoRule("the mode of bools or of nothing")
    dim = wrap_dim(dim, x.ndim)
    last = x.ndim - 1
    swap = tuple([{dim: last, last: dim}.get(d, d) for d in range(x.ndim)])
    values, places = p.sort(p.permute(x, swap), last, False)
    after = p.searchsorted(values, values, True)
    best = p.argmax(after - p.searchsorted(values, values, False), last, True)
    end = p.gather(after, last, best) - 1
    picked = tuple([p.permute(p.gather(v, last, end), swap) for v in (values, places)])
    return picked if keepdim else _at(picked, dim, 0, False)


@rule("nonzero_static", library=True)
def nonzero_static(x: Value, *, size: int, fill_value: int = -1) -> Value:
    """(size, ndim): places of the first elements that are not 0; rows that are left over hold fill_value."""
    mask = p.convert(p.reshape(x, (x.numel(),)), torch.bool)
    if size == 0 or x.ndim == 0:
        raise NoRule("places of no elements")
    rank = p.cumsum(p.convert(mask, torch.int64), 0) - 1
    row = p.where(p.logical_and(mask, p.lt(rank, size)), rank, full_like(rank, size))
    columns, step = [], 1
    for n in reversed(x.shape):
        at = p.remainder(p.floordiv(p.iota(x.numel(), 0, 1, torch.int64, x.device), step), n)
        column = p.index_put(p.full((size + 1,), fill_value, torch.int64, x.device), (row,), at, False)
        columns.append(p.reshape(slice_dim(column, 0, 0, size), (size, 1)))
        step *= n
    return p.cat(tuple(reversed(columns)), 1)
