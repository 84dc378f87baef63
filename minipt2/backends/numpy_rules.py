"""``rules``: prim name -> the NumPy function that computes it. Arrays in, an array (or a tuple of them) out; Python numbers are numbers.

Every prim here is one line or one short function: what a backend author has to write. Upstream has no counterpart.
"""
from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any, Callable, Sequence

import numpy as np

from ..errors import IndexOutOfRange
from ..prims.elementwise import WRONG_VALUE
from . import numpy_conv as conv

Array = np.ndarray
Ints = Sequence[int]
rules: dict[str, Callable[..., Any]] = {}


def rule(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Register ``fn`` for the prim of its name (a trailing underscore keeps Python's own names free)."""
    rules[fn.__name__.rstrip("_")] = fn
    return fn


# ------------------------------------------------------------------ elementwise
def _each(fn: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of the standard library, element by element in float64."""
    ufunc = np.frompyfunc(fn, 1, 1)
    return lambda x: np.asarray(ufunc(x.astype(np.float64)), dtype=np.float64)


def _lgamma(x: float) -> float:
    if x != x or x == math.inf:
        return x
    return math.inf if x == -math.inf or (x <= 0 and x == math.floor(x)) else math.lgamma(x)


def _digamma(x: float) -> float:
    """Reflected to x > 0, stepped up to x >= 10, then the asymptotic series."""
    if not math.isfinite(x):
        return x if x > 0 else math.nan
    if x <= 0 and x == math.floor(x):
        return math.copysign(math.inf, -math.copysign(1, x)) if x == 0 else math.nan
    if x < 0:
        return _digamma(1 - x) - math.pi / math.tan(math.pi * (x % 1))
    shift = 0.0
    while x < 10:
        shift, x = shift + 1 / x, x + 1
    y = 1 / (x * x)
    return math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132)))) - shift


def _erfinv(x: float) -> float:
    if not -1 < x < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    guess = NormalDist().inv_cdf((x + 1) / 2) * math.sqrt(0.5)
    return guess - (math.erf(guess) - x) * math.sqrt(math.pi) / 2 * math.exp(guess * guess)


rules.update({name: getattr(np, name) for name in """
    exp exp2 expm1 log log1p log2 log10 sqrt reciprocal sin cos tan sinh cosh tanh floor ceil trunc isnan isinf isfinite logical_not abs
    maximum minimum fmax fmin fmod remainder copysign nextafter hypot logical_and logical_or bitwise_and bitwise_or bitwise_xor""".split()})
rules.update(
    asin=np.arcsin, acos=np.arccos, atan=np.arctan, asinh=np.arcsinh, acosh=np.arccosh, atanh=np.arctanh, atan2=np.arctan2, neg=np.negative,
    erf=_each(math.erf), erfc=_each(math.erfc), erfinv=_each(_erfinv), lgamma=_each(_lgamma), digamma=_each(_digamma), round=np.rint,
    rsqrt=lambda x: 1 / np.sqrt(x), sigmoid=lambda x: 1 / (1 + np.exp(-x)), relu=lambda x: np.maximum(x, 0), bitwise_not=np.invert,
    signbit=lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    sign=lambda x: x if x.dtype.kind == "b" else np.where(x > 0, 1, np.where(x < 0, -1, 0)),
    add=np.add, sub=np.subtract, mul=np.multiply, div=np.true_divide, floordiv=np.floor_divide, eq=np.equal, ne=np.not_equal, lt=np.less,
    le=np.less_equal, gt=np.greater, ge=np.greater_equal, shift_left=np.left_shift, shift_right=np.right_shift,
    where=lambda cond, a, b: np.where(cond, a, b), bitcast=lambda x, dtype: np.ascontiguousarray(x).view(dtype),
    convert=lambda x, dtype: x.astype(dtype),
)


@rule
def valid(x: Array, ok: Array) -> Array:
    if not ok.all():
        raise RuntimeError(WRONG_VALUE)
    return x


@rule
def truncdiv(a: Any, b: Any) -> Array:
    if np.result_type(a, b).kind == "f":
        return np.trunc(np.true_divide(a, b))
    return (a - np.fmod(a, b)) // b


@rule
def pow_(a: Any, b: Any) -> Array:
    """NumPy refuses negative integer powers of integers: they are 0 but for 1 and -1."""
    if np.result_type(a, b).kind == "f" or not np.any(np.less(b, 0)):
        return np.power(a, b)
    unit = np.where(np.equal(a, 1), 1, np.where(np.equal(a, -1), 1 - 2 * np.remainder(b, 2), 0))
    return np.where(np.less(b, 0), unit, np.power(a, np.maximum(b, 0)))


# ------------------------------------------------------------------ views, data movement, creation
@rule
def broadcast_in_dim(x: Array, shape: Ints, dims: Ints) -> Array:
    full = [1] * len(shape)
    for size, dim in zip(x.shape, dims):
        full[dim] = size
    return np.broadcast_to(x.reshape(full), shape)


rules.update(
    reshape=lambda x, shape: x.reshape(shape), permute=lambda x, dims: x.transpose(dims), flip=lambda x, dims: np.flip(x, dims),
    cat=lambda xs, dim: np.concatenate(xs, dim), copy_strided=lambda x, strides: x,  # memory order is settled where results leave
    full=lambda shape, value, dtype, device: np.full(shape, value, dtype),
    iota=lambda length, start, step, dtype, device: (np.arange(length) * step + start).astype(dtype),
)


@rule
def slice_(x: Array, starts: Ints, ends: Ints, steps: Ints) -> Array:
    return x[tuple(map(slice, starts, ends, steps))]


@rule
def pad(x: Array, lo: Ints, hi: Ints, value: Any) -> Array:
    kept = x[tuple([slice(max(-a, 0), n - max(-b, 0)) for n, a, b in zip(x.shape, lo, hi)])]
    return np.pad(kept, [(max(a, 0), max(b, 0)) for a, b in zip(lo, hi)], constant_values=value)


# ------------------------------------------------------------------ indexing
def _everywhere(indices: Sequence[Array | None]) -> tuple[Any, ...]:
    return tuple([slice(None) if i is None else i for i in indices])


def _within(index: Array, size: int) -> Array:
    """``index``, which does not count from the end here as it would for NumPy."""
    if index.size and not 0 <= index.min() <= index.max() < size:
        raise IndexOutOfRange(f"index out of range for a dimension of {size}")
    return index


def _places(x: Array, dim: int, index: Array) -> tuple[Array, ...]:  # of what ``index`` names along ``dim``
    return tuple([_within(index, x.shape[dim]) if d == dim else at for d, at in enumerate(np.indices(index.shape, sparse=True))])


rules.update(
    gather=lambda x, dim, index: x[_places(x, dim, index)],
    index_select=lambda x, dim, index: np.take(x, _within(index, x.shape[dim]), dim), index=lambda x, indices: x[_everywhere(indices)],
)


@rule
def index_put(x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool) -> Array:
    out = x.copy()
    if accumulate:
        np.add.at(out, _everywhere(indices), values)
    else:
        out[_everywhere(indices)] = values
    return out


_HOW: dict[str, tuple[Any, Callable[[np.dtype], Any]]] = {
    "sum": (np.add, lambda dtype: 0), "mean": (np.add, lambda dtype: 0), "prod": (np.multiply, lambda dtype: 1),
    "amax": (np.maximum, lambda dtype: -np.inf if dtype.kind == "f" else np.iinfo(dtype).min),
    "amin": (np.minimum, lambda dtype: np.inf if dtype.kind == "f" else np.iinfo(dtype).max),
}


@rule
def scatter_reduce(x: Array, dim: int, index: Array, src: Array, how: str, include_self: bool) -> Array:
    out, at, (combine, start) = x.copy(), _places(x, dim, index), _HOW[how]
    if not include_self:
        out[at] = start(x.dtype)
    combine.at(out, at, src[tuple(map(slice, index.shape))])
    if how != "mean":
        return out
    count = np.full(x.shape, int(include_self))
    np.add.at(count, at, 1)
    return (np.true_divide if x.dtype.kind == "f" else np.floor_divide)(out, np.maximum(count, 1))


rules.update(
    scatter=lambda x, dim, index, src: index_put(x, _places(x, dim, index), src, False),
    scatter_add=lambda x, dim, index, src: scatter_reduce(x, dim, index, src, "sum", True),
)


# ------------------------------------------------------------------ order
@rule
def sort(x: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    """Backwards and back again, so that equal elements keep their order when descending too."""
    places = np.argsort(np.flip(x, dim) if descending else x, dim, kind="stable")
    places = x.shape[dim] - 1 - np.flip(places, dim) if descending else places
    return np.take_along_axis(x, places, dim), places


@rule
def searchsorted(ordered: Array, values: Array, right: bool) -> Array:
    side = "right" if right else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, values, side)
    rows = zip(ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)
    return np.array([np.searchsorted(a, v, side) for a, v in rows], np.int64).reshape(values.shape)


def _running(beats: Any) -> Callable[[Array, int], tuple[Array, Array]]:
    def fn(x: Array, dim: int) -> tuple[Array, Array]:
        best, places = np.moveaxis(x, dim, 0).copy(), np.zeros(np.moveaxis(x, dim, 0).shape, np.int64)
        for i in range(1, len(best)):
            wins = beats(best[i], best[i - 1]) | (best[i] != best[i])
            best[i], places[i] = np.where(wins, best[i], best[i - 1]), np.where(wins, i, places[i - 1])
        return np.moveaxis(best, 0, dim), np.moveaxis(places, 0, dim)
    return fn


# ------------------------------------------------------------------ reductions, scans, contractions
rules.update(
    cummax=_running(np.greater_equal), cummin=_running(np.less_equal), logcumsumexp=lambda x, dim: np.logaddexp.accumulate(x, dim),
    cumprod=lambda x, dim: np.cumprod(x, dim, dtype=x.dtype), gcd=np.gcd, frexp=np.frexp,
    sum=lambda x, dims, keepdim: np.sum(x, tuple(dims), dtype=x.dtype, keepdims=keepdim),
    prod=lambda x, dims, keepdim: np.prod(x, tuple(dims), dtype=x.dtype, keepdims=keepdim),
    amax=lambda x, dims, keepdim: np.max(x, tuple(dims), keepdims=keepdim),
    amin=lambda x, dims, keepdim: np.min(x, tuple(dims), keepdims=keepdim),
    any=lambda x, dims, keepdim: np.any(x, tuple(dims), keepdims=keepdim),
    all=lambda x, dims, keepdim: np.all(x, tuple(dims), keepdims=keepdim),
    argmax=lambda x, dim, keepdim: np.argmax(x, dim, keepdims=keepdim), argmin=lambda x, dim, keepdim: np.argmin(x, dim, keepdims=keepdim),
    cumsum=lambda x, dim: np.cumsum(x, dim, dtype=x.dtype),
    mm=np.matmul, bmm=np.matmul, convolution=conv.convolution, convolution_backward=conv.convolution_backward,
)


@rule
def var_mean(x: Array, dims: Ints, correction: float, keepdim: bool) -> tuple[Array, Array]:
    dims, count = tuple(dims), math.prod(x.shape[d] for d in dims)
    total = np.sum(np.square(x - np.mean(x, dims, keepdims=True)), dims, keepdims=keepdim)
    return np.true_divide(total, np.asarray(max(count - correction, 0), x.dtype)), np.mean(x, dims, keepdims=keepdim)


@rule
def addmm(bias: Array, a: Array, b: Array, beta: Any, alpha: Any) -> Array:
    product = np.matmul(a, b)
    product = product if alpha == 1 else product * np.asarray(alpha, product.dtype)
    return product if beta == 0 else product + (bias if beta == 1 else bias * np.asarray(beta, bias.dtype))


rules["baddbmm"] = addmm
