"""Instances of Python classes: attributes, methods, operators through dunder methods; subclasses of builtin containers.

A subclass of ``dict``, ``list`` … holds a ``payload``: the builtin container variable with its contents.
Upstream: ``torch/_dynamo/variables/user_defined.py`` (UserDefinedObjectVariable and its dict, list, tuple kinds).
"""
from __future__ import annotations

import types
from typing import Any

from ..source import AttrSource, ItemSource, TypeSource
from . import builder
from .base import ObservedException, Variable, unsupported
from .classes import C_ATTRIBUTES, DESCRIPTORS, MISSING, class_attribute, guard_lacks, lookup, raw_member, wrap_class
from .constant import ConstantVariable
from .containers import ContainerVariable, const, note_mutation, observed
from .sources import RawDictSource

HEAP_TYPE = 1 << 9  # CPython's flag of classes made by a class statement
REFLECTED = {"add": "radd", "sub": "rsub", "mul": "rmul", "truediv": "rtruediv", "floordiv": "rfloordiv", "mod": "rmod",
             "pow": "rpow", "matmul": "rmatmul", "and_": "rand", "or_": "ror", "xor": "rxor", "lshift": "rlshift",
             "rshift": "rrshift", "lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


class UserObjectVariable(Variable):
    """An object of class ``cls``; ``real`` is the user's object, None for one made while tracing."""

    payload: ContainerVariable | None = None

    def __init__(self, cls: type, source=None, real: Any = None, payload: ContainerVariable | None = None):
        super().__init__(source)
        self.cls, self.real = cls, real
        if payload is not None:
            self.payload = payload
        self._attrs: dict[str, Variable] = {}
        self._answers: dict[str, tuple[int, Variable]] = {}
        self.custom_getattribute = isinstance(lookup(cls, "__getattribute__"), types.FunctionType)

    # -- what it is ------------------------------------------------------------------------------------------------
    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__module__}.{self.cls.__qualname__} object{self._where()}"

    __repr__ = describe

    def as_python_constant(self):
        if self.payload is not None and isinstance(self.real, tuple):
            return self.payload.as_python_constant()
        return super().as_python_constant()

    def as_proxy(self):
        if self.payload is not None:
            return self.payload.as_proxy()
        return super().as_proxy()

    def children(self):
        return () if self.payload is None else self.payload.children()

    def has_method(self, tx, name: str) -> bool:
        return lookup(self.cls, name) not in (MISSING, None)

    def hashed_by_identity(self) -> bool:
        return lookup(self.cls, "__hash__") is object.__hash__

    def compared_by_identity(self) -> bool:
        return lookup(self.cls, "__eq__") is object.__eq__

    def text_method(self, how) -> str | None:
        """The Python-level method that makes this object's text, if any."""
        for name in ("__str__", "__repr__") if how is str else ("__repr__",):
            if isinstance(lookup(self.cls, name), types.FunctionType):
                return name
        return None

    # -- reading attributes ----------------------------------------------------------------------------------------
    def getattr(self, tx, name):
        if self.custom_getattribute and name not in ("__class__", "__dict__"):
            return self._by_getattribute(tx, name)
        return self.plain_getattr(tx, name)

    def _by_getattribute(self, tx, name: str) -> Variable:
        """Through an overridden ``__getattribute__``; answers are kept while nothing changes."""
        version = tx.output.side_effects.version
        kept = self._answers.get(name)
        if kept is not None and kept[0] == version:
            return kept[1]
        try:
            found = self.special(tx, "__getattribute__", [const(name)])
        except ObservedException as error:
            if not error.matches(AttributeError) or lookup(self.cls, "__getattr__") is MISSING:
                raise
            found = self.special(tx, "__getattr__", [const(name)])
        if tx.output.side_effects.version == version:
            self._answers[name] = version, found
        return found

    def plain_getattr(self, tx, name: str) -> Variable:
        """``object.__getattribute__``."""
        if name == "__class__":
            return wrap_class(tx, self.cls, self._class_source())
        if name == "__dict__":
            from .object_protocol import ObjectDictVariable

            return ObjectDictVariable(self)
        raw = lookup(self.cls, name)
        found = self.own_attribute(tx, name) if raw is MISSING or not self._is_data_descriptor(raw) else None
        if raw is MISSING and found is None and name in tx.output.scratch("class_writes"):
            raw = None
        if raw is not MISSING and found is None:
            bound = self._class_level(tx, name, raw)
            if bound is not None:
                return bound
        if found is not None:
            return found
        return self._missing(tx, name)

    def _class_source(self):
        return TypeSource(self.source) if self.source is not None else None

    def own_attribute(self, tx, name: str) -> Variable | None:
        """The attribute in the instance's own dict, written meanwhile or found in the real object."""
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None:
            return None if pending is tx.output.side_effects.DELETED else pending
        if name in self._attrs:
            return self._attrs[name]
        own = instance_dict(self.real)
        if name not in own:
            return None
        self._attrs[name] = found = self._wrap_own(tx, name, own[name])
        return found

    def _wrap_own(self, tx, name: str, value: Any) -> Variable:
        if self.source is None:
            return builder.wrap(tx, value, None)
        computed = self.custom_getattribute or hasattr(type(lookup(self.cls, name)), "__get__") or lookup(self.cls, "__getattr__") is not MISSING
        if computed:  # a guard that reads the attribute of another object must not run the user's code for it
            return builder.wrap(tx, value, ItemSource(RawDictSource(self.source), name))
        return builder.wrap(tx, value, AttrSource(self.source, name))

    @staticmethod
    def _is_data_descriptor(raw: Any) -> bool:
        return isinstance(raw, (property, *C_ATTRIBUTES)) or isinstance(lookup(type(raw), "__set__"), types.FunctionType)

    def _class_level(self, tx, name: str, raw: Any) -> Variable | None:
        if isinstance(raw, types.MemberDescriptorType):
            return self._slot(tx, name, raw)
        if isinstance(raw, types.GetSetDescriptorType):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}")
        if not isinstance(raw, property):
            self.lacks(tx, name)
        return class_attribute(tx, self, self.cls, name, raw)

    def _slot(self, tx, name: str, raw: Any) -> Variable:
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None and pending is not tx.output.side_effects.DELETED:
            return pending
        try:
            if self.real is None or pending is not None:
                raise AttributeError(name)
            value = raw.__get__(self.real)
        except AttributeError as error:
            if self.source is not None and pending is None:
                tx.output.guard(self.source, "HASATTR", (name, False))
            raise observed(AttributeError, *error.args) from None
        if name not in self._attrs:
            self._attrs[name] = tx.wrap_attribute(value, self.source, name)
        return self._attrs[name]

    def lacks(self, tx, name: str) -> None:
        """Guard that the instance itself has no attribute ``name`` (the class answers for it)."""
        if self.source is not None and self.real is not None and hasattr(self.real, "__dict__"):
            if name not in tx.output.side_effects.attrs(self):
                tx.output.guard(self.source, "DICT_LACKS", name)

    def _missing(self, tx, name: str) -> Variable:
        self.lacks(tx, name)
        guard_lacks(tx, self.cls, name)
        raw = lookup(self.cls, "__getattr__") if not self.custom_getattribute else MISSING
        if isinstance(raw, (types.FunctionType, *DESCRIPTORS)):  # ``__getattr__ = dict.__getitem__`` is C's
            return class_attribute(tx, self, self.cls, "__getattr__", raw).call(tx, [const(name)], {})
        guard_lacks(tx, self.cls, "__getattr__")
        if raw is not MISSING:
            unsupported("MP216", f"{self.cls.__qualname__}.__getattr__ is not a Python function")
        raise observed(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")

    # -- writing attributes ----------------------------------------------------------------------------------------
    def setattr(self, tx, name, value):
        raw = lookup(self.cls, "__setattr__")
        if isinstance(raw, types.FunctionType):
            class_attribute(tx, self, self.cls, "__setattr__", raw).call(tx, [const(name), value], {})
        else:
            self.store(tx, name, value)

    def store(self, tx, name: str, value: Variable) -> None:
        """``object.__setattr__``: data descriptors first, else the instance's dict."""
        from .classes import accessor

        raw = lookup(self.cls, name)
        if isinstance(raw, property):
            if raw.fset is None:
                raise observed(AttributeError, f"property {name!r} of {self.cls.__name__!r} object has no setter")
            accessor(tx, self.cls, name, raw.fset, "fset").call(tx, [self, value], {})
            return
        if isinstance(lookup(type(raw), "__set__"), types.FunctionType):
            raw_member(tx, self.cls, name, raw).call_method(tx, "__set__", [self, value], {})
            return
        if name in ("__class__", "__dict__") or isinstance(raw, types.GetSetDescriptorType):
            unsupported("MP202", f"setting attribute {name!r} of {self.describe()}")
        if self.real is None and not instances_have_dict(self.cls) and not isinstance(raw, types.MemberDescriptorType):
            raise observed(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.require_source("setting")
        self.note_change(tx)
        tx.output.side_effects.store_attr(self, name, value)

    def note_change(self, tx) -> None:
        note_mutation(tx, self)

    def require_source(self, what: str) -> None:
        if self.real is not None and self.source is None:
            unsupported("MP202", f"{what} attributes of {self.describe()}, which is not reachable from the frame")

    def delattr(self, tx, name):
        raw = lookup(self.cls, "__delattr__")
        if isinstance(raw, types.FunctionType):
            class_attribute(tx, self, self.cls, "__delattr__", raw).call(tx, [const(name)], {})
        else:
            self.remove(tx, name)

    def remove(self, tx, name: str) -> None:
        if self.own_attribute(tx, name) is None:
            raise observed(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        self.require_source("deleting")
        self.note_change(tx)
        tx.output.side_effects.delete_attr(self, name)

    def emit_store_attr(self, cg, name: str) -> None:
        """[value, object] on the stack: store past any user-defined ``__setattr__``, which was traced already."""
        if isinstance(lookup(self.cls, "__setattr__"), types.FunctionType):
            cg.build("tuple", 2)
            value_and_object = "__minipt2_pair"
            cg.store_local(value_and_object)
            cg.prepare_call(lambda: cg.load_const(store_raw))
            cg.load_local(value_and_object)
            cg.load_const(name)
            cg.call(2)
            cg.pop()
        else:
            cg.store_attr(name)

    # -- calls -----------------------------------------------------------------------------------------------------
    def call(self, tx, args, kwargs):
        if lookup(self.cls, "__call__") is MISSING:
            raise observed(TypeError, f"{self.cls.__name__!r} object is not callable")
        return self.special(tx, "__call__", args, kwargs)

    def call_method(self, tx, name, args, kwargs):
        return self.getattr(tx, name).call(tx, args, kwargs)

    def special(self, tx, name: str, args: list[Variable], kwargs: dict[str, Variable] | None = None) -> Variable:
        """A dunder method, looked up on the class as the interpreter does."""
        return class_attribute(tx, self, self.cls, name).call(tx, args, kwargs or {})

    def call_builtin(self, tx, descriptor: Any, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        """A C-level method of ``object`` or of the builtin base class, called on this object."""
        from .object_protocol import OBJECT_METHODS

        name = descriptor.__name__
        if descriptor.__objclass__ is object or name in ("__setattr__", "__getattribute__", "__delattr__"):
            if name not in OBJECT_METHODS:
                unsupported("MP207", f"object.{name} of {self.describe()}")
            return OBJECT_METHODS[name](tx, self, *args, **kwargs)
        if self.payload is None or not issubclass(self.payload.python_type(), descriptor.__objclass__):
            unsupported("MP207", f"C method {descriptor.__qualname__} of {self.describe()}")
        return self.payload.call_method(tx, name, args, kwargs)

    # -- operators -------------------------------------------------------------------------------------------------
    def binary(self, tx, op, other, reverse=False):
        name = f"__{(REFLECTED.get(op, '') if reverse else op).strip('_')}__"
        raw = lookup(self.cls, name)
        if name == "____" or raw is MISSING or raw is None:
            guard_lacks(tx, self.cls, name)
            return None
        if isinstance(raw, (types.FunctionType, staticmethod, classmethod)):
            result = self.special(tx, name, [other])
            return None if isinstance(result, ConstantVariable) and result.value is NotImplemented else result
        if op == "ne" and raw is object.__ne__ and not self.compared_by_identity():
            equal = self.binary(tx, "eq", other, reverse)
            return None if equal is None else const(not equal.truth(tx))
        if self.payload is not None:
            if op == "getitem" and isinstance(lookup(self.cls, "__missing__"), types.FunctionType) and not self.payload.contains(tx, other):
                return self.special(tx, "__missing__", [other])
            return self.payload.binary(tx, op, getattr(other, "payload", None) or other, reverse)
        return None

    # -- as a container or iterator --------------------------------------------------------------------------------
    def iterator(self, tx):
        raw = lookup(self.cls, "__iter__")
        if isinstance(raw, types.FunctionType):
            return self.special(tx, "__iter__", []).iterator(tx)
        if self.payload is not None:
            return self.payload.iterator(tx)
        if raw is MISSING and lookup(self.cls, "__getitem__") is not MISSING:
            from .iterators import ItemsIterator

            return tx.output.side_effects.track_new(ItemsIterator(self._sequence_items(tx)))
        raise observed(TypeError, f"{self.cls.__name__!r} object is not iterable")

    def _sequence_items(self, tx) -> list[Variable]:
        """The old protocol: ``self[0]``, ``self[1]`` … up to IndexError."""
        items: list[Variable] = []
        while True:
            try:
                items.append(self.special(tx, "__getitem__", [const(len(items))]))
            except ObservedException as error:
                if error.matches(IndexError, StopIteration):
                    return items
                raise

    def iterate(self, tx):
        return self.iterator(tx).iterate(tx)

    def next(self, tx):
        if lookup(self.cls, "__next__") is MISSING:
            raise observed(TypeError, f"{self.cls.__name__!r} object is not an iterator")
        return self.special(tx, "__next__", [])

    def truth(self, tx) -> bool:
        if isinstance(lookup(self.cls, "__bool__"), types.FunctionType):
            return self.special(tx, "__bool__", []).truth(tx)
        if isinstance(lookup(self.cls, "__len__"), types.FunctionType):
            return self.length(tx) > 0
        if self.payload is not None:
            return self.payload.truth(tx)
        for name in ("__bool__", "__len__"):
            if lookup(self.cls, name) is not MISSING:
                unsupported("MP205", f"truth of {self.describe()}")
        guard_lacks(tx, self.cls, "__bool__", "__len__")
        return True

    def length(self, tx) -> int:
        if isinstance(lookup(self.cls, "__len__"), types.FunctionType):
            return self.special(tx, "__len__", []).as_python_constant()
        if self.payload is not None:
            return self.payload.length(tx)
        if lookup(self.cls, "__len__") is not MISSING:
            unsupported("MP205", f"len() of {self.describe()}")
        raise observed(TypeError, f"object of type {self.cls.__name__!r} has no len()")

    # -- after the graph -------------------------------------------------------------------------------------------
    def reconstruct(self, cg) -> None:
        if self.real is not None:
            cg.load_const(self.real)
        elif self.payload is None:
            cg.call_const(object.__new__ if self.cls.__flags__ & HEAP_TYPE else self.cls.__new__, [const(self.cls)])
        else:
            from .construct import payload_maker

            base, make = payload_maker(self.payload)
            cg.call_const(make, [const(self.cls), base])

    def emit_mutation(self, cg) -> None:
        self.payload.emit_mutation(cg)


def instance_dict(real: Any) -> dict:
    """The instance's own ``__dict__`` ({} for objects without one, and for none)."""
    if real is None:
        return {}
    try:
        return object.__getattribute__(real, "__dict__")
    except AttributeError:
        return {}


def instances_have_dict(cls: type) -> bool:
    return cls.__dictoffset__ != 0


def store_raw(value_and_object: tuple, name: str) -> None:
    """Run after a graph: ``object.__setattr__``."""
    value, obj = value_and_object
    object.__setattr__(obj, name, value)
