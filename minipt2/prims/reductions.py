"""Reductions and scans. ``dims`` are sorted and not negative; low-precision inputs are accumulated in float32.

Upstream: ``torch._prims`` (reductions); ``var_mean`` stands for the Welford reduction of ``torch._inductor``.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from .core import Prim, TensorMeta, define, prim
from .meta import contiguous_strides, reduced_shape

T = TensorMeta
Ints = Sequence[int]


def _reduced(x: TensorMeta, dims: Ints, keepdim: bool, dtype: torch.dtype | None = None) -> TensorMeta:
    shape = reduced_shape(x.shape, dims, keepdim)
    return TensorMeta(shape, dtype or x.dtype, x.device, contiguous_strides(shape))


def reduction(name: str, ref: Callable[..., Any], doc: str, dtype: torch.dtype | None = None) -> Prim:
    """A prim that folds dimensions; ``dtype`` is the result's, by default the operand's."""

    def meta(x: T, dims: Ints, keepdim: bool = False) -> T:
        return _reduced(x, dims, keepdim, dtype)

    return define(name, "reduction", meta, ref, doc)


def _each(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For references that take one dimension at a time."""

    def ref(x: torch.Tensor, dims: Ints, keepdim: bool) -> torch.Tensor:
        for dim in reversed(tuple(dims)):
            x = fn(x, dim, keepdim)
        return x

    return ref


def _sum_ref(x: torch.Tensor, dims: Ints, keepdim: bool) -> torch.Tensor:
    return x.sum(dims, keepdim, dtype=x.dtype) if dims else x.clone()


sum = reduction("sum", _sum_ref, "sum over dims, in the operand's dtype")
prod = reduction("prod", _each(lambda x, dim, keep: x.prod(dim, keep, dtype=x.dtype)), "product over dims, in the operand's dtype")
amax = reduction("amax", lambda x, dims, keep: x.amax(dims, keep) if dims else x.clone(), "largest element; NaN if there is one")
amin = reduction("amin", lambda x, dims, keep: x.amin(dims, keep) if dims else x.clone(), "smallest element; NaN if there is one")
any = reduction("any", _each(lambda x, dim, keep: x.any(dim, keep)), "whether any element (bool) holds", torch.bool)
all = reduction("all", _each(lambda x, dim, keep: x.all(dim, keep)), "whether all elements (bool) hold", torch.bool)


def _arg(name: str, ref: Callable[..., Any], doc: str) -> Prim:
    def meta(x: T, dim: int | None, keepdim: bool = False) -> T:
        return _reduced(x, range(x.ndim) if dim is None else (dim,) if x.ndim else (), keepdim, torch.int64)

    return define(name, "reduction", meta, ref, doc)


argmax = _arg("argmax", torch.argmax, "int64 position of the largest element (first one, first NaN); of the flattened tensor when dim is None")
argmin = _arg("argmin", torch.argmin, "int64 position of the smallest element (first one, first NaN); of the flattened tensor when dim is None")


def _var_mean_ref(x: torch.Tensor, dims: Ints, correction: float, keepdim: bool) -> Any:
    return torch.var_mean(x, tuple(dims), correction=correction, keepdim=keepdim) if dims else torch.var_mean(
        x.unsqueeze(-1), (-1,), correction=correction)


@prim("reduction", _var_mean_ref)
def var_mean(x: T, dims: Ints, correction: float, keepdim: bool = False) -> tuple[T, T]:
    """(variance, mean) in one pass or two, never as E[x*x] - E[x]**2; the divisor is the count minus correction."""
    out = _reduced(x, dims, keepdim)
    return out, out


@prim("reduction", lambda x, dim: x.cumsum(dim, dtype=x.dtype))
def cumsum(x: T, dim: int) -> T:
    """Running sum along dim, in the operand's dtype."""
    return TensorMeta(x.shape, x.dtype, x.device, contiguous_strides(x.shape))
