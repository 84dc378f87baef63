"""What a tensor is during lowering: ``Stored`` in a buffer, ``Lazy`` (a closure over an index), or a ``View`` of another.

All have ``sizes``, ``dtype``, ``device``, ``load(index)`` (index: one expression for each dimension), ``place()`` (where it lies in memory,
or None) and ``cost``. A Lazy that is realised later turns every closure that reads it into a load.
Upstream: ``TensorBox``, ``StorageBox``, ``Pointwise`` and ``BaseView`` of ``torch._inductor.ir``.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, NamedTuple, Sequence

import sympy
import torch

from ...shapes import recombine
from ..ir import Layout
from ..ops import ops

Expr = sympy.Expr
Index = Sequence[Expr]
Sizes = tuple[Expr, ...]
NUMBERS = (bool, int, float, sympy.Expr)
"""What an operand is that is no tensor; an expression is a number of the call."""


class Place(NamedTuple):
    """A buffer and how the tensor lies in it."""

    name: str
    layout: Layout


class Cost(NamedTuple):
    """What computing one element anew takes: the buffers read, the number of operations, and whether one of them is expensive."""

    reads: frozenset[str] = frozenset()
    ops: int = 0
    heavy: bool = False


FREE = Cost()


class Stored:
    """A tensor in memory."""

    __slots__ = ("_place", "cost")

    def __init__(self, name: str, layout: Layout):
        self._place, self.cost = Place(name, layout), Cost(frozenset((name,)))

    @property
    def sizes(self) -> Sizes:
        return self._place.layout.sizes

    @property
    def dtype(self) -> torch.dtype:
        return self._place.layout.dtype

    @property
    def device(self) -> torch.device:
        return self._place.layout.device

    def place(self) -> Place:
        return self._place

    def load(self, index: Index) -> Any:
        return load(self._place, index)


class Lazy:
    """A tensor that is not in memory: ``inner(index)`` computes an element.

    ``strides``: the memory order to give it when realised (None: row-major); ``exact``: those strides are required, not a preference.
    ``copy_of``: set when it only repeats another tensor's elements.
    """

    __slots__ = ("sizes", "dtype", "device", "inner", "strides", "exact", "copy_of", "origin", "_cost", "_place")

    def __init__(self, sizes: Sizes, dtype: torch.dtype, device: torch.device, inner: Callable[[Index], Any], cost: Cost):
        self.sizes, self.dtype, self.device, self.inner, self._cost = sizes, dtype, device, inner, cost
        self.strides: tuple[Expr, ...] | None = None
        self.exact = False
        self.copy_of: Tensor | None = None
        self.origin: Any = None
        self._place: Place | None = None

    @property
    def cost(self) -> Cost:
        return self._cost

    def place(self) -> Place | None:
        return self._place

    def realised(self, place: Place) -> None:
        """From now on, loads read memory; the closure and what it holds are let go."""
        self._place, self._cost = place, Cost(frozenset((place.name,)))
        self.inner, self.copy_of = None, None

    def cheaper(self, cost: Cost) -> None:
        """What the closure reads has been put into memory."""
        self._cost = cost

    def load(self, index: Index) -> Any:
        if self._place is not None:
            return load(self._place, index)
        ops.note(self.origin)
        if self._cost.ops < 2:
            return self.inner(index)
        return ops.memo((self, *index), lambda: self.inner(index))


class View:
    """Another arrangement of ``source``'s elements.

    ``to_source(index)`` maps an index; ``relayout(layout)`` gives the view's layout when the source's memory allows it without a copy.
    """

    __slots__ = ("source", "sizes", "to_source", "relayout", "strides", "kind", "origin", "_place")

    def __init__(self, source: "Tensor", sizes: Sizes, to_source: Callable[[Index], Index],
                 relayout: Callable[[Layout], Layout | None], kind: str):
        self.source, self.sizes, self.to_source, self.relayout, self.kind = source, sizes, to_source, relayout, kind
        self.strides: tuple[Expr, ...] | None = None
        self.origin: Any = None
        self._place: Place | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def cost(self) -> Cost:
        return self.source.cost if self._place is None else Cost(frozenset((self._place.name,)))

    def place(self) -> Place | None:
        """The source's place rearranged, or that of a copy."""
        if self._place is None:
            source = self.source.place()
            layout = None if source is None else self.relayout(source.layout)
            self._place = None if layout is None else Place(source.name, layout)
        return self._place

    def realised(self, place: Place) -> None:
        self._place = place

    def load(self, index: Index) -> Any:
        place = self.place()
        return self.source.load(self.to_source(index)) if place is None else load(place, index)


Tensor = Stored | Lazy | View


class Target:
    """Memory that a loop nest fills."""

    def __init__(self, name: str, layout: Layout):
        self.name, self.layout = name, layout

    def store(self, index: Index, value: Any, mode: str | None = None) -> None:
        ops.store(self.name, self.layout.index(index), ops.to_dtype(value, self.layout.dtype), mode)

    def part(self, sizes: Sizes, dim: int, offset: Expr) -> Layout:
        """The layout of the part of ``sizes`` that begins at ``offset`` along ``dim``."""
        layout = self.layout
        return Layout(sizes, layout.strides, layout.dtype, layout.device, layout.offset + layout.strides[dim] * offset)

    def stored(self) -> Stored:
        return Stored(self.name, self.layout)


def load(place: Place, index: Index) -> Any:
    layout = place.layout
    return ops.load(place.name, flat_index(tuple(index), layout.strides, layout.offset))


@lru_cache(maxsize=65536)
def flat_index(index: tuple[Expr, ...], strides: tuple[Expr, ...], offset: Expr) -> Expr:
    """Position in memory: the sum of index times stride, with split and merged dimensions put together again."""
    return recombine(sympy.Add(offset, *[i * s for i, s in zip(index, strides) if i is not sympy.S.Zero]))


def join(*costs: Cost, ops: int = 1, heavy: bool = False) -> Cost:
    """The cost of ``ops`` operations on values of these costs."""
    if len(costs) == 1:
        c = costs[0]
        return Cost(c.reads, c.ops + ops, c.heavy or heavy)
    return Cost(frozenset().union(*[c.reads for c in costs]), sum(c.ops for c in costs) + ops, heavy or any(c.heavy for c in costs))
