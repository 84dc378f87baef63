"""Handlers of Python's builtin functions and classes.

Upstream: ``torch/_dynamo/variables/builtin.py``.
"""
from __future__ import annotations

import collections
import functools
import math
import types
from typing import Any, Callable

import torch

from .base import ObservedException, Variable, unsupported
from .builtin import sort_items
from .containers import const, constants, fold, is_none, new, observed
from .dict_views import DefaultDictVariable, MappingProxyVariable
from .dicts import DictVariable
from .iterators import CallableIterator, EnumerateIterator, FilterIterator, ItemsIterator, MapIterator, ZipIterator, items_of
from .lists import DequeVariable, ListVariable, RangeVariable, SizeVariable, SliceVariable, TupleVariable, as_index
from .nn_module import NNModuleVariable
from .numbers import NumberVariable, computed, numbers
from .operators import binary_op, format_value, text, unary_op
from .sets import FrozenSetVariable, SetVariable
from .tensor import TensorVariable
from .user_objects import UserObjectVariable

HANDLERS: dict[Any, Callable[..., Variable]] = {}


def handles(*functions: Any):
    def register(handler: Callable) -> Callable:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


# -- numbers and text --------------------------------------------------------------------------------------------------
def _number(cls: type, dunder: str) -> Callable:
    def handler(tx, *args, **kwargs):
        if not args:
            return const(cls())
        if isinstance(args[0], TensorVariable) and not kwargs:
            return handler(tx, args[0].call_method(tx, "item", [], {}), *args[1:])
        if isinstance(args[0], NumberVariable) and cls is not complex:
            return args[0].unary(tx, cls.__name__)
        known = constants(*args, *kwargs.values())
        if known is not None:
            return fold(cls, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))
        if isinstance(args[0], UserObjectVariable) and args[0].has_method(tx, dunder):
            return args[0].call_method(tx, dunder, [], {})
        unsupported("MP303", f"{cls.__name__}() of {args[0].describe()}")

    return handler


for _cls in (int, float, complex):
    HANDLERS[_cls] = _number(_cls, f"__{_cls.__name__}__")


@handles(bool)
def bool_(tx, *args):
    return const(args[0].truth(tx)) if args else const(False)


@handles(str)
def str_(tx, *args, **kwargs):
    if len(args) > 1 or kwargs:
        return fold(str, *constants(*args), **{k: v.as_python_constant() for k, v in kwargs.items()})
    return text(tx, args[0]) if args else const("")


@handles(repr)
def repr_(tx, obj):
    return text(tx, obj, repr)


@handles(format)
def format_(tx, value, spec=None):
    return format_value(tx, value, None, spec)


@handles(len)
def len_(tx, obj):
    return tx.wrap_constant(obj.length(tx))


@handles(id)
def id_(tx, obj):
    """Known for what exists and stays the same call after call: modules, functions, classes, parameters."""
    value = obj.real if isinstance(obj, (NNModuleVariable, TensorVariable)) else getattr(obj, "fn", None)
    if obj.source is None or value is None or isinstance(obj, TensorVariable) and not obj.node.meta["static"]:
        unsupported("MP304", f"id() of {obj.describe()}", "use the object itself as a key, or take its id outside the compiled code")
    tx.output.guard(obj.source, "ID", value)
    return const(id(value))


@handles(abs)
def abs_(tx, x):
    if isinstance(x, TensorVariable):
        return x.call_method(tx, "abs", [], {})
    return unary_op(tx, "abs", x)


@handles(divmod)
def divmod_(tx, a, b):
    if isinstance(a, TensorVariable) or isinstance(b, TensorVariable):
        raise observed(TypeError, "unsupported operand type(s) for divmod()")
    if isinstance(a, UserObjectVariable) and a.has_method(tx, "__divmod__"):
        return a.call_method(tx, "__divmod__", [b], {})
    return tx.tuple([binary_op(tx, "floordiv", a, b), binary_op(tx, "mod", a, b)])


@handles(pow)
def pow_(tx, base, exp, mod=None):
    if is_none(mod):
        return binary_op(tx, "pow", base, exp)
    return fold(pow, *constants(base, exp, mod))


@handles(round)
def round_(tx, number, ndigits=None):
    if isinstance(number, TensorVariable):
        if not hasattr(torch.Tensor, "__round__"):
            raise observed(TypeError, "type Tensor doesn't define __round__ method")
        extra = {} if ndigits is None else {"decimals": ndigits}
        return number.call_method(tx, "round", [], extra)
    if isinstance(number, NumberVariable) and (is_none(ndigits)):
        return number.unary(tx, "round")
    known = constants(number, *([ndigits] if ndigits is not None else []))
    if known is None:
        return number.call_method(tx, "__round__", [ndigits] if ndigits is not None else [], {})
    return fold(round, *known)


def _extreme(op: str, function: Callable) -> Callable:
    def handler(tx, *args, key=None, default=None):
        items = list(args) if len(args) > 1 else items_of(tx, args[0])
        if not items:
            if default is None:
                raise observed(ValueError, "max() arg is an empty sequence" if op == "gt" else "min() arg is an empty sequence")
            return default
        key = None if is_none(key) else key
        if any(isinstance(item, TensorVariable) for item in items):
            return _tensor_extreme(tx, items, key)
        if key is None and any(isinstance(item, NumberVariable) for item in items) and numbers(*items) is not None:
            return functools.reduce(lambda a, b: computed(tx, function, a.value, b.value) if a is not b else a, items)
        best, best_key = items[0], items[0] if key is None else key.call(tx, [items[0]], {})
        for item in items[1:]:
            item_key = item if key is None else key.call(tx, [item], {})
            if binary_op(tx, op, item_key, best_key).truth(tx):
                best, best_key = item, item_key
        return best

    return handler


def _tensor_extreme(tx, items, key):
    unsupported("MP101", "max()/min() of tensors compares their data", "use torch.maximum, torch.minimum or torch.amax")


HANDLERS[max], HANDLERS[min] = _extreme("gt", max), _extreme("lt", min)


@handles(sum)
def sum_(tx, iterable, start=None):
    total = start if start is not None else const(0)
    for item in items_of(tx, iterable):
        total = binary_op(tx, "add", total, item)
    return total


@handles(math.prod)
def prod(tx, iterable, *, start=None):
    total = start if start is not None else const(1)
    for item in items_of(tx, iterable):
        total = binary_op(tx, "mul", total, item)
    return total


@handles(any)
def any_(tx, iterable):
    return const(_first(tx, iterable, True))


@handles(all)
def all_(tx, iterable):
    return const(not _first(tx, iterable, False))


def _first(tx, iterable: Variable, wanted: bool) -> bool:
    from .iterators import next_or_none

    iterator = iterable.iterator(tx)
    while (item := next_or_none(tx, iterator)) is not None:
        if item.truth(tx) == wanted:
            return True
    return False


@handles(sorted)
def sorted_(tx, iterable, *, key=None, reverse=None):
    return new(tx, ListVariable(sort_items(tx, items_of(tx, iterable), key, reverse)))


# -- containers and iterators ------------------------------------------------------------------------------------------
@handles(list)
def list_(tx, *args):
    return new(tx, ListVariable(items_of(tx, args[0]) if args else []))


@handles(tuple)
def tuple_(tx, *args):
    if args and type(args[0]) is TupleVariable:
        return args[0]
    return new(tx, TupleVariable(items_of(tx, args[0]) if args else []))


@handles(torch.Size)
def size_(tx, *args):
    items = items_of(tx, args[0]) if args else []
    if numbers(*items) is None:
        unsupported("MP102", "torch.Size of tensor data")
    return new(tx, SizeVariable(items))


@handles(set)
def set_(tx, *args):
    return new(tx, SetVariable.from_items(tx, items_of(tx, args[0]) if args else []))


@handles(frozenset)
def frozenset_(tx, *args):
    if args and isinstance(args[0], FrozenSetVariable):
        return args[0]
    return new(tx, FrozenSetVariable.from_items(tx, items_of(tx, args[0]) if args else []))


@handles(dict)
def dict_(tx, *args, **kwargs):
    var = new(tx, DictVariable())
    var.m_update(tx, *args, **kwargs)
    return var


@handles(collections.OrderedDict)
def ordered_dict(tx, *args, **kwargs):
    var = new(tx, DictVariable(cls=collections.OrderedDict))
    var.m_update(tx, *args, **kwargs)
    return var


@handles(collections.defaultdict)
def default_dict(tx, factory=None, *args, **kwargs):
    var = new(tx, DefaultDictVariable(factory=factory))
    var.m_update(tx, *args, **kwargs)
    return var


@handles(collections.deque)
def deque_(tx, iterable=None, maxlen=None):
    var = new(tx, DequeVariable(maxlen=None if maxlen is None else maxlen.as_python_constant()))
    if iterable is not None:
        var.m_extend(tx, iterable)
    return var


@handles(types.MappingProxyType)
def mapping_proxy(tx, mapping):
    return MappingProxyVariable(mapping)


@handles(range)
def range_(tx, *args):
    for a in args:
        if isinstance(a, (NumberVariable, TensorVariable)) and constants(a) is None:
            unsupported("MP102", f"how often a loop runs depends on tensor data: range of {a.describe()}",
                        "run as often as it can be needed and mask what is beyond (torch.where), or read the number outside the compiled code and pass it in")
    bounds = [as_index(tx, a) for a in args]
    value = fold(range, *bounds)
    return value if isinstance(value, RangeVariable) else unsupported("MP303", "range of unknown bounds")


@handles(slice)
def slice_(tx, *args):
    return SliceVariable(args)


@handles(zip)
def zip_(tx, *iterables, strict=None):
    return new(tx, ZipIterator([it.iterator(tx) for it in iterables], strict is not None and strict.truth(tx)))


@handles(enumerate)
def enumerate_(tx, iterable, start=None):
    return new(tx, EnumerateIterator(iterable.iterator(tx), 0 if start is None else start.as_python_constant()))


@handles(map)
def map_(tx, fn, *iterables):
    return new(tx, MapIterator(fn, [it.iterator(tx) for it in iterables]))


@handles(filter)
def filter_(tx, fn, iterable):
    return new(tx, FilterIterator(fn, iterable.iterator(tx)))


@handles(reversed)
def reversed_(tx, seq):
    if isinstance(seq, UserObjectVariable) and seq.payload is None and seq.has_method(tx, "__reversed__"):
        return seq.call_method(tx, "__reversed__", [], {})
    return new(tx, ItemsIterator(items_of(tx, seq)[::-1]))


@handles(iter)
def iter_(tx, obj, *sentinel):
    if sentinel:
        return new(tx, CallableIterator(obj, sentinel[0]))
    return obj.iterator(tx)


@handles(next)
def next_(tx, iterator, *default):
    try:
        return iterator.next(tx)
    except ObservedException as error:
        if default and error.matches(StopIteration):
            return default[0]
        raise
