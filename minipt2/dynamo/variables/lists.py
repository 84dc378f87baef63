"""Lists and deques: methods that change them, and how an existing one gets its final contents.

Upstream: ``torch/_dynamo/variables/lists.py``.
"""
from __future__ import annotations

import collections
from typing import Any

from .base import Variable
from .containers import const, constants, new, none, observed
from .ranges import RangeVariable, SliceVariable
from .sequences import SequenceVariable, as_index
from .tuples import NamedTupleVariable, SizeVariable, TupleVariable

__all__ = ["DequeVariable", "ListVariable", "NamedTupleVariable", "RangeVariable", "SequenceVariable", "SizeVariable", "SliceVariable",
           "TupleVariable", "as_index"]


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
        cg.call_const(replace_items, [self, TupleVariable(self.items)])
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
        from .iterators import items_of, steps_of

        if (steps := steps_of(tx, other)) is None:
            more = items_of(tx, other)
            self._edit(tx).extend(more)
        else:
            for item in steps:
                self._edit(tx).append(item)
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


def replace_items(real: Any, items: tuple) -> None:
    """Run after a graph: give an existing list or deque its final contents."""
    if isinstance(real, collections.deque):
        collections.deque.clear(real)
        collections.deque.extend(real, items)
    else:
        list.__setitem__(real, slice(None), items)
