"""What lists, tuples and deques share: items, subscripts, comparison, search. Items of existing ones are wrapped on first use.

Upstream: ``BaseListVariable`` in ``torch/_dynamo/variables/lists.py``.
"""
from __future__ import annotations

import operator
from typing import Any, Iterable

from ..source import ItemSource
from . import builder
from .base import Variable, unsupported
from .constant import ConstantVariable
from .containers import ContainerVariable, const, constants, new, note_existing, observed

REVERSED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


class SequenceVariable(ContainerVariable):
    """A list, tuple, deque … Items of an existing one (``real``) are wrapped on first use."""

    def __init__(self, items: Iterable[Variable] | None = None, source=None, real: Any = None):
        super().__init__(source)
        self.real = real
        self._items: list[Variable] | None = None if real is not None else list(items or ())
        self._seen: dict[int, Variable] = {}
        self._tx = None

    # -- items -----------------------------------------------------------------------------------------------------
    @classmethod
    def existing(cls, tx, value: Any, source, kind: type | None = None) -> "SequenceVariable":
        """The variable of a real container; ``kind`` is its class where that is not fixed."""
        var = cls(None, source=source, real=value)
        if kind is not None:
            var.cls = kind
        var._tx = tx
        note_existing(tx, tx.output.side_effects.track_existing(var, value))
        return var

    @property
    def items(self) -> list[Variable]:
        """All items; reading it guards the length and every item of a container that came from outside."""
        if self._items is None:
            self._tx.output.guard(self.source, "LEN", len(self.real))
            self._items = [self._item(i) for i in range(len(self.real))]
        return self._items

    @items.setter
    def items(self, items: list[Variable]) -> None:
        self._items = list(items)

    def _item(self, i: int) -> Variable:
        if i not in self._seen:
            self._seen[i] = builder.wrap(self._tx, self.raw()[i], ItemSource(self.source, i))
        return self._seen[i]

    def raw(self):
        return self.real

    def children(self):
        return self._items if self._items is not None else ()

    def iterate(self, tx) -> list[Variable]:
        return list(self.items)

    def length(self, tx) -> int:
        if self._items is None:
            tx.output.guard(self.source, "LEN", len(self.real))
            return len(self.real)
        return len(self._items)

    def as_python_constant(self):
        return self.cls(item.as_python_constant() for item in self.items)

    def as_proxy(self):
        return [item.as_proxy() for item in self.items]

    # -- operators -------------------------------------------------------------------------------------------------
    def getitem(self, tx, key: Variable) -> Variable:
        index = as_index(tx, key)
        if isinstance(index, slice):
            return self.rebuild(tx, self.items[index])
        if self._items is None and 0 <= index < len(self.real):
            return self._item(index)
        try:
            return self.items[index]
        except IndexError:
            raise observed(IndexError, f"{self.cls.__name__} index out of range") from None

    def rebuild(self, tx, items: list[Variable]) -> Variable:
        """A new container of the plain builtin kind (what slicing and ``+`` give)."""
        return new(tx, type(self)(items))

    def binary(self, tx, op, other, reverse=False):
        if op in REVERSED:
            return self._compare(tx, REVERSED[op] if reverse else op, other)
        if op == "getitem" and not reverse:
            return self.getitem(tx, other)
        if op in ("add", "iadd") and isinstance(other, SequenceVariable) and self.kind() is other.kind():
            items = other.items + self.items if reverse else self.items + other.items
            return self.rebuild(tx, items)
        if op in ("mul", "imul") and (n := constants(other)) and isinstance(n[0], int):
            return self.rebuild(tx, self.items * n[0])
        return None

    def kind(self) -> type:
        return self.cls

    def _compare(self, tx, op: str, other: Variable) -> Variable | None:
        if not isinstance(other, SequenceVariable) or other.kind() is not self.kind():
            return const(op == "ne") if op in ("eq", "ne") and _is_plain(other) else None
        from .builtin import binary_op

        if op in ("eq", "ne") and len(self.items) != len(other.items):
            return const(op == "ne")
        for a, b in zip(self.items, other.items):
            if a is not b and not binary_op(tx, "eq", a, b).truth(tx):
                return const(op == "ne") if op in ("eq", "ne") else binary_op(tx, op, a, b)
        return const(getattr(operator, op)(len(self.items), len(other.items)))

    def contains(self, tx, item: Variable) -> bool:
        return self.find(tx, item) is not None

    def find(self, tx, item: Variable, start: int = 0, stop: int | None = None) -> int | None:
        from .builtin import binary_op

        for i, have in list(enumerate(self.items))[start:stop]:
            if have is item or binary_op(tx, "eq", have, item).truth(tx):
                return i
        return None

    def m_index(self, tx, item, start=None, stop=None):
        found = self.find(tx, item, *[c.as_python_constant() for c in (start, stop) if c is not None])
        if found is None:
            from .operators import text

            if issubclass(self.cls, tuple):
                raise observed(ValueError, "tuple.index(x): x not in tuple")
            raise observed(ValueError, f"{text(tx, item, repr).as_python_constant()} is not in {self.cls.__name__}")
        return const(found)

    def m_count(self, tx, item):
        from .builtin import binary_op

        return const(sum(have is item or binary_op(tx, "eq", have, item).truth(tx) for have in self.items))


def _is_plain(var: Variable) -> bool:
    """A value whose ``==`` with a sequence is certainly False."""
    return isinstance(var, (ConstantVariable, ContainerVariable))


def as_index(tx, key: Variable) -> int | slice:
    """A subscript as a Python int or slice; a tensor used as one breaks the graph."""
    if key.python_type() is slice and hasattr(key, "parts"):
        return slice(*(None if (c := as_index_or_none(tx, part)) is None else c for part in key.parts()))
    value = as_index_or_none(tx, key)
    if value is None:
        raise observed(TypeError, "indices must be integers or slices, not NoneType")
    return value


def as_index_or_none(tx, key: Variable) -> int | None:
    known = constants(key)
    if known is None:
        from .user_objects import UserObjectVariable

        if isinstance(key, UserObjectVariable):
            return as_index(tx, key.call_method(tx, "__index__", [], {}))
        unsupported("MP102", f"a Python subscript that depends on tensor data: {key.describe()}",
                    "index with torch operations (index_select, gather) instead of Python lists")
    if known[0] is not None and not hasattr(known[0], "__index__"):
        raise observed(TypeError, f"indices must be integers or slices, not {type(known[0]).__name__}")
    return None if known[0] is None else operator.index(known[0])
