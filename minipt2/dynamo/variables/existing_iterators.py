"""Builtin iterators that came from outside the frame: read from copies, the real ones are advanced after the graph."""
from __future__ import annotations

from typing import Any

from . import builder
from .base import unsupported
from .containers import const
from .iterators import EnumerateIterator, FilterIterator, ItemsIterator, IteratorVariable, MapIterator, ZipIterator, advance, all_replayed
from .sources import ReduceArgSource, RestItemSource, RestLengthSource, copy_iterator


class ExistingIterator(ItemsIterator):
    """A builtin iterator that came from outside: its rest was read from a copy; the real one is advanced afterwards."""

    @classmethod
    def wrap(cls, tx, value: Any, source) -> "ExistingIterator":
        try:
            rest = list(copy_iterator(value))
        except TypeError as error:  # over a generator, for one
            unsupported("MP204", str(error))
        var = cls([])
        var.source, var.cls = source, type(value)
        tx.output.guard(source, "TYPE", type(value))
        tx.output.guard(RestLengthSource(source, ()), "CONST", len(rest))
        var.items = [builder.wrap(tx, item, RestItemSource(source, (i,))) for i, item in enumerate(rest)]
        return tx.output.side_effects.track_existing(var, value)

    def replayed(self):
        return [self]

    def emit_mutation(self, cg) -> None:
        cg.call_const(advance, [self, const(self.pending())])
        cg.pop()


def wrap_composed(tx, value: Any, source) -> IteratorVariable:
    """A real ``zip``, ``enumerate``, ``map`` or ``filter``: built from the very iterators it holds (others may share them)."""
    kind, parts = type(value), value.__reduce__()[1]
    tx.output.guard(source, "TYPE", kind)
    count = 1 if kind is enumerate else len(parts)
    held = [builder.wrap(tx, part, ReduceArgSource(source, (i,))) for i, part in enumerate(parts[:count])]
    if kind is zip:
        var: IteratorVariable = ZipIterator(held)
    elif kind is enumerate:
        if all_replayed(held) is None:
            unsupported("MP204", "an enumerate over what runs Python code at every step", "enumerate a list of it")
        var = EnumerateIterator(held[0], builder.wrap(tx, parts[1], ReduceArgSource(source, (1,))).as_python_constant())
    else:
        var = MapIterator(held[0], held[1:]) if kind is map else FilterIterator(held[0], held[1])
    var.source = source
    return tx.output.side_effects.track_existing(var, value)
