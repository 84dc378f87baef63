"""Write through a view: given a base, one view of it and the view's new value, the base's new value.

One rule per view operator. Upstream: ``aten/src/ATen/FunctionalInverses.cpp``.
"""
from __future__ import annotations

import operator
from typing import Any, Callable

import torch
from torch import fx

from ..errors import Unsupported
from ..shapes.known import same
from .ops import argument, aten, storage_root

Emit = Callable[..., fx.Node]


def _reshape(emit: Emit, value: fx.Node, shape: Any) -> fx.Node:
    try:
        return emit(aten.view.default, (value, list(shape)))
    except RuntimeError:  # not viewable as it lies in memory
        value = emit(aten.clone.default, (value,), {"memory_format": torch.contiguous_format})
        return emit(aten.view.default, (value, list(shape)))


def _same_arguments(target: Any) -> Callable:
    """The view is its own inverse, or a scatter that takes the same arguments after the value."""
    def rule(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
        return emit(target, (value, *view.args[1:]), view.kwargs)
    return rule


def _scatter(target: Any) -> Callable:
    def rule(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
        return emit(target, (base, value, *view.args[1:]), view.kwargs)
    return rule


def _to_base_shape(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
    return _reshape(emit, value, base.meta["val"].shape)


def _permute(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
    rank = len(view.args[1])
    order = [d % rank for d in view.args[1]]
    return emit(aten.permute.default, (value, sorted(range(rank), key=lambda d: order[d])))


def _expand(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
    if not same(base.meta["val"].numel(), value.meta["val"].numel()):
        raise Unsupported("MP502", "an in-place write into an expanded tensor", "clone() it first")
    return _to_base_shape(emit, view, base, value)


def through_strides(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node, start: int) -> fx.Node:
    """Any view at all, of a base without gaps: by the strides that it has, ``start`` elements after the first of ``base``."""
    if storage_root(base).op != "call_function" or not same(base.meta["val"].storage_offset(), 0):
        base = emit(aten.clone.default, (base,))  # an offset counts from the start of a storage
    val = view.meta["val"]
    return emit(aten.as_strided_scatter.default, (base, value, list(val.shape), list(val.stride()), start))


def _element(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
    """Element ``i`` of ``split`` or ``unbind``."""
    source, index = view.args
    if source.target is aten.unbind.int:
        return emit(aten.select_scatter.default, (base, value, argument(source.args, source.kwargs, source.target, 1), index))
    dim = argument(source.args, source.kwargs, source.target, 2)
    parts = [v.shape[dim] for v in source.meta["val"]]
    start = sum(parts[:index])
    return emit(aten.slice_scatter.default, (base, value, dim, start, start + parts[index]))


def _view_dtype(emit: Emit, view: fx.Node, base: fx.Node, value: fx.Node) -> fx.Node:
    return emit(aten.view.dtype, (value, base.meta["val"].dtype))


_nothing = lambda emit, view, base, value: value  # noqa: E731

INVERSES: dict[Any, Callable] = {
    aten.slice.Tensor: _scatter(aten.slice_scatter.default),
    aten.select.int: _scatter(aten.select_scatter.default),
    aten.diagonal.default: _scatter(aten.diagonal_scatter.default),
    aten.permute.default: _permute,
    aten.transpose.int: _same_arguments(aten.transpose.int),
    aten.t.default: _same_arguments(aten.t.default),
    aten._conj.default: _same_arguments(aten._conj.default),
    aten._neg_view.default: _same_arguments(aten._neg_view.default),
    aten.view_as_real.default: _same_arguments(aten.view_as_complex.default),
    aten.view_as_complex.default: _same_arguments(aten.view_as_real.default),
    aten.view.default: _to_base_shape,
    aten._reshape_alias.default: _to_base_shape,
    aten.squeeze.default: _to_base_shape,
    aten.squeeze.dim: _to_base_shape,
    aten.squeeze.dims: _to_base_shape,
    aten.unsqueeze.default: _to_base_shape,
    aten.expand.default: _expand,
    aten.view.dtype: _view_dtype,
    aten.detach.default: _nothing,
    aten.alias.default: _nothing,
    aten.lift_fresh.default: _nothing,
    operator.getitem: _element,
}
"""View operator -> ``rule(emit, view, base, value)``: the value of the whole when ``view`` (a view node; its recorded arguments count) of
``base`` holds ``value``. ``emit(target, args, kwargs)`` appends a node. Any other view is written by ``through_strides``."""
