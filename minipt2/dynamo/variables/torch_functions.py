"""Functions of torch: operators become one node; what is handled otherwise is in ``torch_answers`` and ``torch_refused``.

``torch.nn.functional`` functions written in Python are one node too, so that a graph reads like the program.
Upstream: ``torch/_dynamo/variables/torch.py`` and ``torch/_dynamo/trace_rules.py``.
"""
from __future__ import annotations

import types
from typing import Any, Callable, NamedTuple

import torch

from .base import KnownFunctionVariable, Variable, unsupported
from .containers import ContainerVariable
from .numbers import NumberVariable
from .tensor import TensorVariable

LEAF_MODULES = frozenset(("torch.functional", "torch.nn.functional", "torch._jit_internal", "torch.special", "torch.linalg",
                          "torch.fft", "torch._lobpcg", "torch._linalg_utils", "torch.signal.windows.windows"))  # fmt: skip
C_MODULES = frozenset(("torch._C._nn", "torch._C._special", "torch._C._linalg", "torch._C._fft", "torch._C._sparse",
                       "torch._C._nested"))  # fmt: skip
OPERATORS = frozenset(f for n in dir(torch._C._VariableFunctions) if isinstance(
    f := getattr(torch._C._VariableFunctions, n), types.BuiltinFunctionType))  # fmt: skip
HANDLERS: dict[Any, Callable[..., Variable]] = {}
_manual_seed = torch.random.manual_seed


class TorchVariable(KnownFunctionVariable):
    """A torch function: put into the graph as a call, or handled by ``HANDLERS``."""

    def as_proxy(self):
        return self.fn

    def describe(self) -> str:
        return f"torch function {getattr(self.fn, '__module__', '')}.{getattr(self.fn, '__name__', self.fn)}"

    __repr__ = describe

    def getattr(self, tx, name):
        from .builder import from_constant
        from .builtin import fold_raw

        return from_constant(fold_raw(getattr, self.fn, name))

    def call(self, tx, args, kwargs):
        handler = HANDLERS.get(self.fn)
        if handler is not None:
            return handler(tx, *args, **kwargs)
        if isinstance(self.fn, types.FunctionType) and not all(map(is_graph_value, (*args, *kwargs.values()))):
            from .functions import UserFunctionVariable

            return UserFunctionVariable(self.fn, self.source).call(tx, args, kwargs)
        return tx.output.call(tx, self.fn, args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.fn)


def is_graph_value(var: Variable) -> bool:
    """A tensor, a constant, or a container of those: what a node takes as an argument."""
    if isinstance(var, (TensorVariable, NumberVariable)):
        return True
    if isinstance(var, ContainerVariable):
        from .lists import SequenceVariable

        return isinstance(var, SequenceVariable) and all(map(is_graph_value, var.items)) or var.is_constant()
    return var.is_constant() and not isinstance(var.as_python_constant(), types.FunctionType)


def torch_function(value: Any, source=None) -> Variable | None:
    """``value`` as a TorchVariable, or None when it is not torch's to handle (then it is inlined or breaks)."""
    if _later:
        _register_later(value)
    if getattr(value, "__wrapped__", None) is _manual_seed:  # what loading upstream's dynamo turns torch.manual_seed into
        value = _manual_seed
    try:
        if value in HANDLERS:
            return TorchVariable(value, source)
    except TypeError:
        return None
    if isinstance(value, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return TorchVariable(value, source)
    module = getattr(value, "__module__", None)
    if isinstance(value, types.FunctionType):
        return TorchVariable(value, source) if module in LEAF_MODULES and value.__globals__.get(
            "__name__") in LEAF_MODULES else None
    if isinstance(value, types.BuiltinFunctionType):
        if value in OPERATORS or getattr(value.__self__, "__name__", None) in C_MODULES:
            return TorchVariable(value, source)
        if (module or "").startswith("torch"):
            return RefusedTorchVariable(value, source)
    return None


class RefusedTorchVariable(TorchVariable):
    """A C function of torch that is no operator: it changes or asks for state that a graph does not hold."""

    def call(self, tx, args, kwargs):
        unsupported("MP312", f"call of {self.describe()}", "call it outside the compiled code")


def handles(*functions: Any):
    """Register a handler ``(tx, *args, **kwargs) -> Variable``; a ``Later`` is found once its module is loaded."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            if isinstance(function, Later):
                _later.setdefault(function.module, []).append((function.path, handler))
            else:
                HANDLERS[function] = handler
        return handler

    return register


class Later(NamedTuple):
    """A dotted path below a package that torch loads at first use; asking for it now would load the package."""

    module: str
    path: str


_later: dict[str, list[tuple[str, Callable]]] = {}  # package -> handlers to register when a value of it is met


def named(*paths: str) -> list[Any]:
    """Objects by dotted path from ``torch``, or a ``Later``; those missing in this version are left out."""
    found = []
    for path in paths:
        package = path.split(".")[0]
        if package in ("_dynamo", "onnx"):
            found.append(Later(f"torch.{package}", path))
        elif (value := _resolve(path)) is not None:
            found.append(value)
    return found


def _resolve(path: str) -> Any:
    value: Any = torch
    for part in path.split("."):
        value = getattr(value, part, None)
    return value


def _register_later(value: Any) -> None:
    """Called with every value looked up: registers the handlers of its package, which is loaded if there is a value of it."""
    module = getattr(value, "__module__", None)
    for package in [p for p in _later if isinstance(module, str) and (module + ".").startswith(p + ".")]:
        for path, handler in _later.pop(package):
            if (function := _resolve(path)) is not None:
                HANDLERS[function] = handler
