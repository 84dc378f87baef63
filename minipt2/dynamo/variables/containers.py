"""What lists, tuples, dicts, sets, deques and iterators share: methods by name, items wrapped on first use.

A container that exists (``real``) is guarded only where it is read: one item, its length, or all of it once something
needs all of it. Upstream: ``torch/_dynamo/variables/{lists,dicts}.py``, whose ``LazyVariableTracker`` does the same.
"""
from __future__ import annotations

import types
from typing import Any, Callable

from . import builder
from .base import NotConstant, Variable, open_questions, unsupported
from .constant import ConstantVariable
from .exceptions import observed

BINARY_DUNDERS = {f"__{name}__": name for name in (
    "add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "or_", "xor", "and_",
    "lt", "le", "gt", "ge", "eq", "ne", "getitem", "contains", "iadd", "imul", "ior", "iand", "isub", "ixor")}
BINARY_DUNDERS |= {"__or__": "or_", "__and__": "and_"}


def const(value: Any) -> Variable:
    return ConstantVariable(value)


def none() -> Variable:
    return const(None)


def new(tx, var: Variable) -> Variable:
    """Register a container made while tracing and return it."""
    return tx.output.side_effects.track_new(var)


def constants(*variables: Variable) -> tuple[Any, ...] | None:
    """The Python values of all variables, or None if one is not known; numbers that vary become fixed."""
    fixed: list[Any] = []
    open_questions.append(fixed)
    try:
        values = tuple(v.as_python_constant() for v in variables)
    except NotConstant:
        return None
    finally:
        open_questions.pop()
    for number in fixed:
        number.fix()
    return values


def is_none(var: Variable | None) -> bool:
    """None, or an argument that was not given."""
    return var is None or isinstance(var, ConstantVariable) and var.value is None


def fold(function: Callable, *args: Any, **kwargs: Any) -> Variable:
    """Call a real function on constants; what it raises is the user's exception."""
    try:
        result = function(*args, **kwargs)
    except Exception as error:  # the user's own error, to be caught (or not) by the user's own handlers
        raise observed(type(error), *error.args) from None
    return builder.from_constant(result)


class BoundMethodVariable(Variable):
    """``container.method`` (or any method our variables implement by name) before it is called."""

    def __init__(self, obj: Variable, name: str, source=None):
        super().__init__(source)
        self.obj, self.name = obj, name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def children(self):
        return (self.obj,)

    def truth(self, tx) -> bool:
        return True

    def call(self, tx, args, kwargs):
        return self.obj.call_method(tx, self.name, args, kwargs)

    def getattr(self, tx, name):
        if name == "__self__":
            return self.obj
        if name == "__name__":
            return const(self.name)
        return super().getattr(tx, name)

    def reconstruct(self, cg) -> None:
        cg(self.obj)
        cg.load_attr(self.name)


class ContainerVariable(Variable):
    """Base of builtin containers: ``m_<name>`` implements method ``<name>``; operators reach ``binary_op``."""

    cls: type = object

    def python_type(self) -> type:
        return self.cls

    def getattr(self, tx, name):
        if name == "__class__":
            from .classes import wrap_class

            return wrap_class(tx, self.python_type())
        if hasattr(self.python_type(), name):
            return BoundMethodVariable(self, name)
        raise observed(AttributeError, f"{self.python_type().__name__!r} object has no attribute {name!r}")

    def call_method(self, tx, name, args, kwargs):
        method = getattr(self, "m_" + name, None)
        if method is not None:
            return method(tx, *args, **kwargs)
        if name in BINARY_DUNDERS and len(args) == 1:
            from .builtin import binary_op

            return binary_op(tx, BINARY_DUNDERS[name], self, args[0])
        if name == "__len__":
            return const(self.length(tx))
        if name == "__iter__":
            return self.iterator(tx)
        if name == "__class_getitem__" or not hasattr(self.python_type(), name):
            return self.getattr(tx, name).call(tx, args, kwargs)
        unsupported("MP207", f"method {name!r} of {self.python_type().__name__}")

    def truth(self, tx) -> bool:
        return self.length(tx) > 0

    def length(self, tx) -> int:
        return len(self.iterate(tx))

    def iterator(self, tx):
        from .iterators import ItemsIterator

        return new(tx, ItemsIterator(self.iterate(tx)))

    def changing(self, tx) -> None:
        """Announce a change about to happen."""
        tx.output.side_effects.mutate(self)
        note_mutation(tx, self)


def note_existing(tx, var: Variable) -> None:
    """An object from outside: it must stay another one than those of its class that are changed while tracing."""
    tx.output.scratch("existing").setdefault(var.python_type(), []).append(var)
    for other in tx.output.scratch("mutated").get(var.python_type(), ()):
        tx.output.guard(var.source, "NOT_ALIAS", other.source)


def note_mutation(tx, var: Variable) -> None:
    """A change of ``var``: if it came from outside, no other object of its class may turn out to be the same one."""
    if var.source is None:
        return
    mutated = tx.output.scratch("mutated").setdefault(var.python_type(), [])
    if not any(other is var for other in mutated):
        mutated.append(var)
        for other in tx.output.scratch("existing").get(var.python_type(), ()):
            if other is not var and other.source is not None:
                tx.output.guard(var.source, "NOT_ALIAS", other.source)
