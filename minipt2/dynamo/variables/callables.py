"""Wrapping what can be called: functions, methods, classes, C functions, partials, cached functions, and modules.

Upstream: the callable cases of ``VariableBuilder`` in ``torch/_dynamo/variables/builder.py``.
"""
from __future__ import annotations

import types
from typing import Any

import torch

from ..source import AttrSource, ClosureSource, Source
from . import builder, compared, composites, constructors, optimizers, torch_answers, torch_refused  # noqa: F401 (all but the first fill the handlers of torch_functions)
from .base import KnownFunctionVariable, Variable, unsupported
from .builtin import HANDLERS, BuiltinVariable, in_table, load_handlers
from .classes import ClassMethodVariable, ClassVariable, wrap_class
from .containers import BoundMethodVariable
from .functions import UserFunctionVariable, UserMethodVariable
from .misc import LruCacheVariable, NumpyFunctionVariable, PartialVariable, PythonModuleVariable
from .torch_functions import torch_function


# -- functions and classes ---------------------------------------------------------------------------------------------
def wrap_function(tx, value, source):
    if source is not None:
        if value.__closure__ or "<locals>" in value.__qualname__ or "<lambda>" in value.__qualname__:
            tx.output.guard(source, "FUNC_CODE", value.__code__)
        else:
            tx.output.guard(source, "ID", value)
    if (inner := traced_instead(value, source)) is not None:
        return StandInVariable(value, builder.wrap(tx, *inner), source)
    var = function_variable(value, source)
    if isinstance(var, UserFunctionVariable):
        tx.output.guard(source, "FUNC_CODE", value.__code__)
        tx.output.side_effects.track_existing(var, value)
    return var


def traced_instead(value: types.FunctionType, source) -> tuple[Any, Source | None] | None:
    """What is traced where ``value`` is called, if that is not ``value``, and its source.

    It is what minipt2.compile or torch.jit.script_if_tracing was given; a function of torch's that upstream's dynamo leaves alone; and
    ``Module.__init__`` without the book-keeping that torch.compile adds to it for the rest of the process.
    """
    for name in ("_minipt2_inline", "__original_fn"):
        if name in value.__dict__ and source is not None:
            return value.__dict__[name], AttrSource(source, name)
    if value.__globals__.get("__name__") == "torch._compile" and source is not None and torch_function(value, source) is None:
        return value.__wrapped__, AttrSource(source, "__wrapped__")
    names = value.__code__.co_freevars
    if value.__module__ == "torch._dynamo.mutation_guard" and "init" in names:
        index = names.index("init")
        return value.__closure__[index].cell_contents, source and ClosureSource(source, index)
    return None


def function_variable(value: types.FunctionType, source) -> Variable:
    load_handlers()
    if value in HANDLERS:
        return BuiltinVariable(value, source)
    return torch_function(value, source) or UserFunctionVariable(value, source)


def wrap_method(tx, value, source):
    if not isinstance(value.__func__, types.FunctionType):
        return wrap_callable(tx, value, source)
    if source is None:
        return UserMethodVariable(function_variable(value.__func__, None), builder.from_constant(value.__self__))
    tx.output.guard(source, "TYPE", type(value))
    function = builder.wrap(tx, value.__func__, AttrSource(source, "__func__"))
    return UserMethodVariable(function, builder.wrap(tx, value.__self__, AttrSource(source, "__self__")), source)


def wrap_known_class(tx, value, source):
    tx.output.guard(source, "ID", value)
    return wrap_class(tx, value, source)


C_CALLABLES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
               types.MethodWrapperType, types.ClassMethodDescriptorType, torch._ops.OpOverload,
               torch._ops.OpOverloadPacket)  # fmt: skip


def wrap_callable(tx, value, source):
    tx.output.guard(source, "ID", value) if stays(value) else tx.output.guard(source, "TYPE", type(value))
    return callable_variable(value, source, tx)


def stays(value: Any) -> bool:
    """Whether reading the same attribute again gives the same object (bound C methods are made anew)."""
    owner = getattr(value, "__self__", None)
    return owner is None or isinstance(owner, (types.ModuleType, type))


def callable_variable(value: Any, source, tx=None) -> Variable:
    found = torch_function(value, source)
    if found is not None:
        return found
    if (getattr(value, "__module__", None) or "").partition(".")[0] == "numpy":
        return NumpyFunctionVariable(value, source)
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        return bound_c_method(tx, value, owner, source)
    if isinstance(owner, type):
        return ClassMethodVariable(ClassVariable(owner), value.__name__) if owner is not object and value is not getattr(
            owner, "__new__", None) else BuiltinVariable(value, source)
    return BuiltinVariable(value, source)


class StandInVariable(KnownFunctionVariable):
    """A function made of another one, by ``torch.jit.script`` or ``minipt2.compile`` for one: that is traced."""

    def __init__(self, value: Any, original: Variable, source):
        super().__init__(value, source)
        self.original = original

    def getattr(self, tx, name):
        return self.original.getattr(tx, name)

    def call(self, tx, args, kwargs):
        return self.original.call(tx, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.fn)


def wrap_script_function(tx, value, source):
    original = getattr(value, SCRIPTED, None)
    scripted = torch.jit._state._try_get_jit_cached_function(original) if original is not None else None
    if source is None or scripted is None or scripted.name != value.name:  # a traced one holds what its trace saw
        return builder._unknown(tx, value, source)
    tx.output.guard(source, "ID", value)
    return StandInVariable(value, builder.wrap(tx, original, AttrSource(source, SCRIPTED)), source)


SCRIPTED = "_torchdynamo_inline"
"""Where torch.jit.script keeps the function it was given."""


def bound_c_method(tx, value: Any, owner: Any, source) -> Variable:
    """``history.append``, or a module's ``iskeyword = frozenset(...).__contains__``: a method of an object that is known."""
    load_handlers()
    if in_table(value) or isinstance(owner, builder.OPAQUE):
        return BuiltinVariable(value, source)
    if tx is None or source is None:
        if not isinstance(owner, (str, bytes, frozenset)):
            unsupported("MP303", f"the bound C method {value!r}")
        return BoundMethodVariable(builder.from_constant(owner), value.__name__)
    tx.output.guard(AttrSource(source, "__name__"), "CONST", value.__name__)
    return BoundMethodVariable(builder.wrap(tx, owner, AttrSource(source, "__self__")), value.__name__, source)


def wrap_module(tx, value, source):
    tx.output.guard(source, "ID", value)
    return PythonModuleVariable(value, source)


def wrap_partial(tx, value, source):
    tx.output.guard(source, "TYPE", type(value))
    parts = [builder.wrap(tx, getattr(value, n), AttrSource(source, n) if source is not None else None)
             for n in ("func", "args", "keywords")]
    var = PartialVariable(parts[0], parts[1].iterate(tx), {
        k.as_python_constant(): v for k, v in parts[2].pairs(tx)}, source)
    return tx.output.side_effects.track_existing(var, value) if source is not None else var


def wrap_lru_cache(tx, value, source):
    tx.output.guard(source, "ID", value)
    inner = builder.wrap(tx, value.__wrapped__, AttrSource(source, "__wrapped__") if source is not None else None)
    return LruCacheVariable(inner, value, source)
