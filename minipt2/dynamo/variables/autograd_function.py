"""``autograd.Function.apply``: one node of the graph, whose forward and backward the AOT tracer runs when it traces.

That is only right for functions of their arguments: what ``forward`` and ``backward`` read besides is guarded or refused.
Upstream: ``AutogradFunctionVariable`` in ``torch/_dynamo/variables/misc.py`` and ``autograd_function_apply``.
"""
from __future__ import annotations

import dis
import functools
import sys
import types
import weakref
from typing import Any, Callable, Iterator

import torch

from ..source import ImportSource
from .base import Variable, unsupported
from .constant import is_literal

REFUSED_NAMES = frozenset(("mark_dirty", "print", "open", "input"))
STATELESS = (types.ModuleType, type, types.BuiltinFunctionType)


class AutogradApplyVariable(Variable):
    """``cls.apply`` of an ``autograd.Function``."""

    def __init__(self, cls: type, source=None):
        super().__init__(source)
        self.cls = cls

    def python_type(self) -> type:
        return types.MethodType

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        from .torch_functions import is_graph_value

        if kwargs or not all(map(is_graph_value, args)):
            unsupported("MP314", f"{self.cls.__name__}.apply with arguments that are neither tensors nor constants")
        for name in ("forward", "backward", "setup_context", "vjp"):
            function = getattr(self.cls, name, None)
            if isinstance(function, types.FunctionType) and not function.__module__.startswith("torch."):
                check_pure(tx, function, self.cls)
        return tx.output.call(tx, caller(self.cls), args, {})

    def reconstruct(self, cg) -> None:
        cg.load_const(self.cls.apply)


_callers: "weakref.WeakKeyDictionary[type, Callable]" = weakref.WeakKeyDictionary()


def caller(cls: type) -> Callable:
    """A plain function that applies ``cls`` (graphs print and pickle functions better than bound C methods)."""
    if cls not in _callers:
        reference = weakref.ref(cls)

        def apply(*args: Any) -> Any:
            return reference().apply(*args)

        apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
        _callers[cls] = apply
    return _callers[cls]


def check_pure(tx, function: types.FunctionType, cls: type, seen: set | None = None) -> None:
    """Break the graph unless ``function`` depends on its arguments and on things that are guarded here."""
    seen = seen if seen is not None else set()
    if function in seen:
        return
    seen.add(function)
    code = function.__code__
    if code.co_freevars or any(i.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") for i in instructions(code)):
        unsupported("MP314", f"{cls.__name__}.{function.__name__} has a closure or writes globals", "make it a function of its arguments")
    if REFUSED_NAMES & names_of(code):
        unsupported("MP314", f"{cls.__name__}.{function.__name__} uses {sorted(REFUSED_NAMES & names_of(code))[0]}")
    for name in names_of(code) & function.__globals__.keys():
        value = function.__globals__[name]
        if isinstance(value, types.FunctionType):
            if not (value.__module__ or "").startswith("torch"):
                check_pure(tx, value, cls, seen)
        elif is_literal(value) and getattr(sys.modules.get(function.__module__), name, None) is value:
            tx.output.guard(ImportSource(function.__module__, name), "CONST", value)
        elif not isinstance(value, STATELESS) and not isinstance(value, torch._ops.OpOverloadPacket):
            unsupported("MP314", f"{cls.__name__}.{function.__name__} reads the global {name!r}", "pass it as an argument")


def instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from instructions(const)


@functools.lru_cache(maxsize=512)
def names_of(code: types.CodeType) -> frozenset[str]:
    """Global and attribute names of a code object and those nested in it."""
    nested = [names_of(const) for const in code.co_consts if isinstance(const, types.CodeType)]
    return frozenset(code.co_names).union(*nested)
