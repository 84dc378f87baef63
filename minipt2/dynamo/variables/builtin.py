"""Builtin functions and classes (``len``, ``isinstance``, ``dict`` …), ``operator.*``, ``math.*``, methods of C types.

``HANDLERS`` maps the real function to a handler ``(tx, *args, **kwargs) -> Variable``; functions in ``FOLDABLE`` are run
on constants while tracing; anything else breaks the graph. Upstream: ``torch/_dynamo/variables/builtin.py``.
"""
from __future__ import annotations

import builtins
import math
import operator
import types
from typing import Any, Callable

import torch

from .base import KnownFunctionVariable, Variable, unsupported
from .containers import constants, fold, is_none, observed
from .numbers import NumberVariable, computed, numbers
from .operators import binary_op, contains, format_value, is_same, text, unary_op

__all__ = ["BuiltinVariable", "binary_op", "contains", "format_value", "is_same", "text", "unary_op", "sort_items"]

HANDLERS: dict[Any, Callable] = {}
FOLDABLE: set[Any] = {chr, ord, hex, bin, oct, ascii, format, round, divmod, pow, abs, complex, bytes, hash}
FOLDABLE |= {f for f in vars(math).values() if isinstance(f, types.BuiltinFunctionType)}
BREAKING = {print: "MP302", input: "MP302", open: "MP302", exec: "MP304", eval: "MP304", compile: "MP304",
            globals: "MP304", locals: "MP304", dir: "MP304", breakpoint: "MP302", builtins.__build_class__: "MP404"}
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def handles(*functions: Any):
    """Register a handler ``(tx, *args, **kwargs) -> Variable`` for real functions."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            HANDLERS[function] = handler
        return handler

    return register


def in_table(function: Any) -> bool:
    try:
        return function in HANDLERS or function in FOLDABLE or function in BREAKING
    except TypeError:  # unhashable callables are never in a table
        return False


class BuiltinVariable(KnownFunctionVariable):
    """A C function, method descriptor or builtin class."""

    def as_proxy(self):
        return self.fn

    def describe(self) -> str:
        return f"builtin {getattr(self.fn, '__qualname__', self.fn)}"

    def getattr(self, tx, name):
        from .builder import from_constant

        if name == "__self__" and isinstance(self.fn, types.BuiltinFunctionType):
            unsupported("MP201", f"attribute '__self__' of {self.describe()}")
        return from_constant(fold_raw(getattr, self.fn, name))

    def call(self, tx, args, kwargs):
        load_handlers()
        fn = self.fn
        if isinstance(fn, DESCRIPTORS) and fn not in HANDLERS:
            return call_descriptor(tx, fn, args, kwargs)
        if fn in HANDLERS:
            return HANDLERS[fn](tx, *args, **kwargs)
        if fn in BREAKING:
            unsupported(BREAKING[fn], f"call of {fn.__name__}()", f"move {fn.__name__}() out of the compiled code")
        return self._fold_or_tensor(tx, args, kwargs)

    def _fold_or_tensor(self, tx, args, kwargs):
        from .tensor import TensorVariable

        fn = self.fn
        if args and isinstance(args[0], TensorVariable) and (method := getattr(fn, "__name__", "")) in (
                "ceil", "floor", "trunc") and hasattr(torch.Tensor, f"__{method}__"):
            return args[0].call_method(tx, method, args[1:], kwargs)
        if any(isinstance(a, NumberVariable) for a in args) and not kwargs and (values := numbers(*args)) is not None:
            if (result := computed(tx, fn, *values)) is not None:
                return result
        if fn in FOLDABLE:
            known = constants(*args, *kwargs.values())
            if known is not None:
                return fold(fn, *known[:len(args)], **dict(zip(kwargs, known[len(args):])))
            if any(isinstance(a, TensorVariable) for a in args):
                unsupported("MP102", f"{self.describe()} of a tensor needs its data", "use the torch function instead")
            if fn in (abs, round, divmod, pow, hash, bytes, format):
                return args[0].call_method(tx, f"__{fn.__name__}__", args[1:], kwargs)
        unsupported("MP303", f"call of {self.describe()}", "move the call out of the compiled code: the effects of a C function are not known")

    def call_method(self, tx, name, args, kwargs):
        return self.getattr(tx, name).call(tx, args, kwargs)


def fold_raw(function: Callable, *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # the traced program's own error
        raise observed(type(error), *error.args) from None


def call_descriptor(tx, descriptor: Any, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
    """``list.append(x, 1)``, ``object.__setattr__(self, ...)``: an unbound method of a C type."""
    from .user_objects import UserObjectVariable

    name, owner, rest = descriptor.__name__, args[0], args[1:]
    if isinstance(owner, UserObjectVariable):
        return owner.call_builtin(tx, descriptor, rest, kwargs)
    if owner.python_type() is not type and not issubclass(owner.python_type(), descriptor.__objclass__):
        raise observed(TypeError, f"descriptor {name!r} requires a {descriptor.__objclass__.__name__!r} object")
    return owner.call_method(tx, name, rest, kwargs)


def sort_items(tx, items: list[Variable], key: Variable | None, reverse: Variable | None) -> list[Variable]:
    """A stable sort by ``key``; comparing keys must not need tensor data."""
    import functools

    keys = items if is_none(key) else [key.call(tx, [item], {}) for item in items]

    def compare(i: int, j: int) -> int:
        if binary_op(tx, "lt", keys[i], keys[j]).truth(tx):
            return -1
        return int(binary_op(tx, "lt", keys[j], keys[i]).truth(tx))

    backwards = reverse is not None and reverse.truth(tx)
    if all(key.is_constant() for key in keys):
        known = constants(*keys)
        order = fold_raw(lambda: sorted(range(len(items)), key=lambda i: known[i], reverse=backwards))
    else:
        order = sorted(range(len(items)), key=functools.cmp_to_key(compare), reverse=backwards)
    return [items[i] for i in order]


def _binary_handler(name: str) -> Callable:
    return lambda tx, a, b: binary_op(tx, name, a, b)


def _unary_handler(name: str) -> Callable:
    return lambda tx, a: unary_op(tx, name, a)


for _name in ("add sub mul truediv floordiv mod pow matmul and_ or_ xor lshift rshift eq ne lt le gt ge is_ is_not getitem "
              "contains concat iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift imatmul").split():
    HANDLERS[getattr(operator, _name)] = _binary_handler("add" if _name == "concat" else _name)
for _name in ("neg", "pos", "invert", "not_", "truth", "index", "abs"):
    HANDLERS[getattr(operator, _name)] = _unary_handler(_name)
FOLDABLE |= {f for f in vars(operator).values() if isinstance(f, types.BuiltinFunctionType) and f not in HANDLERS}


@handles(operator.setitem)
def _setitem(tx, obj, key, value):
    return obj.call_method(tx, "__setitem__", [key, value], {})


@handles(operator.delitem)
def _delitem(tx, obj, key):
    return obj.call_method(tx, "__delitem__", [key], {})


_loaded = False


def load_handlers() -> None:
    """Import the files that fill ``HANDLERS`` (late: they import this one)."""
    global _loaded
    if not _loaded:
        _loaded = True
        from . import builtin_functions, builtin_types, itertools_functions, library_functions

        for module in (itertools_functions, library_functions, builtin_functions, builtin_types):
            HANDLERS.update(module.HANDLERS)
