"""Lists, tuples, named tuples, ``torch.Size``, deques, ranges and slices.

Upstream: ``torch/_dynamo/variables/lists.py``.
"""
from __future__ import annotations

import collections
import operator
from typing import Any, Iterable

import torch

from ..source import ItemSource
from . import builder
from .base import Variable, unsupported
from .containers import BoundMethodVariable, ContainerVariable, const, constants, fold, new, none, note_existing, observed

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
            raise observed(ValueError, f"{item.describe()} is not in {self.cls.__name__}")
        return const(found)

    def m_count(self, tx, item):
        from .builtin import binary_op

        return const(sum(have is item or binary_op(tx, "eq", have, item).truth(tx) for have in self.items))


def _is_plain(var: Variable) -> bool:
    """A value whose ``==`` with a sequence is certainly False."""
    from .constant import ConstantVariable

    return isinstance(var, (ConstantVariable, ContainerVariable))


def as_index(tx, key: Variable) -> int | slice:
    """A subscript as a Python int or slice; a tensor used as one breaks the graph."""
    if isinstance(key, SliceVariable):
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


class TupleVariable(SequenceVariable):
    cls = tuple

    def as_proxy(self):
        return tuple(item.as_proxy() for item in self.items)

    def reconstruct(self, cg) -> None:
        for item in self.items:
            cg(item)
        cg.build("tuple", len(self.items))

    def call_method(self, tx, name, args, kwargs):
        if name == "__hash__":
            return fold(hash, self.as_python_constant())
        return super().call_method(tx, name, args, kwargs)


class SizeVariable(TupleVariable):
    """``torch.Size``: a tuple of known ints."""

    cls = torch.Size

    def kind(self) -> type:
        return tuple

    def rebuild(self, tx, items):
        return new(tx, SizeVariable(items)) if all(i.is_constant() for i in items) else new(tx, TupleVariable(items))

    def as_proxy(self):
        return torch.Size(item.as_proxy() for item in self.items)

    def binary(self, tx, op, other, reverse=False):
        if op in ("add", "iadd") and isinstance(other, TupleVariable):
            left, right = (other, self) if reverse else (self, other)
            keeps_class = isinstance(left.cls((0,)) + right.cls((0,)), torch.Size)  # differs between torch versions
            return self.rebuild(tx, left.items + right.items) if keeps_class else new(
                tx, TupleVariable(left.items + right.items))
        return super().binary(tx, op, other, reverse)

    def m_numel(self, tx):
        return const(torch.Size(self.as_python_constant()).numel())

    def reconstruct(self, cg) -> None:
        cg.call_const(torch.Size, [TupleVariable(self.items)])


class NamedTupleVariable(TupleVariable):
    """A ``collections.namedtuple`` or a structseq such as ``torch.return_types.max``."""

    def __init__(self, items=None, source=None, real=None, cls: type = tuple):
        super().__init__(items, source, real)
        self.cls = cls

    def kind(self) -> type:
        return tuple

    def fields(self) -> tuple[str, ...]:
        return getattr(self.cls, "_fields", None) or structseq_fields(self.cls)

    def rebuild(self, tx, items):
        return new(tx, TupleVariable(items))

    def as_python_constant(self):
        values = [item.as_python_constant() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else self.cls(values)

    def as_proxy(self):
        values = [item.as_proxy() for item in self.items]
        return self.cls(*values) if hasattr(self.cls, "_fields") else tuple(values)

    def getattr(self, tx, name):
        if name in self.fields() and not tx.output.side_effects.has_pending(self):
            return self.getitem(tx, const(self.fields().index(name)))
        if hasattr(self, "m_" + name):
            return BoundMethodVariable(self, name)
        if name == "_fields":
            return TupleVariable([const(f) for f in self.cls._fields])
        from .classes import class_attribute

        return class_attribute(tx, self, self.cls, name) or super().getattr(tx, name)

    def m__replace(self, tx, **changes):
        items = [changes.get(f, item) for f, item in zip(self.fields(), self.items)]
        return new(tx, NamedTupleVariable(items, cls=self.cls))

    def m__asdict(self, tx):
        from .dicts import DictVariable

        return new(tx, DictVariable.from_pairs(tx, [(const(f), i) for f, i in zip(self.fields(), self.items)]))

    def call_method(self, tx, name, args, kwargs):
        from .classes import user_defined

        if not hasattr(self, "m_" + name) and user_defined(self.cls, name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, cg) -> None:
        if hasattr(self.cls, "_fields"):
            cg.call_const(tuple.__new__, [const(self.cls), TupleVariable(self.items)])
        else:
            cg.call_const(self.cls, [TupleVariable(self.items)])


def structseq_fields(cls: type) -> tuple[str, ...]:
    """Names of a C struct sequence's items, in order (``torch.return_types.*``)."""
    names = [n for n, v in vars(cls).items() if type(v).__name__ == "member_descriptor"]
    return tuple(names[: getattr(cls, "n_sequence_fields", len(names))])


class ListVariable(SequenceVariable):
    cls = list

    def reconstruct(self, cg) -> None:
        for item in self.items:
            cg(item)
        cg.build("list", len(self.items))

    def iterator(self, tx):
        from .iterators import ListIterator

        return new(tx, ListIterator(self))

    def emit_mutation(self, cg) -> None:
        """``real[:] = items``."""
        cg.call_const(replace_items, [self, new_list(self.items)])
        cg.pop()

    def binary(self, tx, op, other, reverse=False):
        if op == "iadd" and not reverse:
            self.m_extend(tx, other)
            return self
        if op == "imul" and not reverse and (n := constants(other)):
            self.changing(tx)
            self.items = self.items * n[0]
            return self
        return super().binary(tx, op, other, reverse)

    # -- methods ---------------------------------------------------------------------------------------------------
    def _edit(self, tx) -> list[Variable]:
        items = self.items
        self.changing(tx)
        return items

    def m_append(self, tx, item):
        self._edit(tx).append(item)
        return none()

    def m_extend(self, tx, other):
        from .iterators import items_of

        more = items_of(tx, other)
        self._edit(tx).extend(more)
        return none()

    m___init__ = m_extend

    def m_insert(self, tx, index, item):
        at = as_index(tx, index)
        self._edit(tx).insert(at, item)
        return none()

    def m_pop(self, tx, index=None):
        at = -1 if index is None else as_index(tx, index)
        if not -len(self.items) <= at < len(self.items):
            raise observed(IndexError, "pop from empty list" if not self.items else "pop index out of range")
        return self._edit(tx).pop(at)

    def m_remove(self, tx, item):
        at = self.find(tx, item)
        if at is None:
            raise observed(ValueError, "list.remove(x): x not in list")
        del self._edit(tx)[at]
        return none()

    def m_clear(self, tx):
        self._edit(tx).clear()
        return none()

    def m_reverse(self, tx):
        self._edit(tx).reverse()
        return none()

    def m_copy(self, tx):
        return new(tx, ListVariable(self.items))

    def m_sort(self, tx, key=None, reverse=None):
        from .builtin import sort_items

        ordered = sort_items(tx, self.items, key, reverse)
        self.changing(tx)
        self.items = ordered
        return none()

    def m___setitem__(self, tx, key, value):
        index = as_index(tx, key)
        if isinstance(index, slice):
            from .iterators import items_of

            value = items_of(tx, value)
        elif not -len(self.items) <= index < len(self.items):
            raise observed(IndexError, "list assignment index out of range")
        self._edit(tx)[index] = value
        return none()

    def m___delitem__(self, tx, key):
        index = as_index(tx, key)
        if isinstance(index, int) and not -len(self.items) <= index < len(self.items):
            raise observed(IndexError, "list assignment index out of range")
        del self._edit(tx)[index]
        return none()

    def m___reversed__(self, tx):
        from .iterators import ItemsIterator

        return new(tx, ItemsIterator(self.items[::-1]))


class DequeVariable(ListVariable):
    """``collections.deque`` with its ``maxlen``."""

    cls = collections.deque

    def __init__(self, items=None, source=None, real=None, maxlen: int | None = None):
        super().__init__(items, source, real)
        self.maxlen = maxlen if real is None else real.maxlen

    def as_python_constant(self):
        return collections.deque((i.as_python_constant() for i in self.items), self.maxlen)

    def getattr(self, tx, name):
        return const(self.maxlen) if name == "maxlen" else super().getattr(tx, name)

    def rebuild(self, tx, items):
        return new(tx, DequeVariable(items, maxlen=self.maxlen))

    def _trim(self, left: bool) -> None:
        if self.maxlen is not None and (extra := len(self.items) - self.maxlen) > 0:
            self.items = self.items[:-extra] if left else self.items[extra:]

    def m_append(self, tx, item):
        super().m_append(tx, item)
        self._trim(left=False)
        return none()

    def m_extend(self, tx, other):
        super().m_extend(tx, other)
        self._trim(left=False)
        return none()

    m___init__ = m_extend

    def m_appendleft(self, tx, item):
        self._edit(tx).insert(0, item)
        self._trim(left=True)
        return none()

    def m_extendleft(self, tx, other):
        from .iterators import items_of

        for item in items_of(tx, other):
            self.m_appendleft(tx, item)
        return none()

    def m_popleft(self, tx):
        if not self.items:
            raise observed(IndexError, "pop from an empty deque")
        return self._edit(tx).pop(0)

    def m_rotate(self, tx, n=None):
        if items := self._edit(tx):
            k = (1 if n is None else n.as_python_constant()) % len(items)
            self.items = items[-k:] + items[:-k] if k else items
        return none()

    def m_copy(self, tx):
        return self.rebuild(tx, self.items)

    def reconstruct(self, cg) -> None:
        cg.call_const(collections.deque, [TupleVariable(self.items), const(self.maxlen)])


def new_list(items: list[Variable]) -> Variable:
    """A list variable used only while emitting: it has no identity of its own."""
    return TupleVariable(items)


def replace_items(real: Any, items: tuple) -> None:
    """Run after a graph: give an existing list or deque its final contents."""
    if isinstance(real, collections.deque):
        collections.deque.clear(real)
        collections.deque.extend(real, items)
    else:
        list.__setitem__(real, slice(None), items)


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
        return item.as_python_constant() in self.value if item.is_constant() else NotImplemented

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
