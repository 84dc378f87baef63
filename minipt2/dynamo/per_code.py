"""A table by code object: by identity, because equal code objects may come from different files, and weakly."""
from __future__ import annotations

import weakref
from types import CodeType
from typing import Callable, Generic, TypeVar

V = TypeVar("V")


class PerCode(Generic[V]):
    """``table(code)`` is ``make(code)``, made once and dropped together with ``code``."""

    def __init__(self, make: Callable[[CodeType], V]):
        self._make = make
        self._values: dict[int, tuple[weakref.ref, V]] = {}

    def __call__(self, code: CodeType) -> V:
        found = self._values.get(id(code))
        if found is None:
            key, values = id(code), self._values
            found = values[key] = weakref.ref(code, lambda _: values.pop(key, None)), self._make(code)
        return found[1]

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._values
