"""Memory order: dense strides, comparing strides, and the order a realised closure gets.

Upstream: ``FlexibleLayout.stride_ordered`` and ``ComputedBuffer.decide_layout``.
"""
from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Any, Sequence

import sympy

from ..ir import Layout
from ..sizes import coefficients, hint, nonnegative, number
from .tensors import Expr, Sizes


def dense(shape: tuple[Any, ...], strides: tuple[Any, ...] | None) -> tuple[Expr, ...]:
    """Strides without gaps for ``shape`` in the memory order of ``strides`` (row-major for None, and for dimensions that repeat)."""
    return _dense(shape, None if strides is None else tuple([s if type(s) is int else hint(number(s)) for s in strides]))


@lru_cache(maxsize=16384)
def _dense(shape: tuple[Any, ...], strides: tuple[int, ...] | None) -> tuple[Expr, ...]:
    rank = len(shape)
    order = range(rank)
    if strides is not None and all(s != 0 or n == 1 for n, s in zip(shape, strides)):
        order = _order(shape, strides)
    result: list[Expr] = [sympy.S.One] * rank
    step: Expr = sympy.S.One
    for d in reversed(order):
        result[d] = step
        step = step if shape[d] == 0 else step * shape[d]
    return tuple(result)


def _order(shape: Sequence[Any], strides: Sequence[Any]) -> list[int]:
    """Dimensions from outermost to innermost."""
    return sorted(range(len(shape)), key=lambda d: (-strides[d], d))


@lru_cache(maxsize=4096)
def channels_last(sizes: Sizes) -> tuple[Expr, ...]:
    """Strides with dimension 1 innermost; row-major below four dimensions."""
    rank = len(sizes)
    return dense(sizes, tuple([rank, 1, *range(rank - 1, 1, -1)]) if rank in (4, 5) else None)


def same_strides(sizes: Sizes, a: Sequence[Expr], b: Sequence[Expr]) -> bool:
    """Whether two strides put every element in the same place (size-1 dimensions and empty tensors do not matter)."""
    return a == b or all(x == y or n == 1 for n, x, y in zip(sizes, a, b)) or sympy.S.Zero in sizes


def order_like(sizes: Sizes, hint: tuple[Expr, ...], layouts: Sequence[Layout | None]) -> tuple[Expr, ...]:
    """Strides for a result assembled from tensors of these layouts: theirs if all are in memory in one order, else ``hint``."""
    if None in layouts:
        return hint
    orders = {dense(sizes, layout.strides) for layout in layouts if all(n != 1 for n, m in zip(layout.sizes, sizes) if m != 1)}
    return orders.pop() if len(orders) == 1 else hint


def pick_order(loads: Sequence[Expr], index: Sequence[Expr], sizes: Sizes, hint: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Strides for values computed from ``loads`` at ``index``: the order most of them are read in, ``hint`` where that is one of the
    most frequent or nothing is read in full."""
    dims = [d for d, i in enumerate(index) if i is not sympy.S.Zero]
    if len(dims) < 2 or not loads:
        return hint
    symbols = tuple([index[d] for d in dims])
    inner = tuple([sizes[d] for d in dims])
    counts: Counter[tuple[Expr, ...]] = Counter()
    for load in loads:
        strides = coefficients(load, symbols)
        if strides is not None and all(s != 0 and nonnegative(s) for s in strides):
            counts[dense(inner, strides)] += 1
    if not counts:
        return hint
    best, times = counts.most_common(1)[0]
    if counts.get(tuple([hint[d] for d in dims]), 0) == times:
        return hint
    for strides in (dense(sizes, None), channels_last(sizes)):  # the strides of size-1 dimensions tell kernels the format
        if tuple([strides[d] for d in dims]) == best:
            return strides
    result: list[Expr] = [sympy.S.One] * len(sizes)
    for d, s in zip(dims, best):
        result[d] = s
    for d in reversed(range(len(sizes))):  # size-1 dimensions: as if row-major
        if d not in dims and d + 1 < len(sizes):
            result[d] = result[d + 1] * sizes[d + 1]
    return tuple(result)
