"""The iterators of ``itertools``: ``chain``, ``count``, ``repeat``, ``cycle``, ``islice``.

Comes in: variables of the iterators they are over. Goes out: items one by one, and at a break the real iterator at the same position.
Upstream: ``torch/_dynamo/variables/iter.py``.
"""
from __future__ import annotations

import itertools
from typing import Any

from .base import Variable
from .containers import const
from .iterators import IteratorVariable, next_or_none, stop, iter_of
from .lists import TupleVariable


class ChainIterator(IteratorVariable):
    """``itertools.chain``; what is chained may be an iterator of iterables itself."""

    cls = itertools.chain

    def __init__(self, outer: Variable, source=None):
        super().__init__(source)
        self.outer, self.inner = outer, None

    def children(self):
        return (self.outer,) if self.inner is None else (self.outer, self.inner)

    def advance(self, tx):
        while True:
            if self.inner is None:
                self.inner = iter_of(tx, self.outer.next(tx))
            item = next_or_none(tx, self.inner)
            if item is not None:
                return item
            self.inner = None

    def reconstruct(self, cg) -> None:
        cg.call_const(chain_from, [self.inner or TupleVariable([]), self.outer])


class CountIterator(IteratorVariable):
    cls = itertools.count

    def __init__(self, value: Variable, step: Variable, source=None):
        super().__init__(source)
        self.value, self.step = value, step

    def advance(self, tx):
        from .builtin import binary_op

        now, self.value = self.value, binary_op(tx, "add", self.value, self.step)
        return now

    def reconstruct(self, cg) -> None:
        cg.call_const(itertools.count, [self.value, self.step])


class RepeatIterator(IteratorVariable):
    cls = itertools.repeat

    def __init__(self, item: Variable, times: int | None = None, source=None):
        super().__init__(source)
        self.item, self.times = item, times

    def children(self):
        return (self.item,)

    def advance(self, tx):
        if self.times is not None:
            if self.times <= 0:
                raise stop()
            self.times -= 1
        return self.item

    def reconstruct(self, cg) -> None:
        cg.call_const(itertools.repeat, [self.item] if self.times is None else [self.item, const(self.times)])


class CycleIterator(IteratorVariable):
    cls = itertools.cycle

    def __init__(self, items: list[Variable], index: int = 0, source=None):
        super().__init__(source)
        self.items, self.index = items, index

    def children(self):
        return self.items

    def advance(self, tx):
        if not self.items:
            raise stop()
        self.index += 1
        return self.items[(self.index - 1) % len(self.items)]

    def reconstruct(self, cg) -> None:
        at = self.index % len(self.items) if self.items else 0
        cg.call_const(itertools.cycle, [TupleVariable(self.items[at:] + self.items[:at])])


class IsliceIterator(IteratorVariable):
    """``itertools.islice`` of an iterator, lazily."""

    cls = itertools.islice

    def __init__(self, inner: Variable, span: tuple[int, int | None, int], source=None):
        super().__init__(source)
        self.inner, (self.at, self.stop, self.step), self.seen = inner, span, 0

    def children(self):
        return (self.inner,)

    def advance(self, tx):
        if self.stop is not None and self.at >= self.stop:
            raise stop()
        while self.seen <= self.at:
            item = self.inner.next(tx)
            self.seen += 1
        self.at += self.step
        return item

    def reconstruct(self, cg) -> None:
        stop_at = None if self.stop is None else max(self.stop - self.seen, 0)
        cg.call_const(itertools.islice, [self.inner, const(self.at - self.seen), const(stop_at), const(self.step)])


# -- run after a graph, on real values ---------------------------------------------------------------------------------
def chain_from(first: Any, rest: Any):
    return itertools.chain.from_iterable(itertools.chain((first,), rest))
