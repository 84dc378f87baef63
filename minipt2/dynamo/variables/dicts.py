"""Dicts: ``dict``, ``OrderedDict``, ``defaultdict``, ``Counter``-free; their views; read-only proxies.

An existing dict is guarded key by key while only single keys are read, and as a whole (its keys in order) once
something iterates. Writes are kept as a log of keys and replayed as item assignments.
Upstream: ``torch/_dynamo/variables/dicts.py``.
"""
from __future__ import annotations

import collections
import types
from typing import Any, Iterable

import torch

from ..source import DictKeySource, ItemSource, KeyedItemSource
from . import builder
from .base import Variable, unsupported
from .containers import ContainerVariable, const, constants, new, none, note_existing, observed
from .sources import DictItemSource
from .tensor import TensorVariable

MISSING = object()


class IdKey:
    """Stands for an object hashed by identity in ``DictVariable.items``."""

    __slots__ = ("var",)

    def __init__(self, var: Variable):
        self.var = var

    def __hash__(self) -> int:
        return id(self.var)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdKey) and other.var is self.var


def key_of(tx, var: Variable) -> Any:
    """A hashable Python object that equals another one exactly when the two user values are equal keys."""
    from .lists import TupleVariable
    from .user_objects import UserObjectVariable

    real = getattr(var.mutable, "value", None)
    if real is not None and type(real).__hash__ is object.__hash__:
        tx.output.keep_distinct(real, var.source)
        return real  # an existing object hashed by identity (a module, a plain user object)
    if isinstance(var, TensorVariable):
        if var.real is None:
            return IdKey(var)
        tx.output.keep_distinct(var.real, var.source)
        return var.real
    if isinstance(var, ContainerVariable) and var.python_type().__hash__ is None:
        raise observed(TypeError, f"unhashable type: {var.python_type().__name__!r}")
    if isinstance(var, TupleVariable):
        return tuple(key_of(tx, item) for item in var.items)
    known = constants(var)
    if known is not None:
        return known[0]
    if isinstance(var, UserObjectVariable) and var.hashed_by_identity():
        return IdKey(var)
    if (fn := getattr(var, "fn", None)) is not None and not isinstance(fn, Variable):
        return fn
    unsupported("MP211", f"{var.describe()} as a dict key or set item")


def keys_of(real: dict) -> list:
    """Keys in the order that iterating gives: an ``OrderedDict`` keeps one of its own beside the dict's."""
    return list((collections.OrderedDict if isinstance(real, collections.OrderedDict) else dict).keys(real))


class DictVariable(ContainerVariable):
    """A dict. ``items`` maps ``key_of(key)`` to ``(key, value)`` variables, in order."""

    cls: type = dict

    def __init__(self, items: dict[Any, tuple[Variable, Variable]] | None = None, source=None, real: Any = None,
                 cls: type | None = None):
        super().__init__(source)
        self.real, self.cls = real, cls or self.cls
        self._items = dict(items or {}) if real is None else None
        self._seen: dict[Any, Variable] = {}
        self._log: dict[Any, tuple[Variable, Variable] | None] = {}  # writes to an existing dict; None: deleted
        self._cleared = False
        self._tx = None

    @classmethod
    def from_pairs(cls, tx, pairs: Iterable[tuple[Variable, Variable]]) -> "DictVariable":
        var = cls()
        for key, value in pairs:
            var._put(key_of(tx, key), key, value)
        return var

    @classmethod
    def existing(cls, tx, value: Any, source, kind: type = dict) -> "DictVariable":
        """The variable of a real dict of class ``kind``."""
        var = cls(None, source=source, real=value, cls=kind)
        var._tx = tx
        note_existing(tx, tx.output.side_effects.track_existing(var, value))
        return var

    # -- contents --------------------------------------------------------------------------------------------------
    @property
    def items(self) -> dict[Any, tuple[Variable, Variable]]:
        """All contents; of a dict from outside, reading it guards all keys, their order, and wraps all values."""
        if self._items is None:
            keys = keys_of(self.real)
            self._tx.output.guard(self.source, "DICT_KEYS", tuple(keys))
            items = {k: (self._key(k), self._value(k)) for k in keys}
            log, self._items = self._log, items
            for key, pair in log.items():
                self._replay(key, pair)
        return self._items

    def _replay(self, key, pair) -> None:
        if pair is None:
            self._items.pop(key, None)
        else:
            self._items[key] = pair

    def _key(self, key: Any) -> Variable:
        return builder.wrap(self._tx, key, None if is_literal(key) else self._key_source(key))

    def _key_source(self, key: Any):
        keys = keys_of(self.real)
        place = next((i for i, k in enumerate(keys) if k is key), None)  # == of two tensors is no bool
        if place is None:  # found by an equal key
            place = next(i for i, k in enumerate(keys) if not isinstance(k, torch.Tensor) and hash(k) == hash(key) and k == key)
        return DictKeySource(self.source, (place,))

    def _value(self, key: Any) -> Variable:
        if key not in self._seen:
            self._seen[key] = builder.wrap(self._tx, dict.__getitem__(self.real, key), self._value_source(key))
        return self._seen[key]

    def _value_source(self, key: Any):
        if not is_literal(key):
            return KeyedItemSource(self.source, self._key_source(key))
        if type(self.real).__getitem__ in PLAIN_GETITEM:
            return ItemSource(self.source, key)
        return DictItemSource(self.source, (key,))

    def lookup(self, tx, key: Variable) -> Variable | None:
        """The value under ``key`` or None; guards only that key of a dict from outside."""
        k = key_of(tx, key)
        if self._items is not None:
            pair = self._items.get(k)
            return None if pair is None else pair[1]
        if k in self._log:
            return None if self._log[k] is None else self._log[k][1]
        if isinstance(k, IdKey):
            return None  # made while tracing: an existing dict cannot hold it
        if not dict.__contains__(self.real, k):
            if isinstance(key, TensorVariable):  # which tensor of this kind it is was not asked so far
                tx.output.guard(key.source, "ID", k)
            tx.output.guard(self.source, "NOT_CONTAINS", k)
            return None
        if not is_literal(k):
            tx.output.guard(self.source, "DICT_KEYS", tuple(keys_of(self.real)))
        if isinstance(key, TensorVariable):
            self._key(k)  # guards that a tensor found by another path is the key
        return self._value(k)

    def _put(self, k: Any, key: Variable, value: Variable) -> None:
        if self._items is not None:
            old = self._items.get(k)
            key = key if old is None else old[0]
            self._items[k] = (key, value)
        if self.real is not None:
            if self._log.get(k, 0) is None:  # deleted before: goes to the end
                del self._log[k]
                self._cleared = True
                self.items
            self._log[k] = (key, value)

    def _drop(self, tx, k: Any) -> None:
        self.items.pop(k)
        if self.real is not None:
            self._log[k] = None

    def pairs(self, tx) -> list[tuple[Variable, Variable]]:
        return list(self.items.values())

    def children(self):
        if self._items is not None:
            return [v for pair in self._items.values() for v in pair]
        return [v for pair in self._log.values() if pair for v in pair]

    def iterate(self, tx):
        return [key for key, _ in self.items.values()]

    def length(self, tx) -> int:
        if self._items is None and not self._log:
            tx.output.guard(self.source, "LEN", len(self.real))
            return len(self.real)
        return len(self.items)

    def contains(self, tx, item: Variable) -> bool:
        return self.lookup(tx, item) is not None

    def as_python_constant(self):
        return {k.as_python_constant(): v.as_python_constant() for k, v in self.items.values()}

    def as_proxy(self):
        return {k.as_python_constant(): v.as_proxy() for k, v in self.items.values()}

    # -- operators -------------------------------------------------------------------------------------------------
    def binary(self, tx, op, other, reverse=False):
        if op == "getitem" and not reverse:
            return self.getitem(tx, other)
        if op in ("eq", "ne") and isinstance(other, DictVariable):
            return const(self._equal(tx, other) == (op == "eq"))
        if op in ("or_", "ior") and isinstance(other, DictVariable) and not reverse:
            target = self if op == "ior" else self.m_copy(tx)
            target.m_update(tx, other)
            return target
        return None

    def _equal(self, tx, other: "DictVariable") -> bool:
        from .builtin import binary_op

        if self.items.keys() != other.items.keys():
            return False
        return all(v is other.items[k][1] or binary_op(tx, "eq", v, other.items[k][1]).truth(tx)
                   for k, (_, v) in self.items.items())

    def getitem(self, tx, key: Variable) -> Variable:
        found = self.lookup(tx, key)
        if found is None:
            known = constants(key)
            raise observed(KeyError, *(known or (key.describe(),)))
        return found

    # -- methods ---------------------------------------------------------------------------------------------------
    def m_get(self, tx, key, default=None):
        found = self.lookup(tx, key)
        return found if found is not None else default if default is not None else none()

    def m___setitem__(self, tx, key, value):
        k = key_of(tx, key)
        self.changing(tx)
        self._put(k, key, value)
        return none()

    def m___delitem__(self, tx, key):
        self.m_pop(tx, key)
        return none()

    def m_pop(self, tx, key, default=None):
        found = self.lookup(tx, key)
        if found is None:
            if default is None:
                raise observed(KeyError, *(constants(key) or (key.describe(),)))
            return default
        self.changing(tx)
        self._drop(tx, key_of(tx, key))
        return found

    def m_popitem(self, tx, last=None):
        from .lists import TupleVariable

        if not self.items:
            raise observed(KeyError, "popitem(): dictionary is empty")
        at = -1 if last is None or last.truth(tx) else 0
        k = list(self.items)[at]
        pair = self.items[k]
        self.changing(tx)
        self._drop(tx, k)
        return new(tx, TupleVariable(pair))

    def m_setdefault(self, tx, key, default=None):
        found = self.lookup(tx, key)
        if found is None:
            found = default if default is not None else none()
            self.m___setitem__(tx, key, found)
        return found

    def m_update(self, tx, *others, **kwargs):
        pairs = [pair for other in others for pair in pairs_of(tx, other)]
        pairs += [(const(name), value) for name, value in kwargs.items()]
        self.changing(tx)
        for key, value in pairs:
            self._put(key_of(tx, key), key, value)
        return none()

    m___init__ = m_update

    def m_clear(self, tx):
        self.changing(tx)
        for k in list(self.items):
            self._drop(tx, k)
        return none()

    def m_copy(self, tx):
        return new(tx, type(self)(self.items, cls=self.cls) if self.cls in PLAIN else DictVariable(self.items))

    def m_keys(self, tx):
        return self._view("keys")

    def m_values(self, tx):
        return self._view("values")

    def m_items(self, tx):
        return self._view("items")

    def _view(self, kind: str) -> Variable:
        from .dict_views import DictViewVariable

        return DictViewVariable(self, kind)

    def m_move_to_end(self, tx, key, last=None):
        k = key_of(tx, key)
        if k not in self.items:
            raise observed(KeyError, *(constants(key) or (key.describe(),)))
        self.changing(tx)
        pair = self.items.pop(k)
        self._cleared = True
        if last is None or last.truth(tx):
            self.items[k] = pair
        else:
            self._items = {k: pair, **self.items}
        return none()

    def m___reversed__(self, tx):
        from .iterators import ItemsIterator

        return new(tx, ItemsIterator(self.iterate(tx)[::-1]))

    # -- after the graph -------------------------------------------------------------------------------------------
    def reconstruct(self, cg) -> None:
        if self.cls is dict:
            for key, value in self.items.values():
                cg(key)
                cg(value)
            cg.build("map", len(self.items))
        else:
            cg.call_const(self.cls, [DictVariable(self.items)])

    def emit_mutation(self, cg) -> None:
        if self._cleared:
            cg.call_const(replace_contents, [self, DictVariable(self.items)])
            cg.pop()
            return
        for pair in [p for p in self._log.values() if p is not None]:
            cg.call_const(dict_setter(self.real), [self, *pair])
            cg.pop()
        for k in [k for k, pair in self._log.items() if pair is None and k in self.real]:
            cg.call_const(dict_deleter(self.real), [self, self._key(k)])
            cg.pop()


PLAIN = (dict, collections.OrderedDict)
PLAIN_GETITEM = (dict.__getitem__, collections.defaultdict.__getitem__)


def is_literal(key: Any) -> bool:
    """A key whose value is text in generated guards."""
    if isinstance(key, tuple):
        return type(key) is tuple and all(is_literal(k) for k in key)
    return key is None or type(key) in (str, int, bool, float, bytes)


def pairs_of(tx, other: Variable) -> list[tuple[Variable, Variable]]:
    """The (key, value) pairs of a mapping or of an iterable of pairs."""
    from .iterators import items_of

    if isinstance(payload := getattr(other, "payload", other), DictVariable):
        return payload.pairs(tx)
    if isinstance(owner := getattr(other, "owner", None), DictVariable) and other.python_type() is types.MappingProxyType:
        return owner.pairs(tx)
    if not isinstance(other, ContainerVariable) and other.hasattr(tx, "keys"):
        from .builtin import binary_op

        return [(k, binary_op(tx, "getitem", other, k)) for k in items_of(tx, other.call_method(tx, "keys", [], {}))]
    pairs = [items_of(tx, pair) for pair in items_of(tx, other)]
    for i, pair in enumerate(pairs):
        if len(pair) != 2:
            raise observed(ValueError, f"dictionary update sequence element #{i} has length {len(pair)}; 2 is required")
    return [tuple(pair) for pair in pairs]


def dict_setter(real: Any):
    """The builtin that writes an item past any user-defined ``__setitem__`` (which was traced already)."""
    return collections.OrderedDict.__setitem__ if isinstance(real, collections.OrderedDict) else dict.__setitem__


def dict_deleter(real: Any):
    return collections.OrderedDict.__delitem__ if isinstance(real, collections.OrderedDict) else dict.__delitem__


def replace_contents(real: dict, contents: dict) -> None:
    """Run after a graph: give an existing dict its final contents and order."""
    base = collections.OrderedDict if isinstance(real, collections.OrderedDict) else dict
    base.clear(real)
    for key, value in contents.items():
        base.__setitem__(real, key, value)
