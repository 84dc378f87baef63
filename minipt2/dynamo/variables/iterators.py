"""Iterators: over containers and ranges, ``zip``, ``enumerate``, ``map``, ``filter``; those of ``itertools`` are in ``itertools_iterators``.

An iterator advances by ``next(tx)`` after telling the side-effect log; ``reconstruct`` builds one at the present position
(needed where a graph breaks inside a ``for`` loop). Upstream: ``torch/_dynamo/variables/iter.py``.
"""
from __future__ import annotations

import itertools
from typing import Any

from .base import ObservedException, Variable, unsupported
from .containers import ContainerVariable, const, new, observed
from .lists import ListVariable, TupleVariable

MAX_DRAIN = 100_000


class IteratorVariable(ContainerVariable):
    """Base: ``advance(tx)`` gives the next item or raises the traced program's StopIteration.

    One that came from outside holds inner iterators from outside, which are advanced afterwards: by default it needs nothing itself.
    """

    via = 0  # items taken through an ``enumerate``, which replays them itself

    def emit_mutation(self, cg) -> None:
        return None

    def replayed(self) -> "list[IteratorVariable] | None":
        """The iterators with a position of their own that one step of the real object moves; None: a step runs more than iterators."""
        return None

    def pending(self) -> int:
        """Steps that the real object is behind, without those in ``via``."""
        return self.index - self.via

    cls: type = type(iter(()))

    def iterator(self, tx):
        return self

    def next(self, tx) -> Variable:
        self.changing(tx)
        return self.advance(tx)

    def advance(self, tx) -> Variable:
        raise NotImplementedError

    def iterate(self, tx) -> list[Variable]:
        items = []
        while (item := next_or_none(tx, self)) is not None:
            items.append(item)
            if len(items) > MAX_DRAIN:
                unsupported("MP213", "an iterator that does not seem to end", "bound it with itertools.islice or zip")
        return items

    def truth(self, tx) -> bool:
        return True

    def length(self, tx) -> int:
        raise observed(TypeError, f"object of type {self.cls.__name__!r} has no len()")

    def m___next__(self, tx):
        return self.next(tx)

    def contains(self, tx, item) -> bool:
        return TupleVariable(self.iterate(tx)).contains(tx, item)


def next_or_none(tx, iterator: Variable) -> Variable | None:
    """The next item; None at the end."""
    try:
        return iterator.next(tx)
    except ObservedException as error:
        if error.matches(StopIteration):
            return None
        raise


def items_of(tx, var: Variable) -> list[Variable]:
    """All items of any finite iterable variable."""
    return var.iterate(tx)


def steps_of(tx, var: Variable):
    """The items of an iterator one by one, if taking them may have effects of its own; None for other iterables."""
    from .generators import GeneratorVariable

    if not isinstance(var, (IteratorVariable, GeneratorVariable)):
        return None
    return iter(lambda: next_or_none(tx, var), None)


def iter_of(tx, var: Variable) -> Variable:
    return var.iterator(tx)


def all_replayed(iterators: list[Variable]) -> list[IteratorVariable] | None:
    """What one step of each of the iterators moves (see ``replayed``)."""
    parts = [it.replayed() if isinstance(it, IteratorVariable) else None for it in iterators]
    return None if None in parts else [it for part in parts for it in part]


def stop() -> ObservedException:
    return observed(StopIteration)


class ItemsIterator(IteratorVariable):
    """Over a fixed list of items (a tuple, a dict's keys at this moment …)."""

    def __init__(self, items: list[Variable], index: int = 0, source=None):
        super().__init__(source)
        self.items, self.index = list(items), index

    def children(self):
        return self.items[self.index:]

    def advance(self, tx):
        if self.index >= len(self.items):
            raise stop()
        self.index += 1
        return self.items[self.index - 1]

    def m___length_hint__(self, tx):
        return const(len(self.items) - self.index)

    def reconstruct(self, cg) -> None:
        cg.call_const(iter, [TupleVariable(self.items[self.index:])])


class ListIterator(IteratorVariable):
    """Over a list that may change meanwhile."""

    cls = type(iter([]))

    def __init__(self, owner: ListVariable, index: int = 0, source=None):
        super().__init__(source)
        self.owner, self.index, self.done = owner, index, False

    def children(self):
        return (self.owner,)

    def advance(self, tx):
        if self.done or self.index >= len(self.owner.items):
            self.done = True
            raise stop()
        self.index += 1
        return self.owner.items[self.index - 1]

    def reconstruct(self, cg) -> None:
        if self.done:
            cg.call_const(iter, [TupleVariable([])])
        else:
            cg.call_const(list_iterator_at, [self.owner, const(self.index)])


class RangeIterator(IteratorVariable):
    cls = type(iter(range(0)))

    def __init__(self, value: range, index: int = 0, source=None):
        super().__init__(source)
        self.value, self.index = value, index

    def advance(self, tx):
        if self.index >= len(self.value):
            raise stop()
        self.index += 1
        return const(self.value[self.index - 1])

    def m___length_hint__(self, tx):
        return const(len(self.value) - self.index)

    def reconstruct(self, cg) -> None:
        cg.call_const(iter, [const(self.value[self.index:])])


class ZipIterator(IteratorVariable):
    cls = zip

    def __init__(self, iterators: list[Variable], strict: bool = False, source=None):
        super().__init__(source)
        self.iterators, self.strict = iterators, strict

    def children(self):
        return self.iterators

    def advance(self, tx):
        items = []
        for i, iterator in enumerate(self.iterators):
            item = next_or_none(tx, iterator)
            if item is None:
                if self.strict and (i or any(next_or_none(tx, it) is not None for it in self.iterators[1:])):
                    raise observed(ValueError, f"zip() argument {i + 1} is shorter than argument {i or 1}")
                raise stop()
            items.append(item)
        if not items:
            raise stop()
        return new(tx, TupleVariable(items))

    def replayed(self):
        return all_replayed(self.iterators)

    def reconstruct(self, cg) -> None:
        cg.call_const(zip, self.iterators, {"strict": const(True)} if self.strict else {})


class EnumerateIterator(IteratorVariable):
    cls = enumerate

    def __init__(self, iterator: Variable, index: int = 0, source=None):
        super().__init__(source)
        self.inner, self.index, self.start = iterator, index, index

    def children(self):
        return (self.inner,)

    def replayed(self):
        below = all_replayed([self.inner])
        return None if below is None else [self, *below]

    def pending(self) -> int:
        return self.index - self.start - self.via

    def emit_mutation(self, cg) -> None:
        cg.call_const(advance, [self, const(self.pending())])
        cg.pop()

    def advance(self, tx):
        below = all_replayed([self.inner]) if self.source is not None else []
        before = [iterator.pending() for iterator in below]
        item = self.inner.next(tx)
        self.index += 1
        for iterator, pending in zip(below, before):
            iterator.via += iterator.pending() - pending
        return new(tx, TupleVariable([const(self.index - 1), item]))

    def reconstruct(self, cg) -> None:
        cg.call_const(enumerate, [self.inner, const(self.index)])


class MapIterator(IteratorVariable):
    cls = map

    def __init__(self, fn: Variable, iterators: list[Variable], source=None):
        super().__init__(source)
        self.fn, self.iterators = fn, iterators

    def children(self):
        return (self.fn, *self.iterators)

    def advance(self, tx):
        return self.fn.call(tx, [iterator.next(tx) for iterator in self.iterators], {})

    def reconstruct(self, cg) -> None:
        cg.call_const(map, [self.fn, *self.iterators])


class FilterIterator(IteratorVariable):
    """``filter``; ``keep_false`` makes it ``itertools.filterfalse``."""

    cls = filter

    def __init__(self, fn: Variable, iterator: Variable, keep_false: bool = False, source=None):
        super().__init__(source)
        self.fn, self.inner, self.keep_false = fn, iterator, keep_false

    def children(self):
        return (self.fn, self.inner)

    def advance(self, tx):
        while True:
            item = self.inner.next(tx)
            verdict = item if self.fn.is_constant() and self.fn.as_python_constant() in (None, bool) else self.fn.call(
                tx, [item], {})
            if verdict.truth(tx) != self.keep_false:
                return item

    def reconstruct(self, cg) -> None:
        cg.call_const(itertools.filterfalse if self.keep_false else filter, [self.fn, self.inner])


class CallableIterator(IteratorVariable):
    """``iter(function, sentinel)``."""

    def __init__(self, fn: Variable, sentinel: Variable, source=None):
        super().__init__(source)
        self.fn, self.sentinel = fn, sentinel

    def children(self):
        return (self.fn, self.sentinel)

    def advance(self, tx):
        from .builtin import binary_op

        item = self.fn.call(tx, [], {})
        if binary_op(tx, "eq", item, self.sentinel).truth(tx):
            raise stop()
        return item

    def reconstruct(self, cg) -> None:
        cg.call_const(iter, [self.fn, self.sentinel])


# -- run after a graph, on real values ---------------------------------------------------------------------------------
def list_iterator_at(items: list, index: int):
    iterator = iter(items)
    iterator.__setstate__(index)
    return iterator


def advance(iterator: Any, count: int) -> None:
    for _ in itertools.islice(iterator, count):
        continue
