"""Handlers of the standard library and of torch's pure Python helpers: functools, copy, dataclasses, contextlib, typing …

Upstream: ``torch/_dynamo/variables/{misc,functions}.py`` and ``torch/_dynamo/polyfills``.
"""
from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import importlib.util
import inspect
import itertools
import operator
import os
import pickle
import re
import time
import types
import typing
import warnings
from typing import Any, Callable

import torch

from .base import Variable, unsupported
from .containers import const, constants, fold, is_none, new, none, observed
from .dicts import DictVariable
from .iterators import items_of
from .itertools_functions import chain_from_iterable
from .lists import ListVariable, TupleVariable
from .misc import PartialVariable
from .effects import warn
from .operators import binary_op
from .sets import SetVariable
from .tensor import TensorVariable

HANDLERS: dict[Any, Callable[..., Variable]] = {}


def handles(*functions: Any):
    def register(handler: Callable) -> Callable:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


# -- functools ---------------------------------------------------------------------------------------------------------
@handles(functools.partial)
def partial(tx, fn, *args, **kwargs):
    if isinstance(fn, PartialVariable):
        return new(tx, PartialVariable(fn.fn, [*fn.args, *args], {**fn.kwargs, **kwargs}))
    return new(tx, PartialVariable(fn, list(args), kwargs))


@handles(functools.reduce)
def reduce(tx, fn, iterable, initial=None):
    items = items_of(tx, iterable)
    if initial is None:
        if not items:
            raise observed(TypeError, "reduce() of empty iterable with no initial value")
        initial, *items = items
    for item in items:
        initial = fn.call(tx, [initial, item], {})
    return initial


@handles(functools.update_wrapper)
def update_wrapper(tx, wrapper, wrapped, assigned=None, updated=None):
    for name in functools.WRAPPER_ASSIGNMENTS:
        if name in ("__name__", "__qualname__", "__doc__", "__module__") and wrapped.hasattr(tx, name):
            wrapper.setattr(tx, name, wrapped.getattr(tx, name))
    wrapper.setattr(tx, "__wrapped__", wrapped)
    return wrapper


@handles(functools.wraps)
def wraps(tx, wrapped, *args, **kwargs):
    from .builtin import BuiltinVariable

    return PartialVariable(BuiltinVariable(functools.update_wrapper), [], {"wrapped": wrapped})


@handles(functools.cmp_to_key)
def cmp_to_key(tx, fn):
    unsupported("MP303", "functools.cmp_to_key")


# -- copies ------------------------------------------------------------------------------------------------------------
@handles(copy.copy)
def copy_(tx, x):
    from .object_protocol import ObjectDictVariable
    from .user_objects import UserObjectVariable

    if isinstance(x, (ListVariable, DictVariable, SetVariable)):
        return x.call_method(tx, "copy", [], {})
    if isinstance(x, TupleVariable) or x.is_constant():
        return x
    if type(x) is UserObjectVariable and x.payload is None and copied_by_dict(x.cls):
        clone = new(tx, UserObjectVariable(x.cls))
        for key, value in ObjectDictVariable(x).pairs(tx):
            tx.output.side_effects.store_attr(clone, key.as_python_constant(), value)
        return clone
    unsupported("MP303", f"copy.copy of {x.describe()}", "copy outside the compiled code")


def copied_by_dict(cls: type) -> bool:
    """Whether ``copy.copy`` of an instance makes an empty one and copies its ``__dict__``, no more and no less."""
    custom = ("__copy__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__", "__slots__")
    plain = all(getattr(cls, name, None) is getattr(object, name, None) for name in custom)
    return plain and cls.__reduce_ex__ is object.__reduce_ex__ and cls.__new__ is object.__new__


@handles(copy.deepcopy)
def deepcopy(tx, x, memo=None):
    if isinstance(x, (ListVariable, DictVariable, SetVariable)) and type(x) in (ListVariable, DictVariable, SetVariable):
        return _deepcopy_container(tx, x)
    if isinstance(x, TupleVariable) and type(x) is TupleVariable:
        return new(tx, TupleVariable([deepcopy(tx, item) for item in x.items]))
    if x.is_constant():
        return x
    unsupported("MP303", f"copy.deepcopy of {x.describe()}", "copy outside the compiled code")


def _deepcopy_container(tx, x):
    if isinstance(x, ListVariable):
        return new(tx, ListVariable([deepcopy(tx, item) for item in x.items]))
    if isinstance(x, SetVariable):
        return x.call_method(tx, "copy", [], {})
    items = {k: (key, deepcopy(tx, value)) for k, (key, value) in x.items.items()}
    return new(tx, DictVariable(items, cls=x.cls))


# -- dataclasses, typing, inspect --------------------------------------------------------------------------------------
@handles(dataclasses.fields)
def fields(tx, obj):
    from .builder import from_constant

    cls = obj.as_python_constant() if obj.python_type() is type or obj.is_constant() else obj.python_type()
    return from_constant(tuple(dataclasses.fields(cls)))


@handles(dataclasses.is_dataclass)
def is_dataclass(tx, obj):
    cls = obj.as_python_constant() if obj.is_constant() else obj.python_type()
    return const(dataclasses.is_dataclass(cls))


@handles(dataclasses.replace)
def replace(tx, obj, **changes):
    cls = obj.python_type()
    values = {f.name: changes[f.name] if f.name in changes else obj.getattr(tx, f.name)
              for f in dataclasses.fields(cls) if f.init}
    from .classes import wrap_class

    return wrap_class(tx, cls).call(tx, [], values)


@handles(dataclasses.asdict)
def asdict(tx, obj, **kwargs):
    unsupported("MP303", "dataclasses.asdict copies deeply", "convert dataclasses outside the compiled code")


@handles(pickle.dumps)
def pickle_dumps(tx, obj, *args, **kwargs):
    known = constants(obj, *args, *kwargs.values())
    if known is None or not _is_flat(known[0]):
        unsupported("MP303", f"pickle.dumps() of {obj.describe()}", "pickle it outside the compiled code")
    return fold(pickle.dumps, *known[: 1 + len(args)], **dict(zip(kwargs, known[1 + len(args) :])))


def _is_flat(value: Any) -> bool:
    """Plain data without containers inside: which of those are the same object would show in the bytes."""
    items = [*value, *value.values()] if type(value) is dict else value if type(value) in (list, tuple) else [value]
    return all(type(item) in PLAIN_DATA for item in items)


PLAIN_DATA = (int, float, bool, str, bytes, type(None))


@handles(typing.cast)
def cast(tx, kind, value):
    return value


def _folding(function: Callable) -> Callable:
    def handler(tx, *args, **kwargs):
        known = constants(*args, *kwargs.values())
        if known is None:
            unsupported("MP303", f"call of {function.__name__} with values not known while tracing")
        return fold(function, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))

    return handler


for _function in (typing.get_origin, typing.get_args, typing.get_type_hints, inspect.isfunction, inspect.isclass,
                  inspect.getfullargspec, os.path.join, os.path.exists, os.path.basename, os.path.dirname, os.getcwd, os.getenv,
                  importlib.util.find_spec, re.match, re.search, re.sub, re.findall, re.split,
                  re.fullmatch, re.compile, torch._utils._get_device_index):  # fmt: skip
    HANDLERS[_function] = _folding(_function)
for _function in (time.time, time.perf_counter, time.monotonic, time.time_ns, time.process_time, time.sleep):
    def _refuse(tx, *args, _name=_function.__name__, **kwargs):
        unsupported("MP318", f"time.{_name}() would be frozen in a graph", "measure time outside the compiled code")

    HANDLERS[_function] = _refuse


@handles(inspect.signature)
def signature(tx, fn, **kwargs):
    """Of an existing function, or of a method of one (without its first parameter)."""
    from .builder import from_constant
    from .functions import UserFunctionVariable, UserMethodVariable

    if isinstance(fn, UserMethodVariable) and isinstance(fn.fn, UserFunctionVariable):
        return from_constant(inspect.signature(types.MethodType(fn.fn.fn, object())))
    known = constants(fn)
    if known is None:
        unsupported("MP303", f"inspect.signature of {fn.describe()}")
    return fold(inspect.signature, known[0])


for _function, _types in {inspect.isgenerator: (types.GeneratorType,), inspect.ismethod: (types.MethodType,),
                          inspect.ismodule: (types.ModuleType,), inspect.isbuiltin: (types.BuiltinFunctionType,)}.items():
    HANDLERS[_function] = lambda tx, obj, _types=_types: const(issubclass(obj.python_type(), _types))

HANDLERS[warnings.warn] = warn


@handles(collections.namedtuple)
def namedtuple(tx, *args, **kwargs):
    unsupported("MP404", "a named tuple class made while tracing", "define classes outside the compiled code")


@handles(collections._count_elements)
def count_elements(tx, mapping, iterable):
    """What ``collections.Counter`` counts with."""
    for item in items_of(tx, iterable):
        before = mapping.call_method(tx, "get", [item, const(0)], {})
        mapping.call_method(tx, "__setitem__", [item, binary_op(tx, "add", before, const(1))], {})
    return none()


# -- operator's makers of functions ------------------------------------------------------------------------------------
class MadeFunction(Variable):
    """``operator.itemgetter(...)`` and its kin: what they do is ``apply(tx, object)``."""

    def __init__(self, maker: type, args: list[Variable], apply: Callable[[Any, Variable], Variable], kwargs=None, source=None):
        super().__init__(source)
        self.maker, self.args, self.kwargs, self.apply = maker, args, kwargs or {}, apply

    def python_type(self) -> type:
        return self.maker

    def children(self):
        return (*self.args, *self.kwargs.values())

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        return self.apply(tx, args[0])

    def reconstruct(self, cg) -> None:
        cg.call_const(self.maker, self.args, self.kwargs)


def _one_or_tuple(tx, results: list[Variable]) -> Variable:
    return results[0] if len(results) == 1 else tx.tuple(results)


@handles(operator.itemgetter)
def itemgetter(tx, *keys):
    return MadeFunction(operator.itemgetter, list(keys), lambda tx, obj: _one_or_tuple(
        tx, [binary_op(tx, "getitem", obj, key) for key in keys]))


@handles(operator.attrgetter)
def attrgetter(tx, *names):
    def apply(tx, obj):
        return _one_or_tuple(tx, [functools.reduce(lambda o, part: o.getattr(tx, part), n.as_python_constant().split("."), obj)
                                  for n in names])

    return MadeFunction(operator.attrgetter, list(names), apply)


@handles(operator.methodcaller)
def methodcaller(tx, name, *args, **kwargs):
    return MadeFunction(operator.methodcaller, [name, *args], lambda tx, obj: obj.call_method(
        tx, name.as_python_constant(), list(args), kwargs), kwargs)


@handles(types.SimpleNamespace)
def simple_namespace(tx, **kwargs):
    from .user_objects import UserObjectVariable

    obj = new(tx, UserObjectVariable(types.SimpleNamespace))
    for name, value in kwargs.items():
        tx.output.side_effects.store_attr(obj, name, value)
    return obj


# -- class methods of C ------------------------------------------------------------------------------------------------
def fromkeys(tx, cls, keys, value=None):
    from .builtin import HANDLERS as builtins

    pairs = [(key, value or none()) for key in items_of(tx, keys)]
    made = builtins[cls.cls](tx) if cls.cls in (dict, collections.OrderedDict) else unsupported(
        "MP303", f"{cls.cls.__name__}.fromkeys")
    for key, item in pairs:
        made.m___setitem__(tx, key, item)
    return made


def from_iterable(tx, cls, iterables):
    return chain_from_iterable(tx, iterables)


CLASS_METHODS: dict[str, Callable] = {"fromkeys": fromkeys, "from_iterable": from_iterable}
HANDLERS[itertools.chain.from_iterable] = chain_from_iterable


# -- torch's pytree and small Python helpers ---------------------------------------------------------------------------
def _map_structure(tx, fn: Callable[[Variable], Variable], value: Variable) -> Variable:
    if type(value) is ListVariable:
        return new(tx, ListVariable([_map_structure(tx, fn, v) for v in value.items]))
    if type(value) is TupleVariable:
        return new(tx, TupleVariable([_map_structure(tx, fn, v) for v in value.items]))
    if type(value) is DictVariable:
        return new(tx, DictVariable({k: (key, _map_structure(tx, fn, v)) for k, (key, v) in value.items.items()}, cls=value.cls))
    if isinstance(value, TensorVariable) or value.is_constant():
        return fn(value)
    unsupported("MP303", f"a pytree operation on {value.describe()}")


@handles(torch.utils._pytree.tree_map)
def tree_map(tx, fn, tree, *rest, is_leaf=None):
    if rest or not is_none(is_leaf):
        unsupported("MP303", "tree_map over several trees or with is_leaf")
    return _map_structure(tx, lambda leaf: fn.call(tx, [leaf], {}), tree)


@handles(torch.utils._pytree.tree_leaves)
def tree_leaves(tx, tree, is_leaf=None):
    leaves: list[Variable] = []

    def keep(leaf: Variable) -> Variable:
        leaves.append(leaf)
        return leaf

    _map_structure(tx, keep, tree)
    return new(tx, ListVariable(leaves))
