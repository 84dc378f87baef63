"""Prims that move elements without computing on them: views, joining and padding, creation, and indexing.

View prims show their operand's elements in another arrangement; whether that costs a copy is the compiler's affair.
Upstream: the view, shape, data-movement and creation sections of ``torch._prims``.
"""
from __future__ import annotations

import builtins
from typing import Any, Sequence

import torch

from ..shapes.known import equal_all, same
from .core import Number, TensorMeta, prim
from .meta import (as_many, broadcast_shapes, contiguous_strides, dims_by_stride, elementwise_strides, is_dense, same_layout, sliced_shape,
                   strides_in_order, view_strides)

T = TensorMeta
Ints = Sequence[int]


def _fresh(x: TensorMeta, shape: Ints, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(tuple(shape), dtype or x.dtype, x.device, contiguous_strides(shape))


# Views

def _broadcast_ref(x: torch.Tensor, shape: Ints, dims: Ints) -> torch.Tensor:
    full = [1] * len(shape)
    for size, dim in zip(x.shape, dims):
        full[dim] = size
    return x.reshape(full).expand(tuple(shape))


@prim("view", _broadcast_ref)
def broadcast_in_dim(x: T, shape: Ints, dims: Ints) -> T:
    """Dimension i of x becomes dimension dims[i] (increasing) of the result; all others, and those of size 1, repeat."""
    strides = [0] * len(shape)
    if len(dims) != x.ndim:
        raise ValueError(f"prims.broadcast_in_dim needs a place for each dimension of {x}, got {dims}")
    for size, stride, dim in zip(x.shape, x.strides, dims):
        if same(size, shape[dim]) or not same(size, 1) and size == shape[dim]:
            strides[dim] = stride
        elif size != 1:
            raise ValueError(f"prims.broadcast_in_dim cannot repeat dimension of size {size} to {shape[dim]}")
    return TensorMeta(tuple(shape), x.dtype, x.device, tuple(strides))


@prim("view", lambda x, shape: x.reshape(shape))
def reshape(x: T, shape: Ints) -> T:
    """The same elements in row-major order in another shape (no -1)."""
    if not as_many(x.shape, shape):
        raise ValueError(f"prims.reshape: {x} has not the elements of shape {tuple(shape)}")
    strides = view_strides(x.shape, x.strides, tuple(shape))
    return TensorMeta(tuple(shape), x.dtype, x.device, contiguous_strides(shape) if strides is None else strides)


@prim("view", lambda x, dims: x.permute(dims))
def permute(x: T, dims: Ints) -> T:
    """Dimension i of the result is dimension dims[i] of x."""
    return TensorMeta(tuple([x.shape[d] for d in dims]), x.dtype, x.device, tuple([x.strides[d] for d in dims]))


def _slice_ref(x: torch.Tensor, starts: Ints, ends: Ints, steps: Ints) -> torch.Tensor:
    return x[tuple([builtins.slice(*s) for s in zip(starts, ends, steps)])]


@prim("view", _slice_ref)
def slice(x: T, starts: Ints, ends: Ints, steps: Ints) -> T:
    """Elements start, start+step, ... below end in every dimension; 0 <= start <= end <= size, step >= 1."""
    return TensorMeta(sliced_shape(starts, ends, steps), x.dtype, x.device, tuple([s * step for s, step in zip(x.strides, steps)]))


@prim("view", lambda x, dims: x.flip(dims))
def flip(x: T, dims: Ints) -> T:
    """x with the order of elements reversed along dims."""
    return TensorMeta(x.shape, x.dtype, x.device, elementwise_strides(x))


# Data movement

def _cat_strides(xs: Sequence[TensorMeta], shape: Ints) -> tuple[int, ...]:
    """cat keeps channels-last when all its operands have it; it is row-major otherwise."""
    first = xs[0]
    if first.ndim in (4, 5):
        order = [1, *range(first.ndim - 1, 1, -1), 0]
        if all(same_layout(x.shape, x.strides, strides_in_order(x.shape, order)) and
               not same_layout(x.shape, x.strides, contiguous_strides(x.shape)) for x in xs):
            return strides_in_order(shape, order)
    return contiguous_strides(shape)


@prim("pointwise", lambda xs, dim: torch.cat(list(xs), dim))
def cat(xs: Sequence[T], dim: int) -> T:
    """Tensors of one dtype and rank one after the other along dim; all other sizes agree."""
    first = xs[0]
    for x in xs:
        if x.dtype is not first.dtype or not equal_all(x.shape[:dim] + x.shape[dim + 1:], first.shape[:dim] + first.shape[dim + 1:]):
            raise ValueError(f"prims.cat: {x} does not continue {first} along dimension {dim}")
    shape = first.shape[:dim] + (sum(x.shape[dim] for x in xs),) + first.shape[dim + 1:]
    return TensorMeta(shape, first.dtype, first.device, _cat_strides(xs, shape))


def _pad_ref(x: torch.Tensor, lo: Ints, hi: Ints, value: Number) -> torch.Tensor:
    pads = [p for pair in zip(reversed(lo), reversed(hi)) for p in pair]
    return torch.constant_pad_nd(x, pads, value)


@prim("pointwise", _pad_ref)
def pad(x: T, lo: Ints, hi: Ints, value: Number) -> T:
    """lo[i] elements of value before and hi[i] after x along each dimension; negative amounts crop."""
    shape = tuple([n + a + b for n, a, b in zip(x.shape, lo, hi)])
    if any(n < 0 for n in shape):
        raise ValueError(f"prims.pad crops more of {x} than there is: {lo}, {hi}")
    order = dims_by_stride(x.strides) if x.ndim in (4, 5) and is_dense(x.shape, x.strides) else None
    return TensorMeta(shape, x.dtype, x.device, strides_in_order(shape, order) if order else contiguous_strides(shape))


def _copy_strided_ref(x: torch.Tensor, strides: Ints) -> torch.Tensor:
    out = target = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device)
    for d, stride in enumerate(strides):
        if stride == 0 and x.shape[d] > 1:  # one element for all: x repeats itself there
            target, x = target.narrow(d, 0, 1), x.narrow(d, 0, 1)
    target.copy_(x)
    return out


@prim("pointwise", _copy_strided_ref)
def copy_strided(x: T, strides: Ints) -> T:
    """The same elements in memory of their own with the given strides: dense, with gaps, or 0 where x repeats itself."""
    return TensorMeta(x.shape, x.dtype, x.device, tuple(strides))


# Creation

@prim("creation", lambda shape, value, dtype, device: torch.full(shape, value, dtype=dtype, device=device))
def full(shape: Ints, value: Number, dtype: torch.dtype, device: torch.device) -> T:
    """A tensor of one value."""
    return TensorMeta(tuple(shape), dtype, device, contiguous_strides(shape))


def _iota_ref(length: int, start: Number, step: Number, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return (torch.arange(length, dtype=dtype, device=device) * step + start).to(dtype)


@prim("creation", _iota_ref)
def iota(length: int, start: Number, step: Number, dtype: torch.dtype, device: torch.device) -> T:
    """start + i * step for i in 0 .. length - 1."""
    return TensorMeta((length,), dtype, device, (1,))


# Indexing

@prim("index", lambda x, dim, index: x.gather(dim, index))
def gather(x: T, dim: int, index: T) -> T:
    """out[i][j][k] = x[i][index[i][j][k]][k] (dim 1); indices are int64, not negative."""
    return _fresh(x, index.shape)


@prim("index", lambda x, dim, index: x.index_select(dim, index))
def index_select(x: T, dim: int, index: T) -> T:
    """The slices of x along dim that the 1-d int64 index names; indices are not negative."""
    return _fresh(x, x.shape[:dim] + index.shape + x.shape[dim + 1:])


@prim("index", lambda x, indices: torch.ops.aten.index.Tensor(x, list(indices)))
def index(x: T, indices: Sequence[T | None]) -> T:
    """x[indices]: int64 tensors of one shape, which take the place of their dimensions (in front when not adjacent); negative ones wrap."""
    shape = index_shape(x.shape, indices)
    at = [i for i, index in enumerate(indices) if index is not None]
    kept = [stride for i, stride in enumerate(x.strides) if i not in at]
    place, rank = (at[0] if at[-1] - at[0] == len(at) - 1 else 0), len(shape) - len(kept)
    operands = [TensorMeta(shape, x.dtype, x.device, (*kept[:place], *[0] * rank, *kept[place:]))]  # as TensorIterator sees them
    before, after = (0,) * place, (0,) * (len(kept) - place)
    operands += [TensorMeta(shape, torch.int64, x.device, (*before, *indices[i].strides, *after)) for i in at]
    return TensorMeta(shape, x.dtype, x.device, elementwise_strides(*operands))


def index_shape(shape: Ints, indices: Sequence[Any]) -> tuple[int, ...]:
    """The shape of x[indices] for x of ``shape``."""
    at = [i for i, index in enumerate(indices) if index is not None]
    picked = broadcast_shapes(*[indices[i].shape for i in at])
    kept = [n for i, n in enumerate(shape) if i not in at]
    place = at[0] if at == list(range(at[0], at[-1] + 1)) else 0
    return (*kept[:place], *picked, *kept[place:])


@prim("index", lambda x, dim, index, src: x.scatter(dim, index, src))
def scatter(x: T, dim: int, index: T, src: T) -> T:
    """x with x[i][index[i][j][k]][k] = src[i][j][k] (dim 1)."""
    return _fresh(x, x.shape)


@prim("index", lambda x, dim, index, src: x.scatter_add(dim, index, src))
def scatter_add(x: T, dim: int, index: T, src: T) -> T:
    """x with src added where scatter would store it; repeated indices add up in order."""
    return _fresh(x, x.shape)


def _index_put_ref(x: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool) -> torch.Tensor:
    return torch.ops.aten.index_put.default(x, list(indices), values, accumulate)


@prim("index", _index_put_ref)
def index_put(x: T, indices: Sequence[T | None], values: T, accumulate: bool) -> T:
    """x with x[indices] = values, or += values; indices as in ``index``, values of the shape of x[indices]."""
    return TensorMeta(x.shape, x.dtype, x.device, elementwise_strides(x))
