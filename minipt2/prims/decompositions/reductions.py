"""Sums, means, extrema, variances, norms and scans. Upstream: ``torch._refs`` (reductions)."""
from __future__ import annotations

import math
from typing import Any, Sequence

import torch

from .. import ops as p
from ..core import Prim, Value
from ..meta import numel, wrap_dim, wrap_dims
from ..promote import is_float, is_integer, opmath_dtype, to_float
from .registry import NoRule, full_like, opmath, rule

Dims = int | Sequence[int] | None


@rule("sum", "sum.dim_IntList")
def sum(x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    out = dtype or (torch.int64 if is_integer(x.dtype) else x.dtype)
    if out in (torch.bfloat16, torch.float16) and x.dtype is not out:
        return p.convert(p.sum(p.convert(x, torch.float32), wrap_dims(dim, x.ndim), keepdim), out)
    return p.sum(p.convert(x, out), wrap_dims(dim, x.ndim), keepdim)


@rule("mean", "mean.dim")
def mean(x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    out, dims = dtype or x.dtype, wrap_dims(dim, x.ndim)
    count = numel([x.shape[d] for d in dims])
    total = p.sum(p.convert(x, opmath_dtype(out)), dims, keepdim)
    return p.convert(total * math.nan if count == 0 else total / to_float(count), out)


@rule("nansum")
def nansum(x: Value, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    return sum(p.where(p.isnan(x), 0.0, x) if is_float(x.dtype) else x, dim, keepdim, dtype=dtype)


@rule("prod")
def prod(x: Value, *, dtype: torch.dtype | None = None) -> Value:
    return _prod(x, tuple(range(x.ndim)), False, dtype)


@rule("prod.dim_int")
def prod_dim(x: Value, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    return _prod(x, wrap_dims(dim, x.ndim), keepdim, dtype)


def _prod(x: Value, dims: Sequence[int], keepdim: bool, dtype: torch.dtype | None) -> Value:
    out = dtype or (torch.int64 if is_integer(x.dtype) else x.dtype)
    return p.convert(p.prod(p.convert(x, opmath_dtype(out)), dims, keepdim), out)


@rule("amax")
def amax(x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return p.amax(x, wrap_dims(dim, x.ndim), keepdim)


@rule("amin")
def amin(x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    return p.amin(x, wrap_dims(dim, x.ndim), keepdim)


@rule("max")
def max_all(x: Value) -> Value:
    return p.amax(_some(x, x.shape), tuple(range(x.ndim)))


@rule("min")
def min_all(x: Value) -> Value:
    return p.amin(_some(x, x.shape), tuple(range(x.ndim)))


@rule("max.dim")
def max_dim(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extremum(p.amax, p.argmax, x, dim, keepdim)


@rule("min.dim")
def min_dim(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _extremum(p.amin, p.argmin, x, dim, keepdim)


def _extremum(best: Prim, position: Prim, x: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    if x.ndim == 0:
        return x, full_like(x, 0, torch.int64)
    dim = wrap_dim(dim, x.ndim)
    if x.dtype is torch.bool:
        x = _some(x, x.shape[dim:dim + 1])
        return (p.any if best is p.amax else p.all)(x, (dim,), keepdim), position(p.convert(x, torch.uint8), dim, keepdim)
    return best(_some(x, x.shape[dim:dim + 1]), (dim,), keepdim), position(x, dim, keepdim)


def _some(x: Value, sizes: Sequence[int]) -> Value:
    """``x``, unless there is nothing to choose from: eager raises then, in words of its own (fake tensors do not)."""
    if numel(sizes) == 0:
        raise NoRule("an extremum of no elements")
    return x


@rule("argmax")
def argmax(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _argument(p.argmax, x, dim, keepdim)


@rule("argmin")
def argmin(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _argument(p.argmin, x, dim, keepdim)


def _argument(prim: Prim, x: Value, dim: int | None, keepdim: bool) -> Value:
    if x.ndim == 0:
        return full_like(x, 0, torch.int64)
    return prim(x, None if dim is None else wrap_dim(dim, x.ndim), keepdim)


@rule("aminmax")
def aminmax(x: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    dims = wrap_dims(dim, x.ndim)
    return p.amin(x, dims, keepdim), p.amax(x, dims, keepdim)


@rule("any", "any.dim", "any.dims")
def any(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _logical(p.any, x, dim, keepdim)


@rule("all", "all.dim", "all.dims")
def all(x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    return _logical(p.all, x, dim, keepdim)


def _logical(prim: Prim, x: Value, dim: Dims, keepdim: bool) -> Value:
    """uint8 in, uint8 out; everything else gives bool."""
    result = prim(p.convert(x, torch.bool), wrap_dims(dim, x.ndim, empty_means_all=dim is None), keepdim)
    return p.convert(result, torch.uint8) if x.dtype is torch.uint8 else result


@rule("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(x: Value, dim: Dims = None) -> Value:
    return p.sum(p.convert(p.convert(x, torch.bool), torch.int64), wrap_dims(dim, x.ndim))


def _correction(unbiased: bool) -> float:
    return 1.0 if unbiased else 0.0


def moments(x: Value, dim: Dims, correction: float | None, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean) in the opmath dtype."""
    return p.var_mean(opmath(x), wrap_dims(dim, x.ndim), 1.0 if correction is None else to_float(correction), keepdim)


@rule("var.correction")
def var(x: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Value:
    return p.convert(moments(x, dim, correction, keepdim)[0], x.dtype)


@rule("std.correction")
def std(x: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> Value:
    return p.convert(p.sqrt(moments(x, dim, correction, keepdim)[0]), x.dtype)


@rule("var_mean.correction")
def var_mean(x: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    v, m = moments(x, dim, correction, keepdim)
    return p.convert(v, x.dtype), p.convert(m, x.dtype)


@rule("std_mean.correction")
def std_mean(x: Value, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    v, m = moments(x, dim, correction, keepdim)
    return p.convert(p.sqrt(v), x.dtype), p.convert(m, x.dtype)


@rule("var", "var.dim")
def var_unbiased(x: Value, *args: Any) -> Value:
    dim, unbiased, keepdim = _unbiased_arguments(args)
    return var(x, dim, correction=_correction(unbiased), keepdim=keepdim)


@rule("std", "std.dim")
def std_unbiased(x: Value, *args: Any) -> Value:
    dim, unbiased, keepdim = _unbiased_arguments(args)
    return std(x, dim, correction=_correction(unbiased), keepdim=keepdim)


def _unbiased_arguments(args: Sequence[Any]) -> tuple[Dims, bool, bool]:
    """(unbiased) or (dim, unbiased, keepdim)."""
    if not args or isinstance(args[0], bool):
        return None, (args[0] if args else True), False
    return args[0], (args[1] if len(args) > 1 else True), (args[2] if len(args) > 2 else False)


@rule("linalg_vector_norm")
def linalg_vector_norm(x: Value, ord: float = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    out, dims = dtype or x.dtype, wrap_dims(dim, x.ndim)
    x = opmath(p.convert(x, out))
    if ord == 2:
        result = p.sqrt(p.sum(x * x, dims, keepdim))
    elif ord == 1:
        result = p.sum(p.abs(x), dims, keepdim)
    elif ord == 0:
        result = p.sum(p.convert(p.ne(x, 0), x.dtype), dims, keepdim)
    elif math.isinf(ord):
        result = (p.amax if ord > 0 else p.amin)(p.abs(x), dims, keepdim)
    else:
        result = p.pow(p.sum(p.pow(p.abs(x), to_float(ord)), dims, keepdim), 1.0 / ord)
    return p.convert(result, out)


@rule("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype", "norm.Scalar")
def norm(x: Value, ord: Any = 2, dim: Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    return linalg_vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@rule("cumsum")
def cumsum(x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    x = p.convert(x, dtype or (torch.int64 if is_integer(x.dtype) else x.dtype))
    return x if x.ndim == 0 else p.cumsum(x, wrap_dim(dim, x.ndim))


@rule("logsumexp")
def logsumexp(x: Value, dim: Dims, keepdim: bool = False) -> Value:
    """Shifted by the largest element; an infinite one does not shift, so that its result is right."""
    out = x.dtype if is_float(x.dtype) else torch.get_default_dtype()
    dims, x = wrap_dims(dim, x.ndim), opmath(p.convert(x, out))
    if x.numel() == 0:
        return p.convert(p.log(p.sum(p.exp(x), dims, keepdim)), out)
    largest = p.amax(x, dims, True)
    largest = p.where(p.isinf(largest), 0.0, largest)
    kept = largest if keepdim else p.reshape(largest, tuple([n for i, n in enumerate(x.shape) if i not in dims]))
    shifted = x - p.broadcast_in_dim(largest, x.shape, tuple(range(x.ndim)))
    return p.convert(p.log(p.sum(p.exp(shifted), dims, keepdim)) + kept, out)
