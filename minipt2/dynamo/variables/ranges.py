"""``slice`` and ``range``. Upstream: ``torch/_dynamo/variables/lists.py``."""
from __future__ import annotations

import operator
from typing import Iterable

from .base import Variable
from .containers import BoundMethodVariable, ContainerVariable, const, constants, fold, new, none, observed
from .sequences import as_index


class SliceVariable(Variable):
    """``slice`` of one to three parts; parts may be tensors (then only tensors can be indexed with it)."""

    def __init__(self, items: Iterable[Variable], source=None):
        super().__init__(source)
        self.items = list(items)

    def parts(self) -> list[Variable]:
        """start, stop, step."""
        if len(self.items) == 1:
            return [none(), self.items[0], none()]
        return self.items + [none()] * (3 - len(self.items))

    def children(self):
        return self.items

    def python_type(self) -> type:
        return slice

    def as_python_constant(self):
        return slice(*(part.as_python_constant() for part in self.parts()))

    def as_proxy(self):
        return slice(*(part.as_proxy() for part in self.parts()))

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name):
        if name in ("start", "stop", "step"):
            return self.parts()[("start", "stop", "step").index(name)]
        if hasattr(slice, name):
            return BoundMethodVariable(self, name)
        raise observed(AttributeError, f"'slice' object has no attribute {name!r}")

    def call_method(self, tx, name, args, kwargs):
        return fold(getattr(self.as_python_constant(), name), *(a.as_python_constant() for a in args))

    def reconstruct(self, cg) -> None:
        for part in self.parts():
            cg(part)
        cg.build("slice", 3)


class RangeVariable(ContainerVariable):
    """``range`` of known bounds."""

    cls = range

    def __init__(self, value: range, source=None):
        super().__init__(source)
        self.value = value

    def as_python_constant(self) -> range:
        return self.value

    def iterate(self, tx):
        return [const(i) for i in self.value]

    def iterator(self, tx):
        from .iterators import RangeIterator

        return new(tx, RangeIterator(self.value))

    def length(self, tx) -> int:
        return len(self.value)

    def contains(self, tx, item) -> bool:
        known = constants(item)
        return known[0] in self.value if known is not None else NotImplemented

    def binary(self, tx, op, other, reverse=False):
        if op == "getitem" and not reverse:
            return fold(operator.getitem, self.value, as_index(tx, other))
        return None

    def getattr(self, tx, name):
        if name in ("start", "stop", "step"):
            return const(getattr(self.value, name))
        return super().getattr(tx, name)

    def call_method(self, tx, name, args, kwargs):
        if name in ("index", "count") and (known := constants(*args)):
            return fold(getattr(self.value, name), *known)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.value)
