"""``set`` and ``frozenset``. Upstream: ``SetVariable`` in ``torch/_dynamo/variables/dicts.py``."""
from __future__ import annotations

from typing import Any, Iterable

from .base import Variable, unsupported
from .containers import ContainerVariable, const, new, none, observed
from .dicts import IdKey, key_of

ALGEBRA = {"and_": "and", "or_": "or", "sub": "sub", "xor": "xor", "iand": "and", "ior": "or", "isub": "sub",
           "ixor": "xor"}
COMPARE = {"lt": "__lt__", "le": "__le__", "gt": "__gt__", "ge": "__ge__", "eq": "__eq__", "ne": "__ne__"}


class SetVariable(ContainerVariable):
    """A set; ``items`` maps ``key_of(item)`` to the item, in insertion order."""

    cls: type = set

    def __init__(self, items: dict[Any, Variable] | None = None, source=None, real: Any = None):
        super().__init__(source)
        self.items, self.real = dict(items or {}), real

    @classmethod
    def from_items(cls, tx, items: Iterable[Variable]) -> "SetVariable":
        var = cls()
        for item in items:
            var.items.setdefault(key_of(tx, item), item)
        return var

    def children(self):
        return self.items.values()

    def iterate(self, tx):
        if len(self.items) > 1 and self.real is None:
            self._check_order()
        return list(self.items.values())

    def _check_order(self) -> None:
        """Python's own iteration order, where it can be known: build the real set the same way."""
        if any(isinstance(k, IdKey) for k in self.items):
            unsupported("MP212", "iteration over a set of objects made while tracing: its order depends on addresses",
                        "use a list or a dict where the order of items matters")
        self.items = {k: self.items[k] for k in self.cls(self.items)}

    def length(self, tx) -> int:
        return len(self.items)

    def contains(self, tx, item) -> bool:
        return key_of(tx, item) in self.items

    def as_python_constant(self):
        return self.cls(item.as_python_constant() for item in self.items.values())

    def as_proxy(self):
        return self.as_python_constant()

    # -- algebra ---------------------------------------------------------------------------------------------------
    def binary(self, tx, op, other, reverse=False):
        if not isinstance(other, SetVariable):
            return const(op == "ne") if op in ("eq", "ne") and isinstance(other, ContainerVariable) else None
        left, right = (other, self) if reverse else (self, other)
        if op in COMPARE:
            return const(getattr(set(left.items), COMPARE[op])(set(right.items)))
        if op not in ALGEBRA:
            return None
        result = combine(ALGEBRA[op], left.items, right.items)
        if op.startswith("i") and type(left) is SetVariable and not reverse:
            left.changing(tx)
            left.items = result
            return left
        return new(tx, type(left)(result))

    def _combine(self, tx, kind: str, others, inplace: bool = False):
        result = self.items
        for other in others:
            result = combine(kind, result, as_set(tx, other).items)
        if inplace:
            self.changing(tx)
            self.items = dict(result)
            return none()
        return new(tx, type(self)(result))

    def m_union(self, tx, *others):
        return self._combine(tx, "or", others)

    def m_intersection(self, tx, *others):
        return self._combine(tx, "and", others)

    def m_difference(self, tx, *others):
        return self._combine(tx, "sub", others)

    def m_symmetric_difference(self, tx, other):
        return self._combine(tx, "xor", [other])

    def m_update(self, tx, *others):
        return self._combine(tx, "or", others, inplace=True)

    m___init__ = m_update

    def m_intersection_update(self, tx, *others):
        return self._combine(tx, "and", others, inplace=True)

    def m_difference_update(self, tx, *others):
        return self._combine(tx, "sub", others, inplace=True)

    def m_symmetric_difference_update(self, tx, other):
        return self._combine(tx, "xor", [other], inplace=True)

    def m_issubset(self, tx, other):
        return self.binary(tx, "le", as_set(tx, other))

    def m_issuperset(self, tx, other):
        return self.binary(tx, "ge", as_set(tx, other))

    def m_isdisjoint(self, tx, other):
        return const(not (self.items.keys() & as_set(tx, other).items.keys()))

    # -- changes ---------------------------------------------------------------------------------------------------
    def m_add(self, tx, item):
        k = key_of(tx, item)
        if k not in self.items:
            self.changing(tx)
            self.items[k] = item
        return none()

    def m_discard(self, tx, item):
        k = key_of(tx, item)
        if k in self.items:
            self.changing(tx)
            del self.items[k]
        return none()

    def m_remove(self, tx, item):
        if key_of(tx, item) not in self.items:
            raise observed(KeyError, item.describe())
        return self.m_discard(tx, item)

    def m_pop(self, tx):
        if not self.items:
            raise observed(KeyError, "pop from an empty set")
        if len(self.items) > 1:
            unsupported("MP212", "set.pop() of a set with several items depends on hashing order")
        self.changing(tx)
        return self.items.popitem()[1]

    def m_clear(self, tx):
        self.changing(tx)
        self.items = {}
        return none()

    def m_copy(self, tx):
        return new(tx, type(self)(self.items))

    # -- after the graph -------------------------------------------------------------------------------------------
    def reconstruct(self, cg) -> None:
        for item in self.items.values():
            cg(item)
        cg.build("set", len(self.items))

    def emit_mutation(self, cg) -> None:
        from .lists import TupleVariable

        cg.call_const(replace_members, [self, TupleVariable(self.items.values())])
        cg.pop()


class FrozenSetVariable(SetVariable):
    cls = frozenset

    def reconstruct(self, cg) -> None:
        from .lists import TupleVariable

        cg.call_const(frozenset, [TupleVariable(self.items.values())])


def combine(kind: str, a: dict, b: dict) -> dict:
    if kind == "or":
        return {**a, **{k: v for k, v in b.items() if k not in a}}
    if kind == "and":
        return {k: v for k, v in a.items() if k in b}
    left = {k: v for k, v in a.items() if k not in b}
    return left if kind == "sub" else {**left, **{k: v for k, v in b.items() if k not in a}}


def as_set(tx, other: Variable) -> SetVariable:
    from .iterators import items_of

    return other if isinstance(other, SetVariable) else SetVariable.from_items(tx, items_of(tx, other))


def replace_members(real: set, members: tuple) -> None:
    """Run after a graph: give an existing set its final members."""
    set.clear(real)
    set.update(real, members)
