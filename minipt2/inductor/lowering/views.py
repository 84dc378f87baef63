"""View prims: maps from an index of the view to an index of its source, and layouts where memory allows the view without a copy.

Upstream: ``torch._inductor.ir`` (``View``, ``PermuteView``, ``SliceView``, ``ExpandView``).
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Sequence

import sympy

from ...exercise import exercise
from ...shapes import floordiv, mod
from ..ir import Layout
from ..ops import ops
from ..sizes import exact
from .registry import lowering
from .tensors import Expr, Index, Sizes, Tensor, View

ZERO, ONE = sympy.S.Zero, sympy.S.One
HEAVY_BROADCAST = 4
"""Cheap operations that may be repeated for every element a value is broadcast to."""


@exercise("5.1")
def view_index(old: Sizes, new: Sizes) -> Callable[[Index], list[Expr]]:
    """Row-major reshape from ``old`` to ``new``: maps an index into ``new`` to the index of the same element in ``old``.

    Dimensions are matched in the smallest groups of equal size, so that a dimension that stays is passed through and only split and
    merged ones cost a division. Size-1 dimensions get index 0.
    """
    # >>> 5.1
    old, new = tuple(map(sympy.sympify, old)), tuple(map(sympy.sympify, new))
    if ZERO in old:
        return lambda index: [ZERO] * len(old)
    groups = match_groups(old, new)

    def to_old(index: Index) -> list[Expr]:
        result: list[Expr] = [ZERO] * len(old)
        for olds, news in groups:
            if len(olds) == 1 and len(news) == 1:
                result[olds[0]] = index[news[0]]
                continue
            flat, step = ZERO, ONE
            for d in reversed(news):
                flat, step = flat + index[d] * step, step * new[d]
            for d in reversed(olds[1:]):
                flat, result[d] = floordiv(flat, old[d], ops.ranges), mod(flat, old[d], ops.ranges)
            result[olds[0]] = flat
        return result

    return to_old
    # <<< 5.1


@lru_cache(maxsize=4096)
@exercise("5.1")
def match_groups(old: Sizes, new: Sizes) -> list[tuple[list[int], list[int]]]:
    """Smallest runs of dimensions of equal product, size-1 dimensions left out: [(dims of old, dims of new), ...]."""
    # >>> 5.1
    olds, news = [d for d, n in enumerate(old) if n != 1], [d for d, n in enumerate(new) if n != 1]
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(olds) and j < len(news):
        group = ([olds[i]], [news[j]])
        a, b = old[olds[i]], new[news[j]]
        i, j = i + 1, j + 1
        while a != b and (i < len(olds) or j < len(news)):  # equal sizes may be written differently: then all that is left is one group
            if i < len(olds) and (j >= len(news) or not _larger(a, b)):
                group[0].append(olds[i])
                a, i = a * old[olds[i]], i + 1
            else:
                group[1].append(news[j])
                b, j = b * new[news[j]], j + 1
        groups.append(group)
    return groups
    # <<< 5.1


def _larger(a: Expr, b: Expr) -> bool:
    return bool(a > b) if a.is_Integer and b.is_Integer else exact(a, b) is not None


@lru_cache(maxsize=4096)
def view_strides(old: Sizes, strides: tuple[Expr, ...], new: Sizes) -> tuple[Expr, ...] | None:
    """Strides of a reshape that needs no copy, or None."""
    result: list[Expr | None] = [None] * len(new)
    for olds, news in match_groups(old, new) if ZERO not in old else ():
        if any(strides[a] != strides[b] * old[b] for a, b in zip(olds, olds[1:])):
            return None
        step = strides[olds[-1]]
        for d in reversed(news):
            result[d], step = step, step * new[d]
    following: Expr = ONE
    for d in reversed(range(len(new))):  # size-1 dimensions: as if row-major
        if result[d] is None:
            result[d] = following
        following = result[d] * new[d]
    return tuple(result)


def _with(layout: Layout, sizes: Sizes, strides: Sequence[Expr], offset: Expr | None = None) -> Layout:
    return Layout(sizes, tuple(strides), layout.dtype, layout.device, layout.offset if offset is None else offset)


def reshaped(x: Tensor, sizes: Sizes) -> Tensor:
    """``x`` in another shape of as many elements."""
    old = x.sizes
    if old == sizes:
        return x

    def relayout(layout: Layout) -> Layout | None:
        strides = view_strides(old, layout.strides, sizes)
        return None if strides is None else _with(layout, sizes, strides)

    return View(x, sizes, view_index(old, sizes), relayout, "reshape")


@lowering("reshape")
def _reshape(g: Any, x: Tensor, shape: Sequence[int]) -> Tensor:
    return reshaped(x, g.sizes)


@lowering("permute")
def _permute(g: Any, x: Tensor, dims: Sequence[int]) -> Tensor:
    dims = [d % len(x.sizes) for d in dims]
    inverse = sorted(range(len(dims)), key=lambda k: dims[k])
    sizes = tuple([x.sizes[d] for d in dims])
    return View(x, sizes, lambda index: [index[k] for k in inverse],
                lambda layout: _with(layout, sizes, [layout.strides[d] for d in dims]), "permute")


@lowering("broadcast_in_dim")
def _broadcast(g: Any, x: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    sizes: Sizes = g.sizes
    kept = [(d, n != 1 or sizes[d] == 1) for n, d in zip(x.sizes, dims)]
    repeats = any(n != 1 and d not in dims for d, n in enumerate(sizes)) or not all(same for _, same in kept)
    if repeats and x.place() is None and x.cost.reads and (x.cost.heavy or x.cost.ops > HEAVY_BROADCAST):
        g.realize(x)  # computed once, not again for each element it is repeated to

    def relayout(layout: Layout) -> Layout:
        strides = [ZERO] * len(sizes)
        for stride, (d, same) in zip(layout.strides, kept):
            strides[d] = stride if same else ZERO
        return _with(layout, sizes, strides)

    return View(x, sizes, lambda index: [index[d] if same else ZERO for d, same in kept], relayout, "broadcast")


def sliced(x: Tensor, starts: Sequence[int], steps: Sequence[int], sizes: Sizes) -> Tensor:
    """Elements ``start + i*step`` of each dimension."""
    return View(x, sizes, lambda index: [i if b == 1 and a == 0 else i * b + a for i, a, b in zip(index, starts, steps)],
                lambda layout: _with(layout, sizes, [s * b for s, b in zip(layout.strides, steps)],
                                     sympy.Add(layout.offset, *[s * a for s, a in zip(layout.strides, starts)])), "slice")


@lowering("slice")
def _slice(g: Any, x: Tensor, starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> Tensor:
    return sliced(x, starts, steps, g.sizes)


@lowering("flip")
def _flip(g: Any, x: Tensor, dims: Sequence[int]) -> Tensor:
    flipped = {d % len(x.sizes) for d in dims}
    sizes = x.sizes
    return View(x, sizes, lambda index: [sizes[d] - 1 - i if d in flipped and sizes[d] != 1 else i for d, i in enumerate(index)],
                lambda layout: None, "flip")
