"""Kinds of mappings built on a dict variable: ``defaultdict``, ``d.keys()``/``values()``/``items()``, read-only proxies."""
from __future__ import annotations

import collections
import types

from .base import Variable
from .containers import ContainerVariable, is_none, new, none
from .dicts import DictVariable
from .tuples import TupleVariable


class DictViewVariable(ContainerVariable):
    """``d.keys()``, ``d.values()``, ``d.items()`` of a dict variable (live, as in Python)."""

    def __init__(self, owner: DictVariable, kind: str, source=None):
        super().__init__(source)
        self.owner, self.kind = owner, kind

    def python_type(self) -> type:
        return type(getattr({}, self.kind)())

    def children(self):
        return (self.owner,)

    def iterate(self, tx):
        pairs = self.owner.items.values()
        if self.kind == "items":
            return [new(tx, TupleVariable(pair)) for pair in pairs]
        return [pair[self.kind == "values"] for pair in pairs]

    def length(self, tx) -> int:
        return self.owner.length(tx)

    def contains(self, tx, item) -> bool:
        if self.kind == "keys":
            return self.owner.contains(tx, item)
        return TupleVariable(self.iterate(tx)).contains(tx, item)

    def binary(self, tx, op, other, reverse=False):
        if self.kind == "items" and op in ("eq", "ne") and isinstance(other, DictViewVariable) and other.kind == "items":
            from .builtin import binary_op

            return binary_op(tx, op, self.owner, other.owner)
        if self.kind != "values" and op in ("and_", "or_", "sub", "xor", "eq", "ne", "le", "lt", "ge", "gt"):
            from .sets import SetVariable, as_set

            mine = SetVariable.from_items(tx, self.iterate(tx))
            return mine.binary(tx, op, as_set(tx, other), reverse)
        return None

    def m_isdisjoint(self, tx, other):
        from .sets import SetVariable

        return SetVariable.from_items(tx, self.iterate(tx)).m_isdisjoint(tx, other)

    def m_mapping(self, tx):
        return MappingProxyVariable(self.owner)

    def m___reversed__(self, tx):
        from .iterators import ItemsIterator

        return new(tx, ItemsIterator(self.iterate(tx)[::-1]))

    def reconstruct(self, cg) -> None:
        cg(self.owner)
        cg.load_method_call(self.kind, [])


class MappingProxyVariable(ContainerVariable):
    """A read-only view of a dict variable (``types.MappingProxyType``)."""

    cls = types.MappingProxyType
    READ = {"get", "keys", "values", "items", "copy", "__getitem__", "__contains__", "__len__", "__iter__"}

    def __init__(self, owner: DictVariable, source=None):
        super().__init__(source)
        self.owner = owner

    def children(self):
        return (self.owner,)

    def iterate(self, tx):
        return self.owner.iterate(tx)

    def length(self, tx):
        return self.owner.length(tx)

    def contains(self, tx, item):
        return self.owner.contains(tx, item)

    def binary(self, tx, op, other, reverse=False):
        return self.owner.binary(tx, op, other, reverse) if op in ("getitem", "eq", "ne", "or_") else None

    def call_method(self, tx, name, args, kwargs):
        if name in self.READ:
            return self.owner.call_method(tx, name, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.call_const(types.MappingProxyType, [self.owner])


class DefaultDictVariable(DictVariable):
    """``collections.defaultdict``; ``factory`` is a variable (None: plain KeyError)."""

    cls = collections.defaultdict

    def __init__(self, items=None, source=None, real=None, cls=None, factory: Variable | None = None):
        super().__init__(items, source, real, cls)
        self.factory = factory or none()

    def getitem(self, tx, key):
        found = self.lookup(tx, key)
        if found is None and not is_none(self.factory):
            found = self.factory.call(tx, [], {})
            self.m___setitem__(tx, key, found)
        return found if found is not None else super().getitem(tx, key)

    def getattr(self, tx, name):
        return self.factory if name == "default_factory" else super().getattr(tx, name)

    def m_copy(self, tx):
        return new(tx, DefaultDictVariable(self.items, factory=self.factory))

    def children(self):
        return [*super().children(), self.factory]

    def reconstruct(self, cg) -> None:
        cg.call_const(collections.defaultdict, [self.factory, DictVariable(self.items)])
