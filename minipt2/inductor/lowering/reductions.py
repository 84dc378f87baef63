"""Reductions: a loop nest with reduction variables inside, always realised.

Upstream: ``torch._inductor.ir.Reduction`` and ``WelfordReduction``.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable, Sequence

import sympy
import torch

from ..ops import ops
from .registry import lowering, lowerings
from .tensors import Expr, Lazy, Tensor, join

LOW = (torch.bfloat16, torch.float16)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in LOW else dtype


class _Space:
    """Which dimensions of ``x`` are reduced, and how an index of ``x`` is made of output and reduction variables."""

    def __init__(self, x: Tensor, dims: Sequence[int] | None, keepdim: bool):
        rank = len(x.sizes)
        self.reduced = set(range(rank)) if dims is None else {d % rank for d in dims} if rank else set()
        self.rdims = [d for d in sorted(self.reduced) if x.sizes[d] != 1]
        self.rsizes = tuple([x.sizes[d] for d in self.rdims])
        self.kept = [d for d in range(rank) if d not in self.reduced]
        self.outs = [(d if keepdim else k, d) for k, d in enumerate(self.kept)]
        self.rank = rank

    def index(self, out: Sequence[Expr], r: Sequence[Expr]) -> list[Expr]:
        index: list[Expr] = [sympy.S.Zero] * self.rank
        for o, d in self.outs:
            index[d] = out[o]
        for d, v in zip(self.rdims, r):
            index[d] = v
        return index


Finish = Callable[[Any], Any]


def _reduce(g: Any, x: Tensor, space: _Space, kind: str, acc: torch.dtype, value: Finish) -> Tensor:
    """``value(element)`` reduced by ``kind``; without anything to reduce, elementwise."""
    if not space.rsizes:
        if kind in ("argmax", "argmin"):
            return g.lazy(lambda index: ops.constant(0, torch.int64), join(ops=0))
        dtype = g.dtype
        return g.lazy(lambda index: ops.to_dtype(value(x.load(space.index(index, ()))), dtype), join(x.cost))
    out = g.allocate(g.sizes, g.dtype)

    def body(index: Sequence[Expr], r: Sequence[Expr]) -> None:
        result = ops.reduce(kind, value(x.load(space.index(index, r))), acc)
        out.store(index, result)

    return g.loops(out, body, space.rsizes)


def _fold(kind: str, g: Any, x: Tensor, dims: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    acc = _accumulator(g.dtype) if kind in ("sum", "prod") else torch.bool if kind in ("any", "all") else x.dtype
    return _reduce(g, x, _Space(x, dims, keepdim), kind, acc, lambda v: ops.to_dtype(v, acc))


lowerings.update({name: partial(_fold, kind) for name, kind in
                  dict(sum="sum", prod="prod", amax="max", amin="min", any="any", all="all").items()})


def _position(kind: str, g: Any, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    return _reduce(g, x, _Space(x, None if dim is None else (dim,), keepdim), kind, torch.int64, lambda v: v)


lowerings.update({name: partial(_position, name) for name in ("argmax", "argmin")})


def _degrees(count: Expr, correction: float, dtype: torch.dtype) -> Any:
    """What the sum of squares is divided by."""
    if count.is_Integer:
        return ops.constant(max(float(count) - correction, 0.0), dtype)
    free = ops.sub(ops.index_expr(count, torch.float64), ops.constant(correction, torch.float64))
    return ops.to_dtype(ops.maximum(free, ops.constant(0.0, torch.float64)), dtype)


@lowering("var_mean")
def _var_mean(g: Any, x: Tensor, dims: Sequence[int] | None, correction: float = 1, keepdim: bool = False) -> list[Tensor | None]:
    """One Welford reduction that stores variance and mean (only the ones that are read)."""
    space = _Space(x, dims, keepdim)
    acc = _accumulator(x.dtype)
    count = sympy.Mul(*space.rsizes)
    (sizes, dtype), wanted = g.outputs[0], g.used(2)
    if not space.rsizes:
        def spread(index: Sequence[Expr]) -> Any:
            v = ops.to_dtype(x.load(space.index(index, ())), acc)
            return ops.to_dtype(ops.div(ops.sub(v, v), _degrees(count, correction, acc)), dtype)
        mean = Lazy(sizes, dtype, x.device, lambda index: x.load(space.index(index, ())), join(x.cost))
        return [Lazy(sizes, dtype, x.device, spread, join(x.cost, ops=2)), mean]
    targets = [g.allocate(sizes, dtype) if use else None for use in wanted]

    def body(index: Sequence[Expr], r: Sequence[Expr]) -> None:
        mean, m2 = ops.reduce("welford", ops.to_dtype(x.load(space.index(index, r)), acc), acc)
        if targets[0] is not None:
            targets[0].store(index, ops.div(m2, _degrees(count, correction, acc)))
        if targets[1] is not None:
            targets[1].store(index, mean)

    made = [t for t in targets if t is not None]
    stored = iter(g.loops_into(made, body, space.rsizes))
    return [None if t is None else next(stored) for t in targets]
