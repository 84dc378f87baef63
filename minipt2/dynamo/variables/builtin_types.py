"""Builtins about types and attributes: ``isinstance``, ``type``, ``getattr``, ``super`` … Upstream: ``torch/_dynamo/variables/builtin.py``."""
from __future__ import annotations

import collections
from typing import Any, Callable

import torch

from ..source import TypeSource
from .base import ObservedException, Variable, unsupported
from .classes import wrap_class
from .construct import object_new
from .containers import const, constants, fold, new, none
from .numbers import NumberVariable
from .object_protocol import ObjectDictVariable
from .super_call import SuperVariable
from .tensor import TensorVariable
from .tuples import TupleVariable
from .user_objects import UserObjectVariable

HANDLERS: dict[Any, Callable[..., Variable]] = {}


def handles(*functions: Any):
    """Register a handler ``(tx, *args, **kwargs) -> Variable`` for real functions."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def real_value(var: Variable) -> Any:
    """The user's own object behind ``var``, when there is one (for ``isinstance`` with unusual metaclasses)."""
    if isinstance(var, TensorVariable):
        return var.real if var.real is not None else var.value
    return getattr(var.mutable, "value", None) if var.mutable is not None else getattr(var, "real", None)


@handles(isinstance)
def isinstance_(tx, obj, classinfo):
    return const(is_instance(tx, obj, classinfo))


def is_instance(tx, obj: Variable, classinfo: Variable) -> bool:
    known = constants(classinfo)
    if known is None:
        if isinstance(classinfo, TupleVariable):
            return any(is_instance(tx, obj, c) for c in classinfo.items)
        unsupported("MP303", f"isinstance with {classinfo.describe()}")
    if isinstance(known[0], tuple):
        return any(is_instance(tx, obj, c) for c in classinfo.items)
    cls = obj.python_type()
    custom = getattr(type(known[0]), "__instancecheck__", type.__instancecheck__)
    if isinstance(known[0], type) and custom is type.__instancecheck__:
        return issubclass(cls, known[0])
    real = real_value(obj)
    if real is not None and not (isinstance(obj, TensorVariable) and known[0] is torch.nn.Parameter and obj.real is None):
        return fold(isinstance, real, known[0]).value
    if isinstance(obj, TensorVariable):
        return known[0] is torch.Tensor
    if isinstance(obj, NumberVariable):
        return fold(isinstance, cls(), known[0]).value
    if (value := constants(obj)) is not None:
        return fold(isinstance, value[0], known[0]).value
    return fold(issubclass, cls, known[0]).value


@handles(issubclass)
def issubclass_(tx, cls, classinfo):
    known = constants(cls, classinfo)
    if known is None:
        unsupported("MP303", f"issubclass of {cls.describe()}")
    return fold(issubclass, *known)


@handles(type)
def type_(tx, obj, *rest, **kwargs):
    if rest:
        unsupported("MP404", "a class made while tracing", "define classes outside the compiled code")
    source = TypeSource(obj.source) if obj.source is not None and isinstance(obj, UserObjectVariable) else None
    return wrap_class(tx, obj.python_type(), source)


@handles(callable)
def callable_(tx, obj):
    return const(is_callable(obj))


def is_callable(obj: Variable) -> bool:
    if obj.is_constant():
        return callable(obj.as_python_constant())
    # a plain hasattr on the class would find its metaclass's own __call__
    return any("__call__" in vars(cls) for cls in obj.python_type().__mro__)


def attribute_name(name: Variable) -> str:
    known = constants(name)
    if known is None or not isinstance(known[0], str):
        unsupported("MP201", "an attribute name not known while tracing")
    return known[0]


@handles(getattr)
def getattr_(tx, obj, name, *default):
    try:
        return obj.getattr(tx, attribute_name(name))
    except ObservedException as error:
        if default and error.matches(AttributeError):
            return default[0]
        raise


@handles(hasattr)
def hasattr_(tx, obj, name):
    return const(obj.hasattr(tx, attribute_name(name)))


@handles(setattr)
def setattr_(tx, obj, name, value):
    obj.setattr(tx, attribute_name(name), value)
    return none()


@handles(delattr)
def delattr_(tx, obj, name):
    obj.delattr(tx, attribute_name(name))
    return none()


@handles(vars)
def vars_(tx, *args):
    if args and isinstance(args[0], UserObjectVariable):
        return ObjectDictVariable(args[0])
    unsupported("MP304", "call of vars()")


@handles(super)
def super_(tx, *args):
    if not args:
        cls, obj = tx.cell("__class__").contents or tx.load_cell("__class__"), tx.first_argument()
    else:
        cls, obj = args
    return SuperVariable(cls.as_python_constant(), obj)


@handles(object)
def object_(tx):
    return new(tx, UserObjectVariable(object))


HANDLERS[object.__new__] = object_new
for _cls in (dict, list, set, collections.OrderedDict, collections.defaultdict, collections.deque, tuple, frozenset):
    HANDLERS[_cls.__new__] = object_new
