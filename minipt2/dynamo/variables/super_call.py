"""``super()``. Upstream: ``SuperVariable`` in ``torch/_dynamo/variables/misc.py``."""
from __future__ import annotations

import types
from typing import Any

from ..source import AttrSource, ItemSource
from .base import Variable
from .builtin import BuiltinVariable
from .classes import (
    MISSING,
    ClassMethodVariable,
    ClassVariable,
    bind_classmethod,
    class_attribute,
    class_member,
    class_source,
    note_class_source,
)
from .containers import const, observed


class SuperVariable(Variable):
    """``super()``: attributes found after ``cls`` in the method resolution order of the object's class."""

    def __init__(self, cls: type, obj: Variable, source=None):
        super().__init__(source)
        self.start, self.obj = cls, obj

    def python_type(self) -> type:
        return super

    def children(self):
        return (self.obj,)

    def truth(self, tx) -> bool:
        return True

    def reconstruct(self, cg) -> None:
        cg.call_const(super, [const(self.start), self.obj])

    def _find(self, name: str) -> tuple[type, Any]:
        mro = self._class().__mro__
        for base in mro[mro.index(self.start) + 1:]:
            if name in base.__dict__:
                return base, base.__dict__[name]
        return object, MISSING

    def getattr(self, tx, name):
        owner, raw = self._find(name)
        if raw is MISSING:
            raise observed(AttributeError, f"'super' object has no attribute {name!r}")
        self._guard_skipped(tx, owner, name)
        if class_source(tx, owner) is None:
            note_class_source(tx, owner, self._owner_source(tx, owner))
        if isinstance(self.obj, ClassVariable):
            return self._of_class(tx, owner, name, raw)
        return class_attribute(tx, self.obj, self.obj.python_type(), name, raw, owner)

    def _guard_skipped(self, tx, owner: type, name: str) -> None:
        """The classes passed over on the way to ``owner`` go on having no ``name``."""
        source = class_source(tx, cls := self._class())
        if source is not None:
            for k in range(cls.__mro__.index(self.start) + 1, cls.__mro__.index(owner)):
                tx.output.guard(AttrSource(ItemSource(AttrSource(source, "__mro__"), k), "__dict__"), "NOT_CONTAINS", name)

    def _class(self) -> type:
        return self.obj.cls if isinstance(self.obj, ClassVariable) else self.obj.python_type()

    def _owner_source(self, tx, owner: type):
        cls = self._class()
        source = class_source(tx, cls)
        return None if source is None or owner is object else ItemSource(AttrSource(source, "__mro__"), cls.__mro__.index(owner))

    def _of_class(self, tx, owner, name, raw):
        if isinstance(raw, classmethod):
            return bind_classmethod(tx, class_member(tx, owner, name, raw), self.obj)
        if isinstance(raw, types.ClassMethodDescriptorType):
            return ClassMethodVariable(self.obj, name)
        if name == "__new__" and raw is object.__new__ or isinstance(raw, types.BuiltinFunctionType):
            return BuiltinVariable(raw.__func__ if isinstance(raw, staticmethod) else raw)
        return class_member(tx, owner, name, raw)

    def call_method(self, tx, name, args, kwargs):
        return self.getattr(tx, name).call(tx, args, kwargs)

    def setattr(self, tx, name, value):
        self.getattr(tx, "__setattr__").call(tx, [const(name), value], {})
