"""Sorting, searching, and scans other than sums. Upstream: ``torch._inductor`` (``sort``, ``associative_scan``), ``torch._prims.cumsum``."""
from __future__ import annotations

from typing import Any

import torch

from .core import TensorMeta, prim
from .meta import contiguous_strides, elementwise_strides

T = TensorMeta


def _rows(x: TensorMeta, dtype: torch.dtype | None = None) -> TensorMeta:
    return TensorMeta(x.shape, dtype or x.dtype, x.device, contiguous_strides(x.shape))


@prim("reduction", lambda x, dim, descending: torch.sort(x, dim=dim, descending=descending, stable=True))
def sort(x: T, dim: int, descending: bool = False) -> tuple[T, T]:
    """(values in order along dim, int64 positions they came from); equal ones keep their order, NaN counts as largest."""
    strides = elementwise_strides(x)
    return TensorMeta(x.shape, x.dtype, x.device, strides), TensorMeta(x.shape, torch.int64, x.device, strides)


def _searchsorted_ref(ordered: torch.Tensor, values: torch.Tensor, right: bool) -> torch.Tensor:
    return torch.searchsorted(ordered, values, right=right)


@prim("index", _searchsorted_ref)
def searchsorted(ordered: T, values: T, right: bool) -> T:
    """int64 places along the last dimension where values belong: before equal elements, or behind them if right. ``ordered`` is ascending,
    1-d or with the leading sizes of values."""
    return _rows(values, torch.int64)


@prim("reduction", lambda x, dim: torch.cumprod(x, dim, dtype=x.dtype))
def cumprod(x: T, dim: int) -> T:
    """Running product along dim, in the operand's dtype."""
    return _rows(x)


@prim("reduction", torch.logcumsumexp)
def logcumsumexp(x: T, dim: int) -> T:
    """Logarithm of the running sum of exp(x) along dim, without overflow."""
    return _rows(x)


def _extremes(x: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    return _rows(x), _rows(x, torch.int64)


@prim("reduction", torch.cummax)
def cummax(x: T, dim: int) -> tuple[T, T]:
    """(running maximum along dim, int64 position of its last occurrence); NaN from the first NaN on."""
    return _extremes(x)


@prim("reduction", torch.cummin)
def cummin(x: T, dim: int) -> tuple[T, T]:
    """(running minimum along dim, int64 position of its last occurrence); NaN from the first NaN on."""
    return _extremes(x)


def _scatter_reduce_ref(x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, how: str, include_self: bool) -> Any:
    return torch.scatter_reduce(x, dim, index, src, how, include_self=include_self)


@prim("index", _scatter_reduce_ref)
def scatter_reduce(x: T, dim: int, index: T, src: T, how: str, include_self: bool) -> T:
    """x where scatter would store src, combined by how (sum, prod, mean, amax, amin); x itself takes part if include_self."""
    return _rows(x)
