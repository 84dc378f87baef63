"""Which sizes and numbers of a frame are symbols: the user's marks, ``dynamic=``, and what has differed between calls.

A frame is first compiled for the sizes it meets. When it is compiled again, every dimension of an input whose size differs from what
earlier compilations saw at the same place (source) becomes a symbol, and stays one; so do Python ints and floats.
Called by ``output_graph`` for inputs and by ``variables.builder`` for numbers. Upstream: ``torch/_dynamo/pgo.py`` and
``variables/builder.py`` (``_automatic_dynamic``). What users say themselves: ``marks``.
"""
from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Union

import torch

from .cache import Meta, dynamic_dims
from .guard_kinds import Product
from .marks import Range, marked_dynamic, marked_static
from .source import AttrSource, ItemSource, LocalSource, Source, is_from_module_state

Stride = Union[int, Product, None]
"""A number, a product of the tensor's own sizes, or None for one that is a symbol of its own."""

SLICE_PARTS = ("start", "stop", "step")


class Dynamism:
    """What one code object's frames have met, under the ``dynamic`` setting of its compiled function."""

    def __init__(self, dynamic: bool | None):
        self.dynamic = dynamic
        self.assumes = True
        """Whether branches on data may assume that what only raises does not happen (``assumptions``)."""
        self.news: list[str] = []
        """What became symbolic in the last compilation, in words."""
        self._told: set[str] = set()
        self._tensors: dict[tuple[str, int], list[Meta]] = defaultdict(list)
        self._numbers: dict[tuple[str, type], list[Any]] = defaultdict(list)

    # -- tensors ---------------------------------------------------------------------------------------------------
    def dims(self, value: torch.Tensor, source: Source, static: bool) -> dict[int, Range | None]:
        """The dimensions of an input that are to be symbols, with the range of those that the user has marked."""
        if value.layout is not torch.strided or value.is_nested:
            return {}
        marks, fixed = marked_dynamic(value), marked_static(value)
        history = self._tensors[source.name(), value.dim()]
        new = Meta(tuple(value.shape), value.stride())
        if new not in history:
            history.append(new)
        if self.dynamic is False:
            return {}
        dims: dict[int, Range | None] = {}
        if self.dynamic and not static and not is_from_module_state(source):
            dims = dict.fromkeys(range(value.dim()))
        elif len(history) > 1 and not isinstance(value, torch.nn.Parameter):
            found = set().union(*(dynamic_dims(old, new) for old in history))
            for dim in sorted(found):
                self._tell(f"{source.name()}.shape[{dim}]", list(dict.fromkeys(meta.shape[dim] for meta in history)))
            dims = dict.fromkeys(sorted(found | {0} if found else found))  # where a length varies, so will the batch
        return {**{dim: None for dim in dims if dim not in fixed}, **marks}

    def strides(self, value: torch.Tensor, source: Source, dims: Any) -> tuple[Stride, ...]:
        """Each stride of an input whose ``dims`` are symbols, as something that was true of every input so far laid out in that order."""
        history = [meta for meta in self._tensors[source.name(), value.dim()] if _order(meta) == _order(value)]
        found: dict[int, Product] = {}
        strides: list[Stride] = [None] * value.dim()
        for dim in sorted(range(value.dim()), key=lambda d: (value.stride(d), -d)):
            step = value.stride(dim)
            products = [p.times(k, None if k in dims else value.shape[k]) for k, p in found.items() if value.shape[k] * value.stride(k) == step]
            for choice in (*products[::-1], Product(step, ())):
                if all(choice.of(meta.shape) == meta.stride[dim] for meta in history):
                    strides[dim] = choice if choice.dims else choice.factor
                    found[dim] = choice
                    break
        return tuple(strides)

    # -- numbers ---------------------------------------------------------------------------------------------------
    def varies(self, value: int | float, source: Source) -> bool:
        """Whether a Python number is to be a symbol."""
        if self.dynamic is False or type(value) is float and not math.isfinite(value):
            return False
        history = self._note(value, source)
        if len(history) > 1:
            self._tell(source.name(), history)
            return True
        return bool(self.dynamic) and type(value) is int and value not in (0, 1) and _is_argument(source)

    def varies_within(self, value: tuple, source: Source, parts: tuple[Source, ...] = ()) -> bool:
        """The same for a tuple of numbers that would else be compared as a whole; ``parts``: where they are found, if not as its items."""
        if self.dynamic is False:
            return False
        history = [old for old in self._note(value, source) if len(old) == len(value)]
        for k in range(len(value)):
            for old in history:
                if type(old[k]) in (int, float):
                    self._note(old[k], parts[k] if parts else ItemSource(source, k))
        return len(history) > 1 or bool(self.dynamic) and _is_argument(source) and any(type(v) is int for v in value)

    def _tell(self, what: str, values: list[Any]) -> None:
        if what not in self._told:
            self._told.add(what)
            self.news.append(f"{what} is dynamic from now on: it was {', then '.join(map(str, values))}")

    def _note(self, value: Any, source: Source) -> list[Any]:
        history = self._numbers[source.name(), type(value)]
        if value not in history:
            history.append(value)
        return history


def _order(tensor: Any) -> list[int]:
    """Dimensions of more than one element, the fastest first."""
    stride = tensor.stride if isinstance(tensor, Meta) else tensor.stride()
    return sorted([k for k, n in enumerate(tensor.shape) if n != 1], key=lambda k: (stride[k], -k))


def _is_argument(source: Source) -> bool:
    """An argument of the frame, an item of one or an end of a slice; what objects hold is more often a setting than a size."""
    at: Source | None = source
    while isinstance(at, ItemSource) or isinstance(at, AttrSource) and at.attr in SLICE_PARTS:
        at = at.base
    return isinstance(at, LocalSource)


def size_source(tensor: Source, dim: int) -> Source:
    return ItemSource(AttrSource(tensor, "shape"), dim)


def stride_source(tensor: Source, dim: int) -> Source:
    from .variables.sources import CallSource

    return ItemSource(CallSource(AttrSource(tensor, "stride"), ()), dim)
