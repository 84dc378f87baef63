"""Classes as values: constructing instances, class attributes, descriptors bound to an instance, ``super()``.

Attributes are looked up as Python does (instance dict, method resolution order, descriptors), each answer with the guards
that keep it true. Upstream: ``torch/_dynamo/variables/user_defined.py`` (UserDefinedClassVariable).
"""
from __future__ import annotations

import enum
import functools
import types
from typing import Any

import torch

from ..source import AttrSource
from . import builder
from .base import Variable, unsupported
from .autograd_function import AutogradApplyVariable
from .containers import BoundMethodVariable, const, constants, fold, new, none, observed
from .functions import FunctionVariable, UserFunctionVariable, UserMethodVariable
from .sources import StaticAttrSource

MISSING = object()
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)
C_ATTRIBUTES = (types.GetSetDescriptorType, types.MemberDescriptorType)


def lookup(cls: type, name: str) -> Any:
    """The raw attribute of ``cls`` by its method resolution order, or MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def user_defined(cls: type, name: str) -> bool:
    """Whether ``cls`` gets ``name`` from a Python-level definition."""
    raw = lookup(cls, name)
    return isinstance(raw, (types.FunctionType, classmethod, staticmethod, property)) or (
        raw is not MISSING and isinstance(getattr(type(raw), "__get__", None), types.FunctionType))


def class_source(tx, cls: type):
    """The source by which ``cls`` is reachable in this frame (one for all its instances), or None."""
    return tx.output.scratch("class_sources").get(cls)


def note_class_source(tx, cls: type, source) -> None:
    if source is not None:
        tx.output.scratch("class_sources").setdefault(cls, source)


def guard_lacks(tx, cls: type, *names: str) -> None:
    """``cls`` and its bases go on having none of these attributes (unless its metaclass has them: then reading can't tell)."""
    for name in names:
        if not hasattr(cls, name):
            tx.output.guard(class_source(tx, cls), "CLASS_LACKS", name)


def class_member(tx, cls: type, name: str, raw: Any) -> Variable:
    """A class attribute as a variable (unbound), wrapped and guarded once per class and frame."""
    cache = tx.output.scratch("class_members")
    if (cls, name) not in cache:
        source = class_source(tx, cls)
        value = raw.__func__ if isinstance(raw, (classmethod, staticmethod)) else raw
        if source is not None:
            source = AttrSource(source, name)
            if isinstance(raw, classmethod):
                source = AttrSource(source, "__func__")
        cache[cls, name] = builder.wrap(tx, value, source)
    return cache[cls, name]


def class_attribute(tx, obj: Variable, cls: type, name: str, raw: Any = MISSING, owner: type | None = None) -> Variable | None:
    """``obj.name`` as found on the class of ``obj``, bound to it; None when the class has no such attribute.

    ``owner``: the class the guards hang on (differs from ``cls`` for ``super()``).
    """
    written = written_member(tx, cls, name)
    if written is not None:
        return written.bind(obj) if isinstance(written, FunctionVariable) else written
    raw = lookup(cls, name) if raw is MISSING else raw
    if raw is MISSING:
        return None
    owner = owner or cls
    if isinstance(raw, types.FunctionType):
        return UserMethodVariable(class_member(tx, owner, name, raw), obj)
    if isinstance(raw, classmethod):
        return bind_classmethod(tx, class_member(tx, owner, name, raw), wrap_class(tx, cls))
    if isinstance(raw, staticmethod):
        return class_member(tx, owner, name, raw)
    if isinstance(raw, property):
        return _property(tx, obj, owner, name, raw)
    if isinstance(raw, DESCRIPTORS):
        return BoundDescriptorVariable(raw, obj)
    return _other_descriptor(tx, obj, cls, owner, name, raw)


def written_member(tx, cls: type, name: str) -> Variable | None:
    """What the traced code itself has stored under ``name`` on ``cls`` or a base."""
    writes = tx.output.scratch("class_writes")
    for var in writes.get(name, ()):
        if issubclass(cls, var.cls):
            value = tx.output.side_effects.load_attr(var, name)
            if value is not None and value is not tx.output.side_effects.DELETED:
                return value
    return None


def bind_classmethod(tx, function: Variable, cls_var: Variable) -> Variable:
    if isinstance(function, FunctionVariable):
        return UserMethodVariable(function, cls_var)
    return PartialCall(function, [cls_var])


def _property(tx, obj, owner, name, raw) -> Variable:
    if raw.fget is None:
        raise observed(AttributeError, f"unreadable attribute {name!r}")
    return accessor(tx, owner, name, raw.fget, "fget").call(tx, [obj], {})


def accessor(tx, cls: type, name: str, function: Any, part: str) -> Variable:
    """``cls.name.fget`` and the like, wrapped once per class."""
    cache = tx.output.scratch("class_members")
    if (cls, name, part) not in cache:
        source = class_source(tx, cls)
        if source is not None:
            source = AttrSource(AttrSource(source, name), part)
        cache[cls, name, part] = builder.wrap(tx, function, source)
    return cache[cls, name, part]


def _other_descriptor(tx, obj, cls, owner, name, raw) -> Variable:
    if isinstance(raw, functools.cached_property):
        value = accessor(tx, owner, name, raw.func, "func").call(tx, [obj], {})
        tx.output.side_effects.store_attr(obj, raw.attrname, value)
        return value
    if isinstance(raw, functools.partialmethod):
        unsupported("MP216", f"functools.partialmethod {name!r}")
    if isinstance(raw, functools._lru_cache_wrapper):
        return UserMethodVariable(accessor(tx, owner, name, raw.__wrapped__, "__wrapped__"), obj)
    getter = lookup(type(raw), "__get__")
    if isinstance(getter, types.FunctionType):
        descriptor = raw_member(tx, owner, name, raw)
        return descriptor.call_method(tx, "__get__", [obj, wrap_class(tx, cls)], {})
    if getter is not MISSING and not isinstance(raw, type):
        if isinstance(raw, types.BuiltinFunctionType):
            return class_member(tx, owner, name, raw)
        unsupported("MP216", f"descriptor {name!r} of type {type(raw).__name__}")
    return class_member(tx, owner, name, raw)


def raw_member(tx, cls: type, name: str, raw: Any) -> Variable:
    """A descriptor object itself (not what it gives)."""
    source = class_source(tx, cls)
    return builder.wrap(tx, raw, StaticAttrSource(source, (name,)) if source is not None else None)


class BoundDescriptorVariable(BoundMethodVariable):
    """A C method (``dict.items`` …) bound to an object that may override it in Python."""

    def __init__(self, descriptor: Any, obj: Variable, source=None):
        super().__init__(obj, descriptor.__name__, source)
        self.descriptor = descriptor

    def call(self, tx, args, kwargs):
        from .builtin import call_descriptor

        return call_descriptor(tx, self.descriptor, [self.obj, *args], kwargs)

    def reconstruct(self, cg) -> None:
        """Not by name: ``super().__init__`` is another function than ``self.__init__``."""
        cg.call_const(self.descriptor.__get__, [self.obj])


class PartialCall(Variable):
    """A callable with leading arguments bound (a class method of C, for instance)."""

    def __init__(self, fn: Variable, first: list[Variable], source=None):
        super().__init__(source)
        self.fn, self.first = fn, first

    def python_type(self) -> type:
        return types.MethodType

    def children(self):
        return (self.fn, *self.first)

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        return self.fn.call(tx, [*self.first, *args], kwargs)

    def reconstruct(self, cg) -> None:
        cg.call_const(functools.partial, [self.fn, *self.first])


class ClassVariable(Variable):
    """A class. Calling it makes an instance by the rules of ``construct``."""

    def __init__(self, cls: type, source=None):
        super().__init__(source)
        self.fn = self.cls = cls

    def python_type(self) -> type:
        return type(self.cls)

    def as_python_constant(self):
        return self.cls

    def as_proxy(self):
        return self.cls

    def describe(self) -> str:
        return f"class {self.cls.__module__}.{self.cls.__qualname__}"

    __repr__ = describe

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name):
        written = written_member(tx, self.cls, name)
        if written is not None:
            return written
        if name == "apply" and issubclass(self.cls, torch.autograd.Function):
            return AutogradApplyVariable(self.cls)
        raw = lookup(self.cls, name)
        if name in ("__name__", "__qualname__", "__module__", "__doc__", "__mro__", "__bases__") or name == "__dataclass_fields__" and raw is not MISSING:
            return builder.from_constant(getattr(self.cls, name))
        if raw is MISSING:
            return self._from_metaclass(tx, name)
        if isinstance(raw, classmethod):
            return bind_classmethod(tx, class_member(tx, self.cls, name, raw), self)
        if isinstance(raw, (types.FunctionType, staticmethod)):
            return class_member(tx, self.cls, name, raw)
        if isinstance(raw, (property, *C_ATTRIBUTES)) and name not in ("__dict__", "__weakref__"):
            return raw_member(tx, self.cls, name, raw)
        if name == "__dict__" or isinstance(raw, functools.cached_property):
            unsupported("MP201", f"attribute {name!r} of {self.describe()}")
        if isinstance(raw, (types.ClassMethodDescriptorType, types.BuiltinFunctionType, *DESCRIPTORS)):
            return self._builtin(name, raw)
        if isinstance(self.cls, enum.EnumMeta) and name in self.cls.__members__:
            return builder.from_constant(self.cls.__members__[name])
        if isinstance(lookup(type(raw), "__get__"), types.FunctionType):
            return raw_member(tx, self.cls, name, raw).call_method(tx, "__get__", [none(), self], {})
        return class_member(tx, self.cls, name, raw)

    def _builtin(self, name: str, raw: Any) -> Variable:
        from .builtin import BuiltinVariable

        if isinstance(raw, types.ClassMethodDescriptorType):
            return ClassMethodVariable(self, name)
        return BuiltinVariable(getattr(self.cls, name) if isinstance(raw, types.BuiltinFunctionType) else raw)

    def _from_metaclass(self, tx, name):
        raw = lookup(type(self.cls), name)
        if name == "__class__":
            return wrap_class(tx, type(self.cls))
        if isinstance(raw, types.FunctionType):
            return UserMethodVariable(UserFunctionVariable(raw), self)
        if raw is not MISSING:
            from .builtin import fold_raw

            value = fold_raw(getattr, self.cls, name)
            return ClassMethodVariable(self, name) if callable(value) and not isinstance(value, type) else builder.from_constant(value)
        if self.source is not None:
            tx.output.guard(self.source, "HASATTR", (name, False))
        raise observed(AttributeError, f"type object {self.cls.__name__!r} has no attribute {name!r}")

    def setattr(self, tx, name, value):
        if self.mutable is None or isinstance(lookup(type(self.cls), "__setattr__"), types.FunctionType):
            return super().setattr(tx, name, value)
        tx.output.scratch("class_writes").setdefault(name, []).append(self)
        tx.output.side_effects.store_attr(self, name, value)

    def call(self, tx, args, kwargs):
        from .construct import construct

        return construct(tx, self, args, kwargs)

    def call_method(self, tx, name, args, kwargs):
        if name == "__instancecheck__" and lookup(type(self.cls), name) is type.__instancecheck__:
            return const(issubclass(args[0].python_type(), self.cls))
        return self.getattr(tx, name).call(tx, args, kwargs)

    def binary(self, tx, op, other, reverse=False):
        if op == "getitem" and not reverse:
            known = constants(other)
            if isinstance(self.cls, enum.EnumMeta) and known:
                return fold(self.cls.__getitem__, known[0])
            if known:  # list[int], Generic[T]
                return fold(lambda key: self.cls[key], known[0])
        if op == "or_" and (known := constants(other)):
            return fold(lambda c: self.cls | c, known[0])
        return None

    def iterate(self, tx):
        if isinstance(self.cls, enum.EnumMeta):
            return [builder.from_constant(member) for member in self.cls]
        return super().iterate(tx)

    def iterator(self, tx):
        from .iterators import ItemsIterator

        return new(tx, ItemsIterator(self.iterate(tx)))

    def length(self, tx) -> int:
        return len(self.iterate(tx))

    def contains(self, tx, item) -> bool:
        return item.as_python_constant() in self.cls

    def reconstruct(self, cg) -> None:
        cg.load_const(self.cls)


class ClassMethodVariable(Variable):
    """A C class method: ``dict.fromkeys``, ``int.from_bytes`` …"""

    def __init__(self, owner: ClassVariable, name: str, source=None):
        super().__init__(source)
        self.owner, self.name = owner, name

    def as_python_constant(self):
        return getattr(self.owner.cls, self.name)

    def python_type(self) -> type:
        return types.BuiltinFunctionType

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        from .library_functions import CLASS_METHODS

        handler = CLASS_METHODS.get(self.name)
        if handler is not None:
            return handler(tx, self.owner, *args, **kwargs)
        known = constants(*args, *kwargs.values())
        if known is None:
            unsupported("MP303", f"call of {self.owner.describe()}.{self.name}")
        return fold(getattr(self.owner.cls, self.name), *known[:len(args)], **dict(zip(kwargs, known[len(args):])))


def wrap_class(tx, cls: type, source=None) -> Variable:
    """The variable of a class; one per class and frame, so that writes to it are seen."""
    classes = tx.output.scratch("classes")
    if cls not in classes:
        classes[cls] = ClassVariable(cls, source or class_source(tx, cls))
    var = classes[cls]
    if source is not None:
        note_class_source(tx, cls, source)
        if var.source is None:
            var.source = source
        if var.mutable is None and not cls.__flags__ & (1 << 8):  # immutable C types take no attributes
            tx.output.side_effects.track_existing(var, cls)
    return var


def is_exception(cls: type) -> bool:
    return issubclass(cls, BaseException)
