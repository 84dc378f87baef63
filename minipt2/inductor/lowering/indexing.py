"""Gathers and scatters: positions that come from memory, through ``ops.indirect``.

Upstream: ``index``, ``gather``, ``index_put`` and ``scatter`` of ``torch._inductor.lowering``.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import sympy
import torch

from ..ops import ops
from .pointwise import operand
from .reductions import LOW
from .registry import lowering
from .tensors import NUMBERS, Expr, Index, Lazy, Tensor, join

GATHER_INLINE = 2
"""Operations on a tensor that are repeated for every gathered element rather than done once for the whole of it."""


def _source(g: Any, x: Tensor) -> Tensor:
    if x.place() is None and x.cost.reads and (x.cost.heavy or x.cost.ops > GATHER_INLINE):
        g.realize(x)
    return x


def _indirect(index: Tensor, at: Index, size: Expr, wraps: bool = False) -> sympy.Symbol:
    return ops.indirect(ops.to_dtype(index.load(at), torch.int64), size, wraps)


@lowering("gather")
def _gather(g: Any, x: Tensor, dim: int, index: Tensor) -> Lazy:
    if not x.sizes:
        return g.lazy(lambda at: x.load([]), join(x.cost))
    x, dim = _source(g, x), dim % len(x.sizes)

    def inner(at: Index) -> Any:
        place = [sympy.S.Zero if n == 1 else i for i, n in zip(at, x.sizes)]
        place[dim] = _indirect(index, at, x.sizes[dim])
        return x.load(place)

    return g.lazy(inner, join(x.cost, index.cost, ops=3, heavy=True))


@lowering("index_select")
def _index_select(g: Any, x: Tensor, dim: int, index: Tensor) -> Lazy:
    if not x.sizes:
        return g.lazy(lambda at: x.load([]), join(x.cost))
    x, dim = _source(g, x), dim % len(x.sizes)

    def inner(at: Index) -> Any:
        picked = _indirect(index, [at[dim]] if index.sizes else [], x.sizes[dim])
        return x.load([*at[:dim], picked, *at[dim + 1:]])

    return g.lazy(inner, join(x.cost, index.cost, ops=3, heavy=True))


class _Indexed:
    """The correspondence between positions of ``x`` and of ``x[indices]``."""

    def __init__(self, x_sizes: Sequence[Expr], indices: Sequence[Tensor | None]):
        self.sizes = x_sizes
        self.tensors = {d: t for d, t in enumerate(indices) if t is not None}
        dims = list(self.tensors)
        self.rank = max(len(t.sizes) for t in self.tensors.values())
        self.first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
        self.kept = [d for d in range(len(x_sizes)) if d not in self.tensors]

    def shape(self) -> tuple[Expr, ...]:
        """The shape of x[indices]."""
        picked = [sympy.S.One] * self.rank
        for t in self.tensors.values():
            for k, n in enumerate(reversed(t.sizes)):
                picked[-1 - k] = n if n != 1 else picked[-1 - k]
        kept = [self.sizes[d] for d in self.kept]
        return (*kept[:self.first], *picked, *kept[self.first:])

    def place(self, at: Index) -> list[Expr]:
        """The index into x of element ``at`` of x[indices]."""
        picked = at[self.first:self.first + self.rank]
        kept = iter([*at[:self.first], *at[self.first + self.rank:]])
        return [_indirect(self.tensors[d], _broadcast(picked, self.tensors[d].sizes), n, wraps=True) if d in self.tensors else next(kept)
                for d, n in enumerate(self.sizes)]


def _broadcast(at: Index, sizes: Sequence[Expr]) -> list[Expr]:
    """The part of ``at`` that indexes a tensor of ``sizes`` broadcast to it."""
    tail = at[len(at) - len(sizes):]
    return [sympy.S.Zero if n == 1 else i for i, n in zip(tail, sizes)]


@lowering("index")
def _index(g: Any, x: Tensor, indices: Sequence[Tensor | None]) -> Lazy:
    x, indexed = _source(g, x), _Indexed(x.sizes, indices)
    return g.lazy(lambda at: x.load(indexed.place(at)), join(x.cost, *[t.cost for t in indexed.tensors.values()], ops=3, heavy=True))


Place = Callable[[Index], Index]


def _scatter(g: Any, x: Tensor, domain: Sequence[Expr], place: Place, value: Callable[[Index], Any], add: bool) -> Tensor:
    """A copy of ``x``, then ``value`` stored (or added) at ``place`` for every index of ``domain``.

    bfloat16 and float16 sums are kept in float32 until all are added. Where places repeat without ``add``, any of the values stays.
    """
    acc = torch.float32 if add and x.dtype in LOW else x.dtype
    out = g.allocate(x.sizes, acc)
    stored = g.loops(out, lambda index: out.store(index, x.load(index)))
    g.emit_loops(g.new_name(), out.layout, tuple(domain), (),
                 lambda at: out.store(place(at), value(at), "atomic_add" if add else None))
    dtype = x.dtype
    return stored if acc == dtype else g.lazy(lambda index: ops.to_dtype(stored.load(index), dtype), join(stored.cost))


def _along(g: Any, x: Tensor, dim: int, index: Tensor, src: Any, add: bool) -> Tensor:
    dim = dim % len(x.sizes) if x.sizes else 0
    dtype, src = x.dtype, g.operand(src)

    def place(at: Index) -> Index:
        result = [sympy.S.Zero if n == 1 else i for i, n in zip(at, x.sizes)]
        if result:
            result[dim] = _indirect(index, at, x.sizes[dim])
        return result

    def value(at: Index) -> Any:
        if isinstance(src, NUMBERS):
            return operand(src, at, dtype)
        return src.load([sympy.S.Zero if n == 1 else i for i, n in zip(at, src.sizes)])

    return _scatter(g, x, index.sizes, place, value, add)


@lowering("scatter")
def _scatter_store(g: Any, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    return _along(g, x, dim, index, src, add=False)


@lowering("scatter_add")
def _scatter_add(g: Any, x: Tensor, dim: int, index: Tensor, src: Any) -> Tensor:
    return _along(g, x, dim, index, src, add=True)


@lowering("index_put")
def _index_put(g: Any, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    indexed = _Indexed(x.sizes, indices)
    return _scatter(g, x, indexed.shape(), indexed.place, lambda at: values.load(_broadcast(at, values.sizes)), accumulate)
