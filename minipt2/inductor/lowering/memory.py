"""Joining, padding and copying: where values go in memory.

Upstream: ``torch._inductor.ir.ConcatKernel``; ``constant_pad_nd`` and ``clone`` of ``torch._inductor.lowering``.
"""
from __future__ import annotations

from typing import Any, Sequence

import sympy
import torch

from ..ops import ops
from .order import same_strides
from .pointwise import in_dtype, operand
from .registry import lowering
from .tensors import Expr, Index, Lazy, Tensor, join
from .views import sliced


@lowering("cat")
def _cat(g: Any, xs: Sequence[Tensor], dim: int) -> Tensor:
    """One allocation; every part is a loop nest of its own that computes straight into its place."""
    sizes = g.sizes
    dim %= len(sizes)
    out = g.allocate(sizes, g.dtype, order_of=xs)
    g.emit_allocation(out)
    offset: Expr = sympy.S.Zero
    for x in xs:
        def body(index: Index, x: Tensor = x, offset: Expr = offset) -> None:
            place = list(index)
            place[dim] = index[dim] + offset
            out.store(place, x.load(index))
        g.emit_loops(g.new_name(), out.part(x.sizes, dim, offset), x.sizes, (), body)
        offset = offset + x.sizes[dim]
    return out.stored()


@lowering("pad")
def _pad(g: Any, x: Tensor, lo: Sequence[int], hi: Sequence[int], value: bool | int | float) -> Tensor:
    known = [n for n in (*lo, *hi) if not isinstance(n, sympy.Expr)]
    if any(n < 0 for n in known) and len(known) == 2 * len(lo):
        starts = [max(-n, 0) for n in lo]
        sizes = tuple([n - a - max(-b, 0) for n, a, b in zip(x.sizes, starts, hi)])
        x, lo, hi = sliced(x, starts, [1] * len(lo), sizes), [max(n, 0) for n in lo], [max(n, 0) for n in hi]
    if not any(lo) and not any(hi):
        return x
    inner_sizes, dtype, value = x.sizes, g.dtype, g.operand(value)

    def inner(index: Index) -> Any:
        if any(n == 0 for n in inner_sizes):
            return operand(value, index, dtype)
        mask, filler = _inside(index, inner_sizes, lo, hi), 0 if isinstance(value, sympy.Expr) else in_dtype(value, dtype)
        inside = ops.masked(mask, lambda: x.load(_shifted(index, inner_sizes, lo)), filler)
        return ops.where(mask, inside, operand(value, index, dtype)) if isinstance(value, sympy.Expr) else inside

    return g.lazy(inner, join(x.cost, ops=3))


def _shifted(index: Index, sizes: Sequence[Expr], lo: Sequence[int]) -> list[Expr]:
    return [sympy.S.Zero if n == 1 else i - a if a else i for i, n, a in zip(index, sizes, lo)]


def _inside(index: Index, sizes: Sequence[Expr], lo: Sequence[int], hi: Sequence[int]) -> Any:
    """Whether a padded index falls on an element of the original."""
    tests = []
    for i, n, a, b in zip(index, sizes, lo, hi):
        position = ops.index_expr(i, torch.int64) if a or b else None
        if a:
            tests.append(ops.ge(position, ops.index_expr(a, torch.int64) if isinstance(a, sympy.Expr) else ops.constant(a, torch.int64)))
        if b:
            tests.append(ops.lt(position, ops.index_expr(n + a, torch.int64)))
    mask = tests[0]
    for test in tests[1:]:
        mask = ops.logical_and(mask, test)
    return mask


@lowering("copy_strided")
def _copy_strided(g: Any, x: Tensor, strides: Sequence[int]) -> Tensor:
    """Only what demands memory (an output, an extern call) makes the copy; loops read ``x`` itself."""
    wanted = g.symbols.sizes(strides)
    place = x.place()
    if place is not None and g.node not in g.returned and same_strides(x.sizes, place.layout.strides, wanted):
        return x
    if place is None and isinstance(x, Lazy) and x.copy_of is None and x.origin is not None and len(x.origin.users) == 1:
        x.strides, x.exact = wanted, True  # nobody else minds where it goes
        return x
    out: Lazy = g.lazy(x.load, x.cost)
    out.copy_of, out.exact, out.strides = x, True, wanted
    return out
