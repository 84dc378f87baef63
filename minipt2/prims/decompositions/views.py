"""Views and shape changes. In a functional graph a view is a value like any other: eager's strides only matter at the outputs.

Upstream: ``torch._refs`` (shape ops), ``torch._decomp`` (``slice_forward``, ``unfold``).
"""
from __future__ import annotations

from typing import Sequence

import torch

from ...shapes.known import key, same, same_all
from .. import ops as p
from ..core import Value
from ..meta import contiguous_strides, diagonal_length, dims_by_stride, infer_size, numel, same_layout, slice_bounds, split_sizes, wrap_dim
from .registry import NoRule, rule

Ints = Sequence[int]


@rule("view", "_unsafe_view", "reshape", "_reshape_copy", "view_copy", "_reshape_alias")
def reshape(x: Value, shape: Ints, strides: Ints | None = None) -> Value:
    return p.reshape(x, infer_size(shape, x.numel()))


@rule("view.dtype", "view_copy.dtype")
def view_dtype(x: Value, dtype: torch.dtype) -> Value:
    if x.dtype.itemsize != dtype.itemsize or dtype.is_complex:
        raise NoRule("view as a dtype of another width")
    return x if x.dtype is dtype else p.bitcast(x, dtype)


@rule("expand", "expand_copy")
def expand(x: Value, size: Ints, *, implicit: bool = False) -> Value:
    lead = len(size) - x.ndim
    shape = tuple([x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)])
    return p.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


@rule("permute", "permute_copy")
def permute(x: Value, dims: Ints) -> Value:
    return p.permute(x, tuple([wrap_dim(d, x.ndim) for d in dims]))


@rule("transpose.int", "transpose_copy.int", "swapaxes", "swapdims")
def transpose(x: Value, dim0: int, dim1: int) -> Value:
    dims = list(range(x.ndim))
    if dims:
        a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
        dims[a], dims[b] = dims[b], dims[a]
    return p.permute(x, tuple(dims))


@rule("t", "t_copy", "numpy_T", "mT")
def t(x: Value) -> Value:
    return x if x.ndim < 2 else transpose(x, -2, -1)


@rule("movedim.int", "moveaxis.int")
def movedim(x: Value, source: int, destination: int) -> Value:
    dims = [d for d in range(x.ndim) if d != wrap_dim(source, x.ndim)]
    dims.insert(wrap_dim(destination, x.ndim), wrap_dim(source, x.ndim))
    return p.permute(x, tuple(dims))


@rule("slice.Tensor", "slice_copy.Tensor")
def slice(x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    dim = wrap_dim(dim, x.ndim)
    return slice_dim(x, dim, *slice_bounds(x.shape[dim], start, end), step)


def slice_dim(x: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
    """``p.slice`` along one dimension; all arguments already in range."""
    starts, ends, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[dim], ends[dim], steps[dim] = start, end, step
    return p.slice(x, tuple(starts), tuple(ends), tuple(steps))


@rule("narrow", "narrow_copy")
def narrow(x: Value, dim: int, start: int, length: int) -> Value:
    dim = wrap_dim(dim, x.ndim)
    if not isinstance(start, (int, torch.SymInt)):
        raise NoRule("narrow at a position held by a tensor")
    start = start + x.shape[dim] if start < 0 else start
    return slice_dim(x, dim, start, start + length)


@rule("select.int", "select_copy.int")
def select(x: Value, dim: int, index: int) -> Value:
    dim = wrap_dim(dim, x.ndim)
    if not isinstance(index, (int, torch.SymInt)):
        raise NoRule("select at a position held by a tensor")
    index = index + x.shape[dim] if index < 0 else index
    return p.reshape(slice_dim(x, dim, index, index + 1), x.shape[:dim] + x.shape[dim + 1:])


@rule("unsqueeze", "unsqueeze_copy")
def unsqueeze(x: Value, dim: int) -> Value:
    dim = wrap_dim(dim, x.ndim + 1)
    return p.reshape(x, x.shape[:dim] + (1,) + x.shape[dim:])


@rule("squeeze", "squeeze_copy")
def squeeze(x: Value) -> Value:
    return p.reshape(x, tuple([n for n in x.shape if n != 1]))


@rule("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims")
def squeeze_dims(x: Value, dim: int | Ints) -> Value:
    dims = [wrap_dim(d, x.ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    return p.reshape(x, tuple([n for i, n in enumerate(x.shape) if n != 1 or i not in dims]))


@rule("split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes", "split.sizes")
def split_with_sizes(x: Value, split_sizes: Ints, dim: int = 0) -> list[Value]:
    dim, start, parts = wrap_dim(dim, x.ndim), 0, []
    for size in split_sizes:
        parts.append(slice_dim(x, dim, start, start + size))
        start += size
    return parts


@rule("split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor")
def split(x: Value, split_size: int, dim: int = 0) -> list[Value]:
    return split_with_sizes(x, split_sizes(x.shape[wrap_dim(dim, x.ndim)], split_size), dim)


@rule("chunk")
def chunk(x: Value, chunks: int, dim: int = 0) -> list[Value]:
    size = x.shape[wrap_dim(dim, x.ndim)]
    return split(x, -(-size // chunks), dim) if size else split_with_sizes(x, [0] * chunks, dim)


@rule("unbind.int", "unbind_copy.int")
def unbind(x: Value, dim: int = 0) -> list[Value]:
    return [select(x, dim, i) for i in range(int(x.shape[wrap_dim(dim, x.ndim)]))]


@rule("flatten.using_ints")
def flatten(x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    if x.ndim == 0:
        return p.reshape(x, (1,))
    a, b = wrap_dim(start_dim, x.ndim), wrap_dim(end_dim, x.ndim)
    return p.reshape(x, x.shape[:a] + (numel(x.shape[a:b + 1]),) + x.shape[b + 1:])


@rule("unflatten.int")
def unflatten(x: Value, dim: int, sizes: Ints) -> Value:
    dim = wrap_dim(dim, x.ndim)
    return p.reshape(x, x.shape[:dim] + infer_size(sizes, x.shape[dim]) + x.shape[dim + 1:])


@rule("diagonal", "diagonal_copy")
def diagonal(x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The matrix flattened row by row holds its diagonal at a step of one row and one column."""
    dim1, dim2 = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    rest = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = diagonal_length(rows, columns, offset)
    lead = tuple([x.shape[d] for d in rest])
    flat = p.reshape(p.permute(x, (*rest, dim1, dim2)), (*lead, rows * columns))
    if same(length, 0):
        return slice_dim(flat, len(lead), 0, 0)
    start = offset if offset >= 0 else -offset * columns
    return slice_dim(flat, len(lead), start, start + (length - 1) * (columns + 1) + 1, columns + 1)


@rule("unfold", "unfold_copy")
def unfold(x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along one dimension, as a new last dimension."""
    if x.ndim == 0:
        return p.reshape(slice_dim(p.reshape(x, (1,)), 0, 0, size), (size,))
    dim = wrap_dim(dimension, x.ndim)
    count = (x.shape[dim] - size) // step + 1
    if same(size, step):
        windows = slice_dim(x, dim, 0, count * size)
    else:
        windows = p.index_select(x, dim, window_index(count, size, step, x.device))
    windows = p.reshape(windows, (*x.shape[:dim], count, size, *x.shape[dim + 1:]))
    order = [d for d in range(windows.ndim) if d != dim + 1]
    return p.permute(windows, (*order, dim + 1))


def window_index(count: int, size: int, step: int, device: torch.device) -> Value:
    """Positions of all elements of ``count`` windows: i * step + j, flattened."""
    at = p.broadcast_in_dim(p.iota(count, 0, step, torch.int64, device), (count, size), (0,))
    within = p.broadcast_in_dim(p.iota(size, 0, 1, torch.int64, device), (count, size), (1,))
    return p.reshape(at + within, (count * size,))


@rule("as_strided", "as_strided_copy")
def as_strided(x: Value, size: Ints, stride: Ints, storage_offset: int | None = None) -> Value:
    """The memory from x's first element on: another order of its dimensions, or else read position by position."""
    size, stride = tuple(size), tuple(stride)
    if storage_offset is not None:
        raise NoRule("as_strided at a position of the storage: only the eager tensor knows where it begins")
    if same_all(x.shape, size) and same_layout(size, x.strides, stride):
        return x
    pairs = [(key(n), key(s)) for n, s in zip(x.shape, x.strides)]
    wanted = [(key(n), key(s)) for n, s in zip(size, stride)]
    if len(set(pairs)) == len(pairs) == len(wanted) and set(pairs) == set(wanted):
        return p.permute(x, tuple([pairs.index(pair) for pair in wanted]))
    memory = p.permute(x, tuple(dims_by_stride(x.strides)[::-1]))
    reach = 1 + sum((n - 1) * s for n, s in zip(size, stride))
    if any(n == 0 for n in size) or reach > x.numel() or not same_layout(memory.shape, memory.strides, contiguous_strides(memory.shape)):
        raise NoRule("as_strided over memory that is not all x's")
    at = p.iota(1, 0, 1, torch.int64, x.device)
    at = p.broadcast_in_dim(at, size, (0,)) if size else p.reshape(at, ())
    for dim, (n, step) in enumerate(zip(size, stride)):
        if not same(step, 0) and not same(n, 1):
            at = at + p.broadcast_in_dim(p.iota(n, 0, step, torch.int64, x.device), size, (dim,))
    picked = p.index_select(p.reshape(memory, (x.numel(),)), 0, p.reshape(at, (numel(size),)))
    return p.reshape(picked, size)
