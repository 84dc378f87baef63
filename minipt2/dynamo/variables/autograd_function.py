"""``autograd.Function.apply`` and hooks on gradients: nodes of the graph, whose Python the AOT tracer runs when it traces.

That is only right for functions of their arguments: what ``forward``, ``backward`` and hooks read besides is guarded or refused.
Upstream: ``AutogradFunctionVariable`` in ``torch/_dynamo/variables/misc.py`` and ``autograd_function_apply``; ``call_hook``.
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
from .functions import CellVariable, FunctionVariable, UserFunctionVariable
from .tensor import TensorVariable

REFUSED_NAMES = frozenset(("print", "open", "input"))
_ADVICE = "register it outside the compiled code, on a tensor that the graph returns, or make the hook a function of its argument"
CELLS = ("STORE_DEREF", "DELETE_DEREF")
WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL", *CELLS)
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
            function = undecorated(getattr(self.cls, name, None))
            if isinstance(function, types.FunctionType) and not (function.__module__ or "").startswith("torch."):
                check_pure(tx, function, f"{self.cls.__name__}.{name}")
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

        writes = any("mark_dirty" in names_of(f.__code__) for f in map(undecorated, (cls.forward, cls.setup_context)) if hasattr(f, "__code__"))
        apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply" + "_" * writes  # as torch names what writes in place
        _callers[cls] = apply
    return _callers[cls]


def undecorated(function: Any) -> Any:
    """The user's function under a decorator of torch's own (``once_differentiable``, ``custom_fwd``), or under ``staticmethod``."""
    function = getattr(function, "__func__", function)
    while isinstance(function, types.FunctionType) and hasattr(function, "__wrapped__") and function.__globals__["__name__"].startswith("torch."):
        function = function.__wrapped__
    return function


def register_hook(tx, tensor: TensorVariable, hook: Variable) -> Variable:
    """``tensor.register_hook(hook)`` as a node, when ``tensor`` is made in the graph and nobody keeps the handle."""
    kept = tx.program.instructions[tx.pc].op != "POP_TOP"
    if tensor.real is not None or kept or not isinstance(hook, FunctionVariable):
        unsupported("MP301", "Tensor.register_hook() on an input, with its handle kept, or of no plain function", _ADVICE)
    enclosed = [*_closure(tx, hook), *_defaults(tx, hook)]
    tensors = [var for var in enclosed if isinstance(var, TensorVariable)]
    known = [None if isinstance(var, TensorVariable) else _known(tx, var, hook) for var in enclosed]
    remake = _remaker(hook, known, [k for k, var in enumerate(enclosed) if isinstance(var, TensorVariable)])
    check_pure(tx, remake(()), hook.describe(), enclosed=True)
    if tensors and any(name.endswith("_") and not name.endswith("__") for name in names_of(hook.get_code())):
        unsupported("MP301", f"Tensor.register_hook() of {hook.describe()}, which may write into a tensor that it encloses", _ADVICE)

    def register_hook_(t: torch.Tensor, *others: torch.Tensor) -> Any:  # a function of tensors alone: graphs print their arguments
        return t.register_hook(remake(others))

    tx.output.create_node("call_function", register_hook_, (tensor.as_proxy(), *(var.as_proxy() for var in tensors)))
    return tx.constant(None)


def _closure(tx, hook: FunctionVariable) -> list[Variable]:
    """What the hook's cells hold, for good: they belong to frames that are traced, whose code sets them no more."""
    found = list(zip(hook.get_code().co_freevars, hook.cells(tx)))
    for name, cell in found:
        if cell.contents is None or not _is_set_once(tx, name, cell):
            unsupported("MP301", f"Tensor.register_hook() of {hook.describe()}, whose variable {name!r} may change", _ADVICE)
    for _, cell in found:
        cell.fixed_at = tx.output.step
    return [cell.contents for _, cell in found]


def _is_set_once(tx, name: str, cell: CellVariable) -> bool:
    owner = tx
    while owner is not None and not (name in owner.code.co_cellvars and owner.cells[name] is cell):
        owner = owner.parent
    if owner is None:
        return False
    code = owner.code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 2]
    return sum(i.opname in CELLS and i.argval == name for i in instructions(code)) <= (name not in parameters)


def _defaults(tx, hook: FunctionVariable) -> list[Variable]:
    count, names = hook.default_names()
    return [*(hook.default(tx, k) for k in range(count)), *(hook.kwdefault(tx, name) for name in sorted(names))]


def _known(tx, var: Variable, hook: FunctionVariable) -> Any:
    """The value of ``var``, if it is one that nothing changes."""
    if var.is_constant() and (is_literal(value := var.as_python_constant()) or isinstance(value, STATELESS)):
        return value
    if isinstance(var, UserFunctionVariable):
        check_pure(tx, var.fn, hook.describe())
        return var.fn
    unsupported("MP301", f"Tensor.register_hook() of {hook.describe()}, which reads {var.describe()}", _ADVICE)


def _remaker(hook: FunctionVariable, known: list, places: list[int]) -> Callable[[tuple], types.FunctionType]:
    """Makes the hook's function again, with these values and tensors (at ``places``) in its closure and as its defaults."""
    code, f_globals = hook.get_code(), hook.get_globals()
    cells, (count, names) = len(code.co_freevars), hook.default_names()

    def remake(tensors: tuple) -> types.FunctionType:
        values = list(known)
        for place, value in zip(places, tensors):
            values[place] = value
        closure = tuple(types.CellType(value) for value in values[:cells])
        function = types.FunctionType(code, f_globals, code.co_name, tuple(values[cells : cells + count]), closure)
        function.__kwdefaults__ = dict(zip(sorted(names), values[cells + count :]))
        return function

    return remake


def check_pure(tx, function: types.FunctionType, name: str, seen: set | None = None, enclosed: bool = False) -> None:
    """Break the graph unless ``function`` depends on its arguments and on things that are guarded here; ``name`` it to the user.

    ``enclosed``: its closure has been looked at, and need only stay as it is.
    """
    seen = seen if seen is not None else set()
    if function in seen:
        return
    seen.add(function)
    code = function.__code__
    if code.co_freevars and not enclosed or any(i.opname in WRITES and (i.opname not in CELLS or i.argval in code.co_freevars)
                                                for i in instructions(code)):
        unsupported("MP314", f"{name} has a closure or writes globals", "make it a function of its arguments")
    if REFUSED_NAMES & names_of(code):
        unsupported("MP314", f"{name} uses {sorted(REFUSED_NAMES & names_of(code))[0]}")
    for read in names_of(code) & function.__globals__.keys():
        value = function.__globals__[read]
        if isinstance(value, types.FunctionType):
            if not (value.__module__ or "").startswith("torch"):
                check_pure(tx, value, name, seen)
        elif is_literal(value) and getattr(sys.modules.get(function.__module__), read, None) is value:
            tx.output.guard(ImportSource(function.__module__, read), "CONST", value)
        elif not isinstance(value, STATELESS) and not isinstance(value, torch._ops.OpOverloadPacket):
            unsupported("MP314", f"{name} reads the global {read!r}", "pass it as an argument")


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
