"""Views of tensors whose sizes are symbols, and what else torch's own meta kernels refuse symbols for: C++ that takes known numbers only.

A view is told by its sizes, strides and place in the storage, all computed here in Python, where a question that decides nothing leaves
no guard. Static sizes never come here. Upstream: ``torch._refs`` and ``torch._decomp.decompositions`` (``slice_forward``, ``unfold`` …).
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch._ops import OpOverload

from ..prims.meta import as_many, channels_last_strides, diagonal_length, format_strides, infer_size, is_channels_last, numel, slice_bounds, sliced_shape, split_sizes, view_strides, wrap_dim, wrap_dims
from ..shapes.known import SYMBOLIC, must_equal, same, settled
from .families import Irregular, new
from .tensor import FakeMode, FakeTensor

aten = torch.ops.aten
Rule = Callable[[FakeMode, OpOverload, tuple, dict], Any]
VIEWS: dict[OpOverload, Rule] = {}
"""Overload -> its rule for symbolic operands or arguments. Most are views."""


def view(*overloads: OpOverload) -> Callable[[Callable], Callable]:
    """Put the rule ``fn(x, *arguments)``, given the shape, strides and offset of ``x``, into the table."""
    def put(fn: Callable) -> Callable:
        def rule(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
            x = args[0]
            if kwargs or len(args) < len(func._schema.arguments):
                args = (*args, *[kwargs.get(a.name, a.default_value) for a in func._schema.arguments[len(args):]])
            found = fn(_Look(x), *args[1:])
            looks = [_taken(mode, x, look) for look in (found if isinstance(found, list) else [found])]
            return looks if isinstance(found, list) else looks[0]
        VIEWS.update(dict.fromkeys(overloads, rule))
        return fn
    return put


def has_symbols(args: Any) -> bool:
    """Whether a tensor or a number among the arguments of an operator is symbolic."""
    for a in args:
        kind = a.__class__
        if kind is FakeTensor:
            if a.elem._has_symbolic_sizes_strides:
                return True
        elif kind is list or kind is tuple or kind is torch.Size:
            if a and has_symbols(a):
                return True
        elif isinstance(a, SYMBOLIC):
            return True
    return False


class _Look:
    """How a view shows a storage: what rules read, and what they return."""

    def __init__(self, x: Any, shape: Sequence[Any] | None = None, strides: Sequence[Any] | None = None, offset: Any = None):
        self.shape = tuple(x.shape if shape is None else shape)
        own = x.stride() if isinstance(x, torch.Tensor) else x.strides
        self.strides = tuple(own if strides is None else strides)
        self.offset = (x.storage_offset() if isinstance(x, torch.Tensor) else x.offset) if offset is None else offset

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def having(self, dim: int, size: Any, stride: Any, offset: Any = None) -> "_Look":
        """With another size and stride at one dimension."""
        shape, strides = list(self.shape), list(self.strides)
        shape[dim], strides[dim] = size, stride
        return _Look(self, shape, strides, offset)

    def without(self, dims: Sequence[int]) -> "_Look":
        kept = [d for d in range(self.ndim) if d not in dims]
        return _Look(self, [self.shape[d] for d in kept], [self.strides[d] for d in kept])


def _taken(mode: FakeMode, x: FakeTensor, look: _Look) -> FakeTensor:
    return FakeTensor(mode, x.elem.as_strided(settled(look.shape), settled(look.strides), *settled((look.offset,))), x.fake_device)


@view(aten.view.default, aten._unsafe_view.default)
def _view(x: _Look, size: Sequence[Any]) -> _Look:
    shape = infer_size(size, numel(x.shape))
    if not as_many(x.shape, shape):
        raise RuntimeError(f"shape '{list(size)}' is invalid for input of size {numel(x.shape)}")
    strides = view_strides(x.shape, x.strides, shape)
    if strides is None:
        raise RuntimeError("view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
                           "subspaces). Use .reshape(...) instead.")
    return _Look(x, shape, strides)


@view(aten._reshape_alias.default)
def _reshape_alias(x: _Look, size: Sequence[Any], stride: Sequence[Any]) -> _Look:
    return _Look(x, size, stride)


@view(aten.as_strided.default)
def _as_strided(x: _Look, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any) -> _Look:
    return _Look(x, size, stride, storage_offset)


@view(aten.expand.default)
def _expand(x: _Look, size: Sequence[Any], implicit: bool) -> _Look:
    lead = len(size) - x.ndim
    shape, strides = list(size), [0] * len(size)
    for d, (n, stride) in enumerate(zip(x.shape, x.strides), lead):
        wanted = size[d]
        if same(wanted, -1) or same(n, wanted):
            shape[d], strides[d] = n, stride
        elif same(n, 1) or n != wanted and n == 1:
            strides[d] = 0
        elif n == wanted:
            strides[d] = stride
        else:
            raise RuntimeError(f"The expanded size of the tensor ({wanted}) must match the existing size ({n}) at non-singleton dimension {d}.")
    return _Look(x, shape, strides)


@view(aten.permute.default)
def _permute(x: _Look, dims: Sequence[int]) -> _Look:
    order = [wrap_dim(d, x.ndim) for d in dims]
    if sorted(order) != list(range(x.ndim)):
        raise RuntimeError(f"permute(dims): {list(dims)} is no order of {x.ndim} dimensions")
    return _Look(x, [x.shape[d] for d in order], [x.strides[d] for d in order])


@view(aten.transpose.int)
def _transpose(x: _Look, dim0: int, dim1: int) -> _Look:
    order = list(range(x.ndim))
    if order:
        a, b = wrap_dim(dim0, x.ndim), wrap_dim(dim1, x.ndim)
        order[a], order[b] = order[b], order[a]
    return _permute(x, order)


@view(aten.t.default)
def _t(x: _Look) -> _Look:
    return _permute(x, range(x.ndim)[::-1])


@view(aten.slice.Tensor)
def _slice(x: _Look, dim: int, start: Any, end: Any, step: int) -> _Look:
    dim = wrap_dim(dim, x.ndim)
    start, end = slice_bounds(x.shape[dim], start, end)
    size, = sliced_shape((start,), (end,), (step,))
    return x.having(dim, size, x.strides[dim] * step, x.offset + start * x.strides[dim])


@view(aten.select.int)
def _select(x: _Look, dim: int, index: Any) -> _Look:
    dim = wrap_dim(dim, x.ndim)
    size = x.shape[dim]
    if not -size <= index or not index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.shape)} at dimension {dim}")
    at = index + size if index < 0 else index
    return _Look(x.without([dim]), offset=x.offset + at * x.strides[dim])


@view(aten.unsqueeze.default)
def _unsqueeze(x: _Look, dim: int) -> _Look:
    dim = wrap_dim(dim, x.ndim + 1)
    step = x.shape[dim] * x.strides[dim] if dim < x.ndim else 1
    return _Look(x, (*x.shape[:dim], 1, *x.shape[dim:]), (*x.strides[:dim], step, *x.strides[dim:]))


@view(aten.squeeze.default)
def _squeeze(x: _Look) -> _Look:
    return x.without([d for d, n in enumerate(x.shape) if n == 1])


@view(aten.squeeze.dim, aten.squeeze.dims)
def _squeeze_dims(x: _Look, dims: Any) -> _Look:
    return x.without([d for d in wrap_dims(dims, x.ndim, empty_means_all=False) if x.shape[d] == 1])


@view(aten.split_with_sizes.default)
def _split_with_sizes(x: _Look, sizes: Sequence[Any], dim: int) -> list[_Look]:
    dim, start, parts = wrap_dim(dim, x.ndim), 0, []
    if not must_equal(sum(sizes), x.shape[dim]):
        raise RuntimeError(f"split_with_sizes expects split_sizes to sum exactly to {x.shape[dim]} (input tensor's size at dimension {dim}), "
                           f"but got split_sizes={list(sizes)}")
    for size in sizes:
        parts.append(x.having(dim, size, x.strides[dim], x.offset + start * x.strides[dim]))
        start = start + size
    return parts


@view(aten.split.Tensor)
def _split(x: _Look, size: Any, dim: int) -> list[_Look]:
    """As many parts as there are now: their number is the length of a Python list."""
    total = x.shape[wrap_dim(dim, x.ndim)]
    return _split_with_sizes(x, split_sizes(total, size), dim)


@view(aten.unbind.int)
def _unbind(x: _Look, dim: int) -> list[_Look]:
    return [_select(x, dim, i) for i in range(int(x.shape[wrap_dim(dim, x.ndim)]))]


@view(aten.diagonal.default)
def _diagonal(x: _Look, offset: int, dim1: int, dim2: int) -> _Look:
    dim1, dim2 = wrap_dim(dim1, x.ndim), wrap_dim(dim2, x.ndim)
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = diagonal_length(rows, columns, offset)
    start = x.offset
    if not same(length, 0):
        start = start + (offset * x.strides[dim2] if offset >= 0 else -offset * x.strides[dim1])
    rest = x.without([dim1, dim2])
    return _Look(rest, (*rest.shape, length), (*rest.strides, x.strides[dim1] + x.strides[dim2]), start)


@view(aten.unfold.default)
def _unfold(x: _Look, dim: int, size: Any, step: int) -> _Look:
    if not x.ndim:
        return _Look(x, (size,), (1,))
    dim = wrap_dim(dim, x.ndim)
    if size > x.shape[dim]:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {x.shape[dim]} but size is {size}")
    windows = x.having(dim, (x.shape[dim] - size) // step + 1, x.strides[dim] * step)
    return _Look(windows, (*windows.shape, size), (*windows.strides, x.strides[dim]))


# -- not views, but refused symbols all the same ----------------------------------------------------------------------
def _copied(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x = args[0]
    if kwargs.get("layout") not in (None, torch.strided):
        raise Irregular
    device = torch.device(kwargs.get("device") or x.fake_device)
    return new(mode, x.shape, x, kwargs.get("dtype"), format_strides(_Look(x), kwargs.get("memory_format")), device)


def _constant_pad(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, pad = args[0], args[1]
    shape = list(x.shape)
    for i in range(len(pad) // 2):
        shape[-1 - i] = shape[-1 - i] + pad[2 * i] + pad[2 * i + 1]
        if shape[-1 - i] < 0:
            raise RuntimeError(f"padding {list(pad)} crops more of {list(x.shape)} than there is")
    last = is_channels_last(tuple(x.shape), tuple(x.stride()))
    return new(mode, shape, x, None, channels_last_strides(shape) if last else None)


def _pixel_shuffle(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, factor = args
    *lead, c, h, w = x.shape
    if func is aten.pixel_shuffle.default:
        c, h, w = c // (factor * factor), h * factor, w * factor
    else:
        c, h, w = c * (factor * factor), h // factor, w // factor
    last = is_channels_last(tuple(x.shape), tuple(x.stride()))
    return new(mode, (*lead, c, h, w), x, None, channels_last_strides((*lead, c, h, w)) if last else None)


VIEWS[aten.pixel_shuffle.default] = VIEWS[aten.pixel_unshuffle.default] = _pixel_shuffle
VIEWS[aten._to_copy.default] = VIEWS[aten.clone.default] = _copied
VIEWS[aten.constant_pad_nd.default] = _constant_pad

