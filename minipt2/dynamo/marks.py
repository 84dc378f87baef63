"""What users say of the sizes of a tensor: that a dimension varies, or that it does not.

In: calls of ``mark_dynamic`` and ``mark_static``, of ours or of ``torch._dynamo``'s. Out: the marks, for ``dynamic``; and for guards, whether
a call's input has one that compiled code does not serve. Upstream: ``torch/_dynamo/decorators.py``.
"""
from __future__ import annotations

import weakref
from typing import Any

import torch

from ..errors import InvalidArgument

Range = tuple[int | None, int | None]
DYNAMIC, STATIC = "_minipt2_dynamic", "_minipt2_static"
alive: dict[int, weakref.ref] = {}
"""Tensors with a dimension marked dynamic. While there are none, no call pays for asking."""


def beyond(tensor: torch.Tensor, symbolic: tuple[int, ...]) -> bool:
    """Whether a dimension of an input is marked dynamic that compiled code, where ``symbolic`` ones may vary, takes for fixed."""
    return id(tensor) in alive and not vars(tensor).get(DYNAMIC, {}).keys() <= {*symbolic}


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
    alive[id(tensor)] = weakref.ref(tensor, lambda _, key=id(tensor): alive.pop(key, None))


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
