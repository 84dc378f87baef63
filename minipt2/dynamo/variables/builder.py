"""From a real Python value to a variable, with the guards that the value needs: the one dispatch by type.

Comes in: values found in locals, globals, closures, attributes and items, each with its source. Goes out: variables; the
contents of containers and objects are wrapped (and guarded) only when something reads them.
Upstream: ``torch/_dynamo/variables/builder.py`` (VariableBuilder, SourcelessBuilder).
"""
from __future__ import annotations

import collections
import enum
import functools
import logging
import operator
import random
import types
import weakref
from typing import Any, Callable

import numpy as np
import torch

from ...shapes.known import plain
from ..dynamic import SLICE_PARTS
from ..source import AttrSource, TypeSource, is_from_module_state
from . import callables
from .base import Variable, unsupported
from .classes import ClassVariable, note_class_source
from .constant import ConstantVariable, is_literal
from .containers import note_existing
from .context import AUTOCAST_CLASSES, wrap_autocast
from .dict_views import DefaultDictVariable, MappingProxyVariable
from .dicts import DictVariable
from .effects import LoggerVariable
from .existing_iterators import ExistingIterator, wrap_composed
from .lists import DequeVariable, ListVariable, NamedTupleVariable, RangeVariable, SizeVariable, SliceVariable, TupleVariable
from .misc import (
    FROZEN_TYPES,
    FrozenVariable,
    NUMPY_FUNCTIONS,
    NumpyFunctionVariable,
    NumpyVariable,
    PythonModuleVariable,
    UnknownVariable,
    WeakRefVariable,
)
from .nn_module import NNModuleVariable
from .numbers import SYMBOLIC, NumberVariable
from .sets import FrozenSetVariable, SetVariable
from .user_objects import HEAP_TYPE, UserObjectVariable

COPYABLE_ITERATORS = tuple(type(iter(x)) for x in ((), [], range(0), {}, {}.values(), {}.items(), set(), "")) + (
    type(reversed([])),)  # fmt: skip


def wrap(tx, value: Any, source) -> Variable:
    """The variable for ``value`` found at ``source`` (None: it can never change), guarded by what it is."""
    known = tx.output.side_effects.known(value)
    if known is not None:
        if source is not None and known.source is not None and known.source != source:
            _guard_alias(tx, value, source, known)
        return known
    handler = BY_TYPE.get(type(value))
    if handler is not None:
        return handler(tx, value, source)
    for test, handler in BY_TEST:
        if test(value):
            return handler(tx, value, source)
    return _user_object(tx, value, source)


def _guard_alias(tx, value: Any, source, known: Variable) -> None:
    """The same object reached by a second path must stay the same object."""
    if isinstance(value, type):
        tx.output.guard(source, "ID", value)
    elif type(value) is tuple and guarded_whole(value) and known.is_constant():  # literals share tuples by chance
        tx.output.guard(source, "CONST", value)
    elif isinstance(value, torch.Tensor):
        tx.output.lift_tensor(value, source)
    else:
        tx.output.guard(source, "ALIAS", known.source)


def from_constant(value: Any) -> Variable:
    """A value that is part of the program text or computed from constants; containers become new containers."""
    if type(value) is tuple:
        return TupleVariable([from_constant(v) for v in value])
    maker = FROM_CONSTANT.get(type(value))
    if maker is not None:
        return maker(value)
    if is_literal(value):
        return ConstantVariable(value)
    if isinstance(value, type):
        return ClassVariable(value)
    if isinstance(value, types.FunctionType):
        return callables.function_variable(value, None)
    if isinstance(value, types.ModuleType):
        return PythonModuleVariable(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return NamedTupleVariable([from_constant(v) for v in value], cls=type(value))
    if callable(value) and isinstance(value, callables.C_CALLABLES):
        return callables.callable_variable(value, None)
    if isinstance(value, FROZEN_TYPES):
        return FrozenVariable(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return NumpyVariable(value)
    if isinstance(value, (torch.Tensor, torch.nn.Module, types.GeneratorType)):
        unsupported("MP209", f"a {type(value).__name__} that is not reachable from the frame")
    return UserObjectVariable(type(value), real=value)


def wrap_fx(tx, node: torch.fx.Node) -> Variable:
    """The variable(s) of a graph node's result."""
    from .tensor import wrap_output

    return wrap_output(tx, node)


# -- constants ---------------------------------------------------------------------------------------------------------
def _constant(tx, value, source):
    tx.output.guard(source, "CONST", value)
    return ConstantVariable(value)


def _number(tx, value, source):
    return _constant(tx, value, source) if source is None else tx.output.number(value, source) or _constant(tx, value, source)


def _from_constant(make: Callable[[Any], Variable]):
    def handler(tx, value, source):
        tx.output.guard(source, "CONST", value)
        return make(value)

    return handler


def _enum(tx, value, source):
    tx.output.guard(source, "ID", value)
    return ConstantVariable(value)


# -- containers --------------------------------------------------------------------------------------------------------
def _type_guard(tx, value, source) -> None:
    tx.output.guard(source, "TYPE", type(value))


def _sequence(cls: type) -> Callable:
    def handler(tx, value, source):
        if source is None:
            return cls([wrap(tx, item, None) for item in value])
        _type_guard(tx, value, source)
        return cls.existing(tx, value, source)

    return handler


def _torch_size(tx, value, source):
    if source is None or not tx.output.dynamism.varies_within(value, source):
        tx.output.guard(source, "CONST", value)
        return _size(value)
    return _sequence(SizeVariable)(tx, value, source)


def _tuple(tx, value, source):
    if guarded_whole(value) and (source is None or not tx.output.dynamism.varies_within(value, source)):
        tx.output.guard(source, "CONST", value)
        var = TupleVariable([ConstantVariable(v) for v in value], source)
        return tx.output.side_effects.track_existing(var, value) if source is not None else var
    return _sequence(TupleVariable)(tx, value, source)


def guarded_whole(value: tuple) -> bool:
    """A short tuple of plain constants (a convolution's stride) is guarded by one comparison."""
    return len(value) <= 8 and all(type(v) in GUARDED_WHOLE for v in value)


GUARDED_WHOLE = frozenset((int, str, bool, type(None)))


def _named_tuple(tx, value, source):
    if source is None:
        return NamedTupleVariable([wrap(tx, item, None) for item in value], cls=type(value))
    _type_guard(tx, value, source)
    note_class(tx, value, source)
    return NamedTupleVariable.existing(tx, value, source, type(value))


def _dict(cls: type) -> Callable:
    def handler(tx, value, source):
        if source is None:
            var = cls.from_pairs(tx, [(wrap(tx, k, None), wrap(tx, v, None)) for k, v in value.items()])
            var.cls = type(value)
            return var
        _type_guard(tx, value, source)
        return cls.existing(tx, value, source, type(value))

    return handler


def _defaultdict(tx, value, source):
    if source is None:
        unsupported("MP209", "a defaultdict that is not reachable from the frame")
    var = _dict(DefaultDictVariable)(tx, value, source)
    var.factory = wrap(tx, value.default_factory, AttrSource(source, "default_factory"))
    return var


def _set(cls: type) -> Callable:
    def handler(tx, value, source):
        items = {}
        for item in value:
            if not (is_literal(item) or isinstance(item, (type, types.FunctionType, types.BuiltinFunctionType))):
                unsupported("MP212", f"a set that holds a {type(item).__name__}", "use a list or dict")
            items[item] = from_constant(item)
        _type_guard(tx, value, source)
        tx.output.guard(source, "SET", frozenset(value))
        var = cls(items, source, real=value)
        return tx.output.side_effects.track_existing(var, value) if source is not None else var

    return handler


# -- tensors and objects -----------------------------------------------------------------------------------------------
def _tensor(tx, value, source):
    if source is None:
        return tx.output.literal_tensor(value)
    cls = type(value)
    if cls not in TENSOR_CLASSES and any(getattr(cls, name) is not getattr(torch.Tensor, name) for name in OVERRIDES):
        unsupported("MP310", f"a tensor subclass {type(value).__name__}")
    static = isinstance(value, torch.nn.Parameter) or is_from_module_state(source)
    return tx.output.lift_tensor(value, source, static)


OVERRIDES = ("__torch_function__", "__torch_dispatch__")
"""By either of these a subclass gives operations a meaning of its own."""
TENSOR_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _nn_module(tx, value, source):
    if source is None:
        unsupported("MP209", f"a module {type(value).__name__} that is not reachable from the frame")
    _type_guard(tx, value, source)
    note_class(tx, value, source)
    return tx.output.side_effects.track_existing(NNModuleVariable(type(value), source, real=value), value)


def note_class(tx, value: Any, source) -> None:
    note_class_source(tx, type(value), TypeSource(source))


def _user_object(tx, value, source):
    from .construct import payload_base

    cls = type(value)
    if not cls.__flags__ & HEAP_TYPE and cls is not types.SimpleNamespace or isinstance(value, OPAQUE):  # a C type
        return _unknown(tx, value, source)
    _type_guard(tx, value, source)
    if source is not None:
        note_class(tx, value, source)
    base = payload_base(cls)
    payload = None
    if base is not None:
        if source is None:
            unsupported("MP209", f"a {cls.__name__} that is not reachable from the frame")
        kinds = {list: ListVariable, tuple: TupleVariable, collections.deque: DequeVariable,
                 collections.defaultdict: DefaultDictVariable}
        if base in (set, frozenset):
            return _unknown(tx, value, source)
        payload = kinds.get(base, DictVariable).existing(tx, value, source, base)
    var = UserObjectVariable(cls, source, real=value, payload=payload)
    note_existing(tx, tx.output.side_effects.track_existing(var, value))
    return var


OPAQUE = (torch.Generator, random.Random, np.random.Generator)


def _unknown(tx, value, source):
    tx.output.guard(source, "TYPE", type(value))
    var = UnknownVariable(value, source)
    return tx.output.side_effects.track_existing(var, value) if source is not None else var


def _operator_function(tx, value, source):
    maker, parts = value.__reduce__()[:2]
    if source is None or maker is not type(value):  # a methodcaller with keywords is reduced to a partial
        return _unknown(tx, value, source)
    tx.output.guard(source, "ID", value)
    var = ClassVariable(maker).call(tx, [from_constant(part) for part in parts], {})
    var.source = source
    return tx.output.side_effects.track_existing(var, value)


def _weakref(tx, value, source):
    if source is None:
        return _unknown(tx, value, source)
    _type_guard(tx, value, source)
    return WeakRefVariable(value, source)


def _numpy(tx, value, source):
    if isinstance(value, NUMPY_FUNCTIONS):
        tx.output.guard(source, "ID", value)
        return NumpyFunctionVariable(value, source)
    if isinstance(value, np.generic):
        tx.output.guard(source, "CONST", value)
        return NumpyVariable(value, source)
    _type_guard(tx, value, source)
    var = NumpyVariable(value, source)
    return tx.output.side_effects.track_existing(var, value) if source is not None else var


def _iterator(tx, value, source):
    if source is None:
        return _unknown(tx, value, source)
    return ExistingIterator.wrap(tx, value, source)


def _composed_iterator(tx, value, source):
    return _unknown(tx, value, source) if source is None else wrap_composed(tx, value, source)


def _frozen(tx, value, source):
    tx.output.guard(source, "ID", value) if not isinstance(value, (torch.finfo, torch.iinfo)) else tx.output.guard(
        source, "CONST", value)
    return FrozenVariable(value, source)


def _logger(tx, value, source):
    tx.output.guard(source, "ID", value)
    return LoggerVariable(value, source)


def _range(value: range) -> Variable:
    return RangeVariable(value)


def _slice_argument(tx, value, source):
    parts = (value.start, value.stop, value.step)
    places = tuple(AttrSource(source, name) for name in SLICE_PARTS) if source is not None else ()
    if not places or not all(type(v) in (int, type(None)) for v in parts) or not tx.output.dynamism.varies_within(parts, source, places):
        return _from_constant(_slice)(tx, value, source)
    _type_guard(tx, value, source)
    return SliceVariable([wrap(tx, part, place) for part, place in zip(parts, places)], source)


def _slice(value: slice) -> Variable:
    return SliceVariable([from_constant(part) for part in (value.start, value.stop, value.step)])


def _symbolic(value: Any) -> Variable:
    known = plain(value.node)
    return NumberVariable(value) if isinstance(known, SYMBOLIC) else ConstantVariable(known)


def _size(value: torch.Size) -> Variable:
    return SizeVariable([from_constant(n) for n in value])


LITERALS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented), torch.dtype,
            torch.device, torch.layout, torch.memory_format, torch.qscheme)  # fmt: skip
BY_TYPE: dict[type, Callable] = {
    **{t: _constant for t in LITERALS}, int: _number, float: _number,
    list: _sequence(ListVariable), tuple: _tuple, torch.Size: _torch_size,
    collections.deque: _sequence(DequeVariable), dict: _dict(DictVariable), collections.OrderedDict: _dict(DictVariable),
    collections.defaultdict: _defaultdict, set: _set(SetVariable), frozenset: _set(FrozenSetVariable),
    range: _from_constant(_range), slice: _slice_argument, types.MappingProxyType: _unknown,
    types.FunctionType: callables.wrap_function, types.MethodType: callables.wrap_method, types.ModuleType: callables.wrap_module,
    functools.partial: callables.wrap_partial, functools._lru_cache_wrapper: callables.wrap_lru_cache,
    torch.jit.ScriptFunction: callables.wrap_script_function, weakref.ref: _weakref, torch.Tensor: _tensor, torch.nn.Parameter: _tensor,
    **{t: callables.wrap_callable for t in callables.C_CALLABLES}, **{t: _iterator for t in COPYABLE_ITERATORS},
    **{t: _composed_iterator for t in (zip, enumerate, map, filter)}, **{t: wrap_autocast for t in AUTOCAST_CLASSES},
    **{t: _operator_function for t in (operator.itemgetter, operator.attrgetter, operator.methodcaller)},
}  # fmt: skip
BY_TEST: list[tuple[Callable[[Any], bool], Callable]] = [
    (lambda v: isinstance(v, torch.Tensor), _tensor),
    (lambda v: isinstance(v, torch.nn.Module), _nn_module),
    (lambda v: isinstance(v, type), callables.wrap_known_class),
    (lambda v: isinstance(v, enum.Enum), _enum),
    (lambda v: isinstance(v, types.ModuleType), callables.wrap_module),
    (lambda v: isinstance(v, logging.Logger), _logger),
    (lambda v: isinstance(v, tuple) and (hasattr(v, "_fields") or hasattr(type(v), "n_sequence_fields")), _named_tuple),
    (lambda v: isinstance(v, (np.ndarray, np.generic, *NUMPY_FUNCTIONS)), _numpy),
    (lambda v: isinstance(v, FROZEN_TYPES), _frozen),
    (lambda v: isinstance(v, (int, float, str, bytes)), _enum),
]
FROM_CONSTANT: dict[type, Callable[[Any], Variable]] = {
    list: lambda v: ListVariable([from_constant(x) for x in v]), torch.Size: _size, range: _range, slice: _slice,
    dict: lambda v: DictVariable.from_pairs(None, [(from_constant(k), from_constant(x)) for k, x in v.items()]),
    set: lambda v: SetVariable.from_items(None, [from_constant(x) for x in v]),
    frozenset: lambda v: FrozenSetVariable.from_items(None, [from_constant(x) for x in v]),
    types.MappingProxyType: lambda v: MappingProxyVariable(FROM_CONSTANT[dict](v)), **{t: _symbolic for t in SYMBOLIC},
}  # fmt: skip
