"""Values as comparable data: what two runs of one program gave and left behind, aliases included."""
from __future__ import annotations

import collections
import dataclasses
import enum
import types
from typing import Any

import numpy as np
import torch

PLAIN = (int, str, bytes, complex, slice, range, type, type(None), type(...), types.BuiltinFunctionType, torch.Size, torch.dtype,
         torch.device, torch.layout, enum.Enum, types.GenericAlias)  # fmt: skip


@dataclasses.dataclass
class Values:
    """A tensor's values; nan equals nan, and numbers may differ by the larger ``tolerance``, relative to the largest."""

    tensor: torch.Tensor
    tolerance: float

    def __eq__(self, other: object) -> bool:
        near = max(self.tolerance, other.tolerance)
        a, b = self.tensor, other.tensor
        return a.shape == b.shape and torch.allclose(a.to(torch.complex128), b.to(torch.complex128), rtol=near, atol=near, equal_nan=True)


class Snapshot:
    """Called on values; an object met again is a reference to its first place. Iterators are used up."""

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = tolerance
        self.seen: dict[int, int] = {}
        self.alive: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return value
        if isinstance(value, types.FunctionType):
            return value.__qualname__
        if isinstance(value, (float, np.generic)):
            return type(value), repr(value)  # nan equals itself here
        if isinstance(value, (tuple, frozenset)):
            return type(value).__name__, tuple(map(self, value if isinstance(value, tuple) else sorted(value, key=str)))
        if id(value) in self.seen:
            return "again", self.seen[id(value)]
        self.seen[id(value)] = len(self.seen)
        self.alive.append(value)
        return type(value).__name__, self.contents(value)

    def contents(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            memory = value.untyped_storage().data_ptr()
            self.seen.setdefault(memory, len(self.seen))
            grad = self(value.grad) if value.is_leaf else None
            return Values(value.detach().clone(), self.tolerance), value.dtype, value.stride(), value.requires_grad, grad, self.seen[memory]
        if isinstance(value, np.ndarray):
            return value.tolist(), str(value.dtype)
        if isinstance(value, torch.Generator):
            return value.initial_seed(), value.get_state().tolist()
        if isinstance(value, (dict, types.MappingProxyType)):
            return [(self(k), self(v)) for k, v in value.items()]
        if isinstance(value, set):
            return sorted(map(str, value))
        if isinstance(value, BaseException):
            return self(value.args), self(vars(value))
        if isinstance(value, (list, collections.deque)) or hasattr(value, "__next__"):
            return [self(item) for item, _ in zip(value, range(99))], getattr(value, "maxlen", None)
        if isinstance(value, types.MethodType):
            return self(value.__func__), self(value.__self__)
        slots = {name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)}
        return self(slots or getattr(value, "__dict__", None))


def first_difference(expected: Any, found: Any) -> str:
    """The place in two snapshots where they differ, and what is there."""
    if type(expected) is type(found) and isinstance(found, (tuple, list)) and len(found) == len(expected):
        i = next(i for i, (a, b) in enumerate(zip(expected, found)) if a != b)
        return f"[{i}]{first_difference(expected[i], found[i])}"
    return f":\n  eager    {expected}\n  compiled {found}"
