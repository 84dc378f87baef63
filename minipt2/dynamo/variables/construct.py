"""Calling a class while tracing: builtin containers, exceptions, enums, named tuples, user classes with their ``__init__``.

Upstream: ``UserDefinedClassVariable.call_function`` in ``torch/_dynamo/variables/user_defined.py``.
"""
from __future__ import annotations

import abc
import collections
import enum
import types
from typing import Any, Callable

import numpy as np
import torch

from . import torch_functions
from .base import Variable, unsupported
from .classes import ClassVariable, class_member, is_exception, lookup, note_class_source, user_defined
from .containers import ContainerVariable, constants, fold, new, observed
from .dict_views import DefaultDictVariable
from .dicts import DictVariable
from .lists import DequeVariable, ListVariable, NamedTupleVariable, TupleVariable
from .sets import FrozenSetVariable, SetVariable
from .user_objects import UserObjectVariable

PAYLOADS: dict[type, Callable[[], ContainerVariable]] = {
    collections.OrderedDict: lambda: DictVariable(cls=collections.OrderedDict), collections.defaultdict: DefaultDictVariable,
    dict: DictVariable, list: ListVariable, set: SetVariable, collections.deque: DequeVariable, tuple: TupleVariable,
    frozenset: FrozenSetVariable,
}  # fmt: skip
IMMUTABLE = (tuple, frozenset)
VALUE_TYPES = (int, float, str, bytes, complex)
FOLDED_CLASSES = {torch.finfo, torch.iinfo, torch.device, torch.dtype, slice, range}


def payload_base(cls: type) -> type | None:
    """The builtin container that ``cls`` inherits from, if any."""
    return next((base for base in PAYLOADS if issubclass(cls, base)), None)


def construct(tx, cls_var: ClassVariable, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
    """``cls(*args, **kwargs)``."""
    from .builtin import HANDLERS, load_handlers
    from .context import CONTEXT_CLASSES

    cls = cls_var.cls
    load_handlers()
    if cls in HANDLERS:
        return HANDLERS[cls](tx, *args, **kwargs)
    if cls in CONTEXT_CLASSES:
        return CONTEXT_CLASSES[cls](tx, *args, **kwargs)
    if cls in torch_functions.HANDLERS:
        return torch_functions.HANDLERS[cls](tx, *args, **kwargs)
    if issubclass(cls, np.generic):
        return _folded(cls, args, kwargs)
    if isinstance(cls, enum.EnumMeta):
        return _folded(cls, args, kwargs)
    if cls in FOLDED_CLASSES:
        return _folded(cls, args, kwargs)
    meta_call = lookup(type(cls), "__call__")
    if isinstance(meta_call, types.FunctionType) and type(cls) not in (abc.ABCMeta,):
        return class_member(tx, type(cls), "__call__", meta_call).call(tx, [cls_var, *args], kwargs)
    if is_exception(cls):
        return _exception(tx, cls_var, args, kwargs)
    if issubclass(cls, tuple) and hasattr(cls, "_fields") and not custom_new(cls):
        return _namedtuple(tx, cls, args, kwargs)
    if issubclass(cls, (torch.Tensor, torch.autograd.Function)):
        unsupported("MP306", f"making a {cls.__name__} while tracing", "make parameters outside the compiled code")
    return _instance(tx, cls_var, args, kwargs)


def _folded(cls: type, args, kwargs) -> Variable:
    known = constants(*args, *kwargs.values())
    if known is None:
        unsupported("MP303", f"call of {cls.__qualname__} with values not known while tracing")
    return fold(cls, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))


def custom_new(cls: type) -> bool:
    """Whether a named tuple's class was given its own ``__new__``."""
    owner = next(base for base in cls.__mro__ if "__new__" in base.__dict__)
    return "_fields" not in owner.__dict__ and owner is not tuple


def _exception(tx, cls_var: ClassVariable, args, kwargs) -> Variable:
    from .exceptions import ExceptionVariable

    cls = cls_var.cls
    if user_defined(cls, "__new__") or (kwargs and not user_defined(cls, "__init__")):
        unsupported("MP306", f"making a {cls.__name__} while tracing")
    var = new(tx, ExceptionVariable(cls, args))
    if user_defined(cls, "__init__"):
        class_member(tx, cls, "__init__", lookup(cls, "__init__")).call(tx, [var, *args], kwargs)
    return var


def _namedtuple(tx, cls: type, args, kwargs) -> Variable:
    from .builder import from_constant

    values = dict(zip(cls._fields, args)) | kwargs
    for name, default in cls._field_defaults.items():
        values.setdefault(name, from_constant(default))
    if len(args) > len(cls._fields) or set(values) != set(cls._fields):
        raise observed(TypeError, f"{cls.__name__} takes the fields {cls._fields}")
    return new(tx, NamedTupleVariable([values[name] for name in cls._fields], cls=cls))


def _instance(tx, cls_var: ClassVariable, args, kwargs) -> Variable:
    cls = cls_var.cls
    note_class_source(tx, cls, cls_var.source)
    if getattr(cls, "__abstractmethods__", None):
        raise observed(TypeError, f"Can't instantiate abstract class {cls.__name__}")
    maker = lookup(cls, "__new__")
    if isinstance(maker, staticmethod) or isinstance(maker, types.FunctionType):
        obj = class_member(tx, cls, "__new__", maker).call(tx, [cls_var, *args], kwargs)
        if not issubclass(obj.python_type(), cls):
            return obj
    else:
        obj = bare_instance(tx, cls, args)
    init, payload = lookup(cls, "__init__"), obj if isinstance(obj, ContainerVariable) else obj.payload
    if isinstance(init, types.FunctionType):
        class_member(tx, cls, "__init__", init).call(tx, [obj, *args], kwargs)
    elif payload is not None and not issubclass(cls, IMMUTABLE):
        payload.call_method(tx, "__init__", args, kwargs)
    elif payload is None and (args or kwargs) and not isinstance(maker, (staticmethod, types.FunctionType)):
        raise observed(TypeError, f"{cls.__name__}() takes no arguments")
    return obj


def bare_instance(tx, cls: type, args: list[Variable] = ()) -> UserObjectVariable:
    """``cls.__new__(cls)`` of the builtin base class: no attributes yet."""
    base = payload_base(cls)
    if base is tuple and hasattr(cls, "_fields") and args:
        from .iterators import items_of

        return new(tx, NamedTupleVariable(items_of(tx, args[0]), cls=cls))
    if base is not None:
        payload = new(tx, PAYLOADS[base]())
        if base in IMMUTABLE and args:
            from .iterators import items_of

            payload = new(tx, TupleVariable(items_of(tx, args[0]))) if base is tuple else SetVariable.from_items(
                tx, items_of(tx, args[0]))
        return new(tx, UserObjectVariable(cls, payload=payload))
    if not heap_object(cls):
        unsupported("MP306", f"making a {cls.__module__}.{cls.__qualname__} while tracing",
                    "it is made by C code whose effects are not known")
    if issubclass(cls, torch.nn.Module):
        from .nn_module import NNModuleVariable

        return new(tx, NNModuleVariable(cls))
    return new(tx, UserObjectVariable(cls))


def heap_object(cls: type) -> bool:
    """Whether instances are plain Python objects: no C-level base class besides ``object``."""
    return all(base is object or base.__flags__ & (1 << 9) and not _c_layout(base) for base in cls.__mro__)


def _c_layout(base: type) -> bool:
    new_method = base.__dict__.get("__new__")
    return isinstance(new_method, types.BuiltinFunctionType) and new_method is not object.__new__


def object_new(tx, cls_var: Variable, *args: Variable, **kwargs: Variable) -> Variable:
    """``object.__new__(cls)`` and ``super().__new__(cls)``, ``dict.__new__(cls)``."""
    return bare_instance(tx, cls_var.as_python_constant(), list(args))


def payload_maker(payload: ContainerVariable) -> tuple[Variable, Callable]:
    """What rebuilds an object with a builtin base after a graph: its contents, and the function to call with the class."""
    if isinstance(payload, DefaultDictVariable):
        return payload, make_defaultdict_object
    if isinstance(payload, DictVariable):
        return DictVariable(payload.items), make_ordered_object if issubclass(
            payload.cls, collections.OrderedDict) else make_dict_object
    items = TupleVariable(payload.items if isinstance(payload, (ListVariable, TupleVariable)) else payload.items.values())
    makers = {list: make_list_object, tuple: tuple.__new__, frozenset: frozenset.__new__, set: make_set_object,
              collections.deque: make_deque_object}
    return items, makers[payload.cls]


def make_dict_object(cls: type, contents: dict) -> Any:
    obj = dict.__new__(cls)
    dict.update(obj, contents)
    return obj


def make_ordered_object(cls: type, contents: dict) -> Any:
    obj = collections.OrderedDict.__new__(cls)
    for key, value in contents.items():
        collections.OrderedDict.__setitem__(obj, key, value)
    return obj


def make_defaultdict_object(cls: type, contents: collections.defaultdict) -> Any:
    obj = collections.defaultdict.__new__(cls)
    collections.defaultdict.__init__(obj, contents.default_factory, contents)
    return obj


def make_list_object(cls: type, contents: tuple) -> Any:
    obj = list.__new__(cls)
    list.extend(obj, contents)
    return obj


def make_set_object(cls: type, contents: tuple) -> Any:
    obj = set.__new__(cls)
    set.update(obj, contents)
    return obj


def make_deque_object(cls: type, contents: tuple) -> Any:
    obj = collections.deque.__new__(cls)
    collections.deque.extend(obj, contents)
    return obj
