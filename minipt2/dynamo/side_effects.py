"""What the traced code has changed in the user's world, as final states, written back in one go after the graph has run.

While tracing, nothing real is touched: attribute writes, cells and globals are kept here; containers change in their
variables and are marked. ``version`` counts changes, so that the translator knows whether a failed instruction left traces.
Upstream: ``torch/_dynamo/side_effects.py``.
"""
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from ..errors import Unsupported
from .variables.base import MutableState, Variable
from .variables.constant import ConstantVariable

if TYPE_CHECKING:
    from .emit import Emitter
    from .translator import Translator
    from .variables.functions import CellVariable


class _Deleted:
    def __repr__(self) -> str:
        return "DELETED"


class SideEffects:
    """The log of one frame's trace."""

    DELETED: Any = _Deleted()

    def __init__(self) -> None:
        self.version = 0
        self._known: dict[int, Variable] = {}
        self._alive: list[Any] = []
        self.changed: dict[Variable, None] = {}
        self.writes: dict[Variable, dict[str, Any]] = {}
        self.cells: dict["CellVariable", None] = {}
        self.globals: dict[tuple[int, str], tuple[dict, str, Any]] = {}

    # -- objects ---------------------------------------------------------------------------------------------------
    def track_new(self, var: Variable) -> Variable:
        """``var`` is an object made while tracing, with an identity of its own."""
        var.mutable = MutableState(new=True)
        return var

    def track_existing(self, var: Variable, value: Any) -> Variable:
        """``var`` stands for the real ``value``; wrapping ``value`` again must give ``var`` (ask ``known``)."""
        var.mutable = MutableState(new=False, value=value)
        self._known[id(value)] = var
        self._alive.append(value)
        return var

    def known(self, value: Any) -> Variable | None:
        return self._known.get(id(value))

    def existing_of(self, cls: type) -> list[Variable]:
        """The variables of the real objects of this class."""
        return [var for var in self._known.values() if type(var.mutable.value) is cls]

    # -- changes ---------------------------------------------------------------------------------------------------
    def touch(self) -> None:
        """Some state that the log doesn't hold (a mode, an in-place operation) has changed."""
        self.version += 1

    def mutate(self, var: Variable) -> None:
        """``var`` (container, iterator, generator) is about to change."""
        self.version += 1
        if var.mutable is None:
            self.track_new(var)
        var.mutable.changed = True
        if not var.mutable.new:
            self.changed[var] = None

    def store_attr(self, var: Variable, name: str, value: Variable) -> None:
        self.version += 1
        self.writes.setdefault(var, {})[name] = value

    def delete_attr(self, var: Variable, name: str) -> None:
        self.store_attr(var, name, self.DELETED)

    def load_attr(self, var: Variable, name: str) -> Any:
        """The pending value, ``DELETED``, or None when nothing was written."""
        pending = self.writes.get(var)
        return None if pending is None else pending.get(name)

    def has_pending(self, var: Variable) -> bool:
        return var in self.writes

    def attrs(self, var: Variable) -> dict[str, Any]:
        return self.writes.get(var, {})

    def store_cell(self, cell: "CellVariable", value: Variable | None) -> None:
        if cell.fixed_at is not None:
            error = Unsupported("MP301", "a new value for a variable that a gradient's hook reads", "give the hook a variable of its own")
            error.step = cell.fixed_at
            raise error
        self.version += 1
        cell.contents = value
        self.cells[cell] = None

    def store_global(self, tx: "Translator", name: str, value: Any) -> None:
        self.version += 1
        self.globals[id(tx.f_globals), name] = (tx.f_globals, name, value)

    def load_global(self, f_globals: dict, name: str) -> Any:
        entry = self.globals.get((id(f_globals), name))
        return None if entry is None else entry[2]

    # -- replay ----------------------------------------------------------------------------------------------------
    def is_empty(self) -> bool:
        return not (self.changed or self.writes or self.cells or self.globals)

    def values(self) -> list[Variable]:
        """Everything that replay needs pushed: the objects that existed before and what goes into them."""
        found: list[Variable] = []
        for var in self.changed:
            found += [var, *var.children()]
        for var, attrs in self.writes.items():
            if not is_new(var):
                found += [var, *(v for v in attrs.values() if v is not self.DELETED)]
        for cell in self.cells:
            if not is_new_cell(cell) and cell.contents is not None:
                found.append(cell.contents)
        found += [value for _, _, value in self.globals.values() if value is not self.DELETED]
        return found

    def emit(self, cg: "Emitter") -> None:
        """Code for all of it, in the order of first writes within each kind; every value has been stashed before."""
        for var in self.changed:
            var.emit_mutation(cg)
        for cell in self.cells:
            if not is_new_cell(cell):
                cg.store_cell(cell)
        for var, attrs in self.writes.items():
            if not is_new(var) or cg.was_built(var):
                for name, value in attrs.items():
                    self._emit_attr(cg, var, name, value)
        for f_globals, name, value in self.globals.values():
            cg.store_global(f_globals, name, None if value is self.DELETED else value)

    def _emit_attr(self, cg: "Emitter", var: Variable, name: str, value: Any) -> None:
        if value is self.DELETED:
            if not is_new(var):
                cg.call_const(forget_attribute, [var, ConstantVariable(name)])
                cg.pop()
            return
        cg(value)
        cg(var)
        store = getattr(var, "emit_store_attr", None)
        store(cg, name) if store is not None else cg.store_attr(name)


def forget_attribute(obj: Any, name: str) -> None:
    """Run after a graph: delete an attribute that may have been set while tracing only."""
    with contextlib.suppress(AttributeError):
        delattr(obj, name)


def is_new(var: Variable) -> bool:
    """Made while tracing: written only if it is built at all."""
    return var.source is None


def is_new_cell(cell: "CellVariable") -> bool:
    return cell.name is None and cell.real is None
