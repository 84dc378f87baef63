"""Identities applied while a prim is recorded: ``convert(x, x.dtype) -> x``, reshape of reshape, ``x * 1`` and the like.

Each function gets the arguments of one prim call and returns a simpler value, or None. Only rewrites that keep every bit are here.
Upstream: ``torch._inductor.fx_passes.joint_graph`` (removal of no-op nodes, constant folding of uniform values).
"""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch

from ..shapes.known import SYMBOLIC, same, same_all
from . import ops as p
from .core import Prim, Value, producer
from .meta import sliced_shape
from .promote import LOW_PRECISION, is_float, lossless


def simplifies(*prims: Prim) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Attach the decorated function to ``prims``; a function for several gets the prim first."""

    def attach(fn: Callable[..., Any]) -> Callable[..., Any]:
        for q in prims:
            q.simplify = fn if len(prims) == 1 else (lambda *args, q=q: fn(q, *args))
        return fn

    return attach


def constant(x: Any) -> Any:
    """The number that every element of ``x`` holds when ``full`` made it, else None."""
    made = producer(x, p.full) if isinstance(x, Value) else None
    if made is None:
        return None
    value, dtype = made[1], made[2]
    if isinstance(value, SYMBOLIC):
        return None if dtype in LOW_PRECISION else value
    return torch.tensor(value, dtype=dtype).item() if dtype in LOW_PRECISION else value


def _same_full(x: Value, shape: Sequence[int], dtype: torch.dtype | None = None) -> Value | None:
    """``x`` in another shape when ``full`` made it."""
    made = producer(x, p.full)
    return None if made is None else p.full(tuple(shape), made[1], dtype or x.dtype, x.device)


@simplifies(p.convert)
def _convert(x: Value, dtype: torch.dtype) -> Value | None:
    if x.dtype is dtype:
        return x
    inner = producer(x, p.convert)
    if inner is not None and lossless(inner[0].dtype, x.dtype):
        return p.convert(inner[0], dtype)
    value = constant(x)
    if value is not None and not isinstance(value, SYMBOLIC) and math.isfinite(value) and abs(value) <= 127 and (value == int(value) or lossless(x.dtype, dtype)):
        if dtype is torch.bool or (value < 0 and dtype is torch.uint8):
            return None
        return p.full(x.shape, float(value) if is_float(dtype) else int(value), dtype, x.device)
    return None


@simplifies(p.reshape)
def _reshape(x: Value, shape: Sequence[int]) -> Value | None:
    if same_all(x.shape, shape):
        return x
    inner = producer(x, p.reshape)
    return p.reshape(inner[0], shape) if inner is not None else _same_full(x, shape)


@simplifies(p.permute)
def _permute(x: Value, dims: Sequence[int]) -> Value | None:
    if tuple(dims) == tuple(range(x.ndim)):
        return x
    inner = producer(x, p.permute)
    if inner is not None:
        return p.permute(inner[0], tuple([inner[1][d] for d in dims]))
    return _same_full(x, [x.shape[d] for d in dims])


@simplifies(p.broadcast_in_dim)
def _broadcast_in_dim(x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value | None:
    if same_all(x.shape, shape):
        return x
    inner = producer(x, p.broadcast_in_dim)
    if inner is not None:
        return p.broadcast_in_dim(inner[0], shape, tuple([dims[d] for d in inner[2]]))
    return _same_full(x, shape)


@simplifies(p.slice)
def _slice(x: Value, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Value | None:
    if all(s == 1 for s in steps) and all(same(s, 0) for s in starts) and same_all(ends, x.shape):
        return x
    return _same_full(x, sliced_shape(starts, ends, steps))


@simplifies(p.flip)
def _flip(x: Value, dims: Sequence[int]) -> Value | None:
    return x if all(same(x.shape[d], 1) for d in dims) else None


@simplifies(p.copy_strided)
def _copy_strided(x: Value, strides: Sequence[int]) -> Value | None:
    inner = producer(x, p.copy_strided)
    if inner is not None:
        return p.copy_strided(inner[0], strides)
    return None


@simplifies(p.cat)
def _cat(xs: Sequence[Value], dim: int) -> Value | None:
    kept = [x for x in xs if not same(x.shape[dim], 0)] or [xs[0]]
    if len(kept) == 1:
        return kept[0]
    return p.cat(tuple(kept), dim) if len(kept) != len(xs) else None


@simplifies(p.pad)
def _pad(x: Value, lo: Sequence[int], hi: Sequence[int], value: Any) -> Value | None:
    return x if all(same(n, 0) for n in (*lo, *hi)) else None


@simplifies(p.add)
def _add(a: Any, b: Any) -> Value | None:
    if not isinstance(b, Value) and same(b, 0) and not is_float(a.dtype):
        return a
    return _with_number(p.add, a, b)


@simplifies(p.sub)
def _sub(a: Any, b: Any) -> Value | None:
    if not isinstance(b, Value) and not isinstance(b, SYMBOLIC) and b == 0 and math.copysign(1, b) > 0:
        return a
    return _with_number(p.sub, a, b)


@simplifies(p.mul)
def _mul(a: Any, b: Any) -> Value | None:
    if not isinstance(b, Value) and same(b, 1):
        return a
    if not isinstance(a, Value) and same(a, 1):
        return b
    return _with_number(p.mul, a, b)


@simplifies(p.div)
def _div(a: Any, b: Any) -> Value | None:
    if not isinstance(b, Value) and same(b, 1):
        return a
    return _with_number(p.div, a, b)


@simplifies(p.maximum, p.minimum, p.eq, p.ne, p.lt, p.le, p.gt, p.ge)
def _with_number(prim: Prim, a: Any, b: Any) -> Value | None:
    """A uniform tensor operand becomes a number."""
    if isinstance(a, Value) and isinstance(b, Value):
        value = constant(b)
        if value is not None:
            return prim(a, value)
        value = constant(a)
        if value is not None:
            return prim(value, b)
    return None


@simplifies(p.where)
def _where(cond: Value, a: Any, b: Any) -> Value | None:
    if isinstance(a, Value) and isinstance(b, Value):
        if a.node is b.node:
            return a
        value = constant(b)
        if value is not None:
            return p.where(cond, a, value)
        value = constant(a)
        if value is not None:
            return p.where(cond, value, b)
    return None


@simplifies(p.sum, p.prod, p.amax, p.amin, p.any, p.all)
def _reduce_nothing(prim: Prim, x: Value, dims: Sequence[int], keepdim: bool) -> Value | None:
    if all(same(x.shape[d], 1) for d in dims):
        return x if keepdim else p.reshape(x, tuple([n for i, n in enumerate(x.shape) if i not in dims]))
    return None


@simplifies(p.neg)
def _neg(x: Value) -> Value | None:
    inner = producer(x, p.neg)
    return inner[0] if inner is not None else None


@simplifies(p.relu)
def _relu(x: Value) -> Value | None:
    return x if producer(x, p.relu) is not None else None
