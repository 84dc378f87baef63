"""Smaller kinds of values: partials, cached functions, modules of Python, loggers, frozen and unknown objects, NumPy.

Upstream: ``torch/_dynamo/variables/misc.py``.
"""
from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from typing import Any

import numpy as np
import torch

from ..source import AttrSource, ImportSource
from . import builder
from .base import KnownFunctionVariable, Variable, unsupported
from .containers import BoundMethodVariable, const, constants, fold, observed
from .sources import CallSource, DerefSource

FOLDED_PACKAGES = frozenset("torch builtins math operator itertools functools typing collections enum abc".split())


class PartialVariable(Variable):
    """``functools.partial``."""

    def __init__(self, fn: Variable, args: list[Variable], kwargs: dict[str, Variable], source=None):
        super().__init__(source)
        self.fn, self.args, self.kwargs = fn, args, kwargs

    def python_type(self) -> type:
        return functools.partial

    def children(self):
        return (self.fn, *self.args, *self.kwargs.values())

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        return self.fn.call(tx, [*self.args, *args], {**self.kwargs, **kwargs})

    def getattr(self, tx, name):
        if name == "func":
            return self.fn
        if name == "args":
            return tx.tuple(self.args)
        if name == "keywords":
            return tx.dict([(const(k), v) for k, v in self.kwargs.items()])
        if (written := tx.output.side_effects.load_attr(self, name)) is not None:
            return written
        if name.startswith("__") and self.source is None:
            raise observed(AttributeError, f"'functools.partial' object has no attribute {name!r}")
        return super().getattr(tx, name)

    def setattr(self, tx, name, value):
        tx.output.side_effects.store_attr(self, name, value)

    def reconstruct(self, cg) -> None:
        cg.call_const(functools.partial, [self.fn, *self.args], self.kwargs)


class LruCacheVariable(Variable):
    """A function under ``functools.lru_cache`` or ``cache``.

    Called for real on arguments that are known, as eager would call it, if what it returns is plain data (guarded like any other);
    inlined otherwise, its cache neither read nor filled.
    """

    def __init__(self, fn: Variable, real: Any, source=None):
        super().__init__(source)
        self.fn, self.real = fn, real

    def python_type(self) -> type:
        return functools._lru_cache_wrapper

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        known = constants(*args, *kwargs.values())
        if known is not None and getattr(self.real, "__module__", "").partition(".")[0] == "torch":
            return fold(self.real, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))
        return self._cached(tx, args, kwargs) or self.fn.call(tx, args, kwargs)

    def _cached(self, tx, args, kwargs) -> Variable | None:
        given = [_cache_argument(tx, var) for var in (*args, *kwargs.values())]
        if self.source is None or None in given:
            return None
        values, parts = [value for value, _ in given], tuple(part for _, part in given)
        try:
            result = self.real(*values[:len(args)], **dict(zip(kwargs, values[len(args):])))
        except Exception as error:  # the user's own error, to be caught (or not) by the user's own handlers
            raise observed(type(error), *error.args) from None
        return builder.wrap(tx, result, CallSource(self.source, parts, tuple(kwargs))) if is_plain_data(result) else None

    def getattr(self, tx, name):
        return self.fn if name == "__wrapped__" else self.fn.getattr(tx, name)

    def bind(self, owner: Variable) -> Variable:
        return self.fn.bind(owner)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.real)


def _cache_argument(tx, var: Variable) -> tuple[Any, Any] | None:
    """An argument's value, and its text or its source; None when that is not known."""
    from .user_objects import UserObjectVariable

    known = constants(var)
    if known is not None and is_written_plainly(known[0]):
        return known[0], repr(known[0])
    if isinstance(var, UserObjectVariable) and var.source is not None and var.payload is None and not tx.output.side_effects.has_pending(var):
        return var.real, var.source
    return None


def is_written_plainly(value: Any) -> bool:
    """Whether ``repr`` gives an expression for ``value``."""
    if type(value) in (tuple, torch.Size):
        return all(map(is_written_plainly, value))
    return value is None or type(value) in (int, bool, str, bytes, torch.dtype)


def is_plain_data(value: Any, depth: int = 4) -> bool:
    """Constants, containers of plain data and objects with plain attributes: no tensors, modules, iterators or the like."""
    if isinstance(value, (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, type, types.FunctionType)):
        return True
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    elif isinstance(value, (torch.Tensor, torch.nn.Module)) or not hasattr(value, "__dict__"):
        return False
    else:
        parts = list(vars(value).values())
    return depth > 0 and all(is_plain_data(part, depth - 1) for part in parts)


class PythonModuleVariable(Variable):
    """A module: attributes are read from it, guarded unless they are torch's or the standard library's own classes."""

    def __init__(self, module: types.ModuleType, source=None):
        super().__init__(source)
        self.module = module

    def python_type(self) -> type:
        return types.ModuleType

    def as_python_constant(self):
        return self.module

    def describe(self) -> str:
        return f"module {self.module.__name__}"

    __repr__ = describe

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name):
        written = tx.output.side_effects.load_global(self.module.__dict__, name)
        if written is not None and written is not tx.output.side_effects.DELETED:
            return written
        cache = tx.output.scratch("module_attributes")
        key = (self.module, name)
        if key not in cache:
            try:
                value = getattr(self.module, name)
            except AttributeError as error:
                raise observed(AttributeError, *error.args) from None
            if self._is_fixed(value):
                cache[key] = builder.from_constant(value)
            else:
                source = AttrSource(self.source, name) if self.source is not None else ImportSource(
                    self.module.__name__, name)
                cache[key] = builder.wrap(tx, value, source)
        return cache[key]

    def _is_fixed(self, value: Any) -> bool:
        """torch's and the standard library's own classes and submodules are taken to stay what they are."""
        if isinstance(value, (torch._ops.OpOverloadPacket, torch._ops._OpNamespace)):
            return True
        package = self.module.__name__.partition(".")[0]
        if package not in FOLDED_PACKAGES:
            return False
        if isinstance(value, types.ModuleType):
            return value.__name__.partition(".")[0] == package
        home = getattr(value, "__module__", None) or ""
        return isinstance(value, type) and (home.partition(".")[0] in FOLDED_PACKAGES or home == "")

    def setattr(self, tx, name, value):
        class Scope:
            f_globals = self.module.__dict__

        tx.output.side_effects.store_global(Scope, name, value)

    def call_method(self, tx, name, args, kwargs):
        return self.getattr(tx, name).call(tx, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.module)


class FrozenVariable(Variable):
    """An immutable object of a library (``torch.finfo``, a version, a compiled pattern): methods fold on constants."""

    def __init__(self, value: Any, source=None):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def as_python_constant(self):
        return self.value

    def as_proxy(self):
        return self.value

    def truth(self, tx) -> bool:
        return bool(self.value)

    def getattr(self, tx, name):
        from .builtin import fold_raw

        value = fold_raw(getattr, self.value, name)
        if isinstance(value, (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType)) and not isinstance(
                self.value, NAMESPACES):
            return BoundMethodVariable(self, name)
        return builder.from_constant(value)

    def call_method(self, tx, name, args, kwargs):
        known = constants(*args, *kwargs.values())
        if known is None:
            unsupported("MP207", f"method {name!r} of {self.describe()} with values not known while tracing")
        return fold(getattr(self.value, name), *known[:len(args)], **dict(zip(kwargs, known[len(args):])))

    def length(self, tx) -> int:
        return len(self.value)

    def iterate(self, tx):
        return [builder.from_constant(item) for item in self.value]

    def reconstruct(self, cg) -> None:
        cg.load_const(self.value)


class NumpyVariable(Variable):
    """A NumPy scalar (a constant, guarded by value) or array (known by its size; as an index or made a tensor it is an input of the graph)."""

    def __init__(self, value: Any, source=None):
        super().__init__(source)
        self.value = value

    def as_tensor(self, tx) -> Variable:
        """An array as ``torch.as_tensor`` gives it: sharing its memory if it comes from outside."""
        array = self.value
        if array.dtype.kind not in "biufc" or not array.flags.writeable or any(step < 0 for step in array.strides):
            unsupported("MP316", f"a tensor of a NumPy array of {array.dtype}, or of one that torch can't share")
        if self.source is None:
            return tx.output.literal_tensor(torch.as_tensor(array).clone())
        known = tx.output.scratch("arrays")
        if id(array) not in known:
            known[id(array)] = tx.output.lift_tensor(torch.as_tensor(array), CallSource(ImportSource("torch", "as_tensor"), (self.source,)))
        return known[id(array)]

    def python_type(self) -> type:
        return type(self.value)

    def as_python_constant(self):
        return self.value if isinstance(self.value, np.generic) else super().as_python_constant()

    def as_proxy(self):
        if isinstance(self.value, np.generic):
            return self.value.item()
        unsupported("MP316", "a NumPy array as an argument of a graph operation", "convert it with torch.as_tensor")

    def truth(self, tx) -> bool:
        return bool(self.as_python_constant())

    def getattr(self, tx, name):
        if isinstance(self.value, np.generic) and not callable(getattr(self.value, name, None)):
            return fold(getattr, self.value, name)
        if name in ("shape", "ndim", "size"):
            return tx.wrap_attribute(getattr(self.value, name), self.source, name)
        unsupported("MP316", f"attribute {name!r} of {self.describe()}", "use torch operations in compiled code")

    def call_method(self, tx, name, args, kwargs):
        if isinstance(self.value, np.generic) and (known := constants(*args)) is not None and not kwargs:
            return fold(getattr(self.value, name), *known)
        unsupported("MP316", f"method {name!r} of {self.describe()}", "use torch operations in compiled code")

    def reconstruct(self, cg) -> None:
        if isinstance(self.value, np.generic):
            cg.load_const(self.value)
        else:  # the program may write into it: a new one each time
            cg.call_const(self.value.copy, [])


class NumpyFunctionVariable(KnownFunctionVariable):
    """A function or ufunc of NumPy: folded on constants (``np.prod(x.shape)``), a break otherwise."""

    def call(self, tx, args, kwargs):
        values = [known_to_numpy(v) for v in (*args, *kwargs.values())]
        if (getattr(self.fn, "__module__", None) or "numpy").startswith("numpy.random") or any(v is MISSING for v in values):
            unsupported("MP316", f"call of numpy's {getattr(self.fn, '__name__', self.fn)}", "use the torch function in compiled code")
        return fold(self.fn, *values[:len(args)], **dict(zip(kwargs, values[len(args):])))

    def reconstruct(self, cg) -> None:
        cg.load_const(self.fn)


MISSING = object()
NUMPY_FUNCTIONS = (np.ufunc, type(np.prod))


def known_to_numpy(var: Variable) -> Any:
    """The value NumPy would see, if it is known: a constant, or an array that was folded from constants."""
    if isinstance(var, NumpyVariable) and var.source is None:
        return var.value
    known = constants(var)
    return MISSING if known is None else known[0]


class WeakRefVariable(Variable):
    """A ``weakref.ref``: calling it gives the object, guarded to stay what it is."""

    def __init__(self, value: weakref.ref, source=None):
        super().__init__(source)
        self.real = value

    def python_type(self) -> type:
        return weakref.ref

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        return builder.wrap(tx, self.real(), DerefSource(self.source))


class UnknownVariable(Variable):
    """An object that nothing is known about but its class: it may be passed on; using it breaks the graph."""

    def __init__(self, value: Any, source=None):
        super().__init__(source)
        self.real = value

    def python_type(self) -> type:
        return type(self.real)

    def truth(self, tx) -> bool:
        if hasattr(type(self.real), "__bool__") or hasattr(type(self.real), "__len__"):
            return super().truth(tx)
        return True

    def getattr(self, tx, name):
        if not hasattr(type(self.real), name):
            from .user_objects import instance_dict

            if name not in instance_dict(self.real) and not hasattr(type(self.real), "__getattr__"):
                raise observed(AttributeError, f"{type(self.real).__name__!r} object has no attribute {name!r}")
        unsupported("MP201", f"attribute {name!r} of an object of type {type(self.real).__module__}.{type(self.real).__qualname__}")

    def call(self, tx, args, kwargs):
        unsupported("MP303", f"call of an object of type {type(self.real).__module__}.{type(self.real).__qualname__}")

    def call_method(self, tx, name, args, kwargs):
        unsupported("MP303", f"method {name!r} of an object of type {type(self.real).__module__}.{type(self.real).__qualname__}")

    def reconstruct(self, cg) -> None:
        cg.load_const(self.real)


NAMESPACES = (type(torch._C._VariableFunctions),)


def _frozen_types() -> tuple[type, ...]:
    import datetime
    import decimal
    import fractions
    import inspect
    import re

    import typing

    return (*NAMESPACES, type(typing.List), type(typing.List[int]), type(typing.Any), type(typing.Union), type(typing.Callable), types.GenericAlias,
            types.UnionType, typing.TypeVar, typing.ForwardRef, torch.finfo, torch.iinfo, dataclasses.Field, inspect.Signature, inspect.Parameter, re.Pattern, re.Match,
            decimal.Decimal, fractions.Fraction, datetime.date, datetime.timedelta, types.CodeType)


FROZEN_TYPES = _frozen_types()
