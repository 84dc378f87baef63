"""Which sizes and numbers of a frame are symbols: the user's marks, ``dynamic=``, and what has differed between calls.

A frame is first compiled for the sizes it meets. When it is compiled again, every dimension of an input whose size differs from what
earlier compilations saw at the same place (source) becomes a symbol, and stays one; so do Python ints and floats.
Called by ``output_graph`` for inputs and by ``variables.builder`` for numbers. Upstream: ``torch/_dynamo/pgo.py`` and
``variables/builder.py`` (``_automatic_dynamic``), ``torch/_dynamo/decorators.py`` (``mark_dynamic``).
"""
from __future__ import annotations

import math
from collections import defaultdict
from typing import Any, Union

import torch

from ..errors import InvalidArgument
from .cache import Meta, dynamic_dims
from .guard_kinds import Product
from .source import AttrSource, ItemSource, LocalSource, Source, is_from_module_state

Stride = Union[int, Product, None]
"""A number, a product of the tensor's own sizes, or None for one that is a symbol of its own."""
Range = tuple[int | None, int | None]


class Dynamism:
    """What one code object's frames have met, under the ``dynamic`` setting of its compiled function."""

    def __init__(self, dynamic: bool | None):
        self.dynamic = dynamic
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

    def varies_within(self, value: tuple, source: Source) -> bool:
        """The same for a tuple of numbers that would else be compared as a whole."""
        if self.dynamic is False:
            return False
        history = [old for old in self._note(value, source) if len(old) == len(value)]
        for k in range(len(value)):
            for old in history:
                if type(old[k]) in (int, float):
                    self._note(old[k], ItemSource(source, k))
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
    """An argument of the frame or an item of one; what objects hold is more often a setting than a size."""
    at: Source | None = source
    while isinstance(at, ItemSource):
        at = at.base
    return isinstance(at, LocalSource)


def size_source(tensor: Source, dim: int) -> Source:
    return ItemSource(AttrSource(tensor, "shape"), dim)


def stride_source(tensor: Source, dim: int) -> Source:
    from .variables.sources import CallSource

    return ItemSource(CallSource(AttrSource(tensor, "stride"), ()), dim)


# -- marks -------------------------------------------------------------------------------------------------------------
DYNAMIC, STATIC = "_minipt2_dynamic", "_minipt2_static"


def mark_dynamic(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int], *, min: int | None = None, max: int | None = None) -> None:
    """Have ``dim`` (one or several) of this input symbolic from the first compilation on, within ``min`` and ``max`` where given.

    Code that can only run for one size of a marked dimension is an error (MP217) that names the line. The mark belongs to this tensor
    object, not to tensors computed from it. Raises ``InvalidArgument`` for a dimension that ``tensor`` lacks or a size out of range.
    Upstream: ``torch._dynamo.mark_dynamic``, whose marks are honoured too.
    """
    marks = dict(vars(tensor).get(DYNAMIC, {}))
    for k in _dims(tensor, dim):
        size = tensor.shape[k]
        if min is not None and size < min or max is not None and size > max:
            raise InvalidArgument(f"dimension {k} has size {size}, which is not within {min} and {max}")
        marks[k] = (min, max)
    setattr(tensor, DYNAMIC, marks)


def mark_static(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Never make ``dim`` (default: any) of this input symbolic: another size is another compilation. Upstream: ``torch._dynamo.mark_static``."""
    setattr(tensor, STATIC, {*vars(tensor).get(STATIC, ()), *(range(tensor.dim()) if dim is None else _dims(tensor, dim))})


def _dims(tensor: torch.Tensor, dim: Any) -> list[int]:
    dims = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    for k in dims:
        if type(k) is not int or not -tensor.dim() <= k < tensor.dim():
            raise InvalidArgument(f"a tensor of {tensor.dim()} dimensions has no dimension {k!r}")
    return [k % tensor.dim() for k in dims]


def marked_dynamic(tensor: torch.Tensor) -> dict[int, Range | None]:
    attributes = getattr(tensor, "__dict__", None)
    if not attributes:
        return {}
    theirs = {k: (None, None) for k in attributes.get("_dynamo_dynamic_indices", ())}
    theirs.update((bound.dim, (bound.min, bound.max)) for bound in attributes.get("_dynamo_dynamic_range", ()))
    return {**theirs, **attributes.get(DYNAMIC, {})}


def marked_static(tensor: torch.Tensor) -> set[int]:
    attributes = getattr(tensor, "__dict__", None)
    return {*attributes.get("_dynamo_static_indices", ()), *attributes.get(STATIC, ())} if attributes else set()
