"""Immutable Python values known while tracing: numbers, strings, None, dtypes, devices, enum members, ellipsis …

A constant that came from the user's world is guarded by value where it is wrapped (``builder.wrap``), so everything
computed from constants folds. Upstream: ``torch/_dynamo/variables/constant.py``.
"""
from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

from .base import Variable, unsupported
from .exceptions import observed

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..translator import Translator

LITERAL_TYPES = (
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), type(NotImplemented),
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, range, slice,
)  # fmt: skip


def is_literal(value: Any) -> bool:
    """Whether ``value`` may be a ConstantVariable: immutable, compared by value, holding nothing mutable."""
    if type(value) in (tuple, frozenset):
        return all(is_literal(item) for item in value)
    return type(value) in LITERAL_TYPES or isinstance(value, enum.Enum)


class ConstantVariable(Variable):
    """``value`` is known. Operations on constants run at trace time and give constants."""

    def __init__(self, value: Any, source: Any = None):
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def as_python_constant(self) -> Any:
        return self.value

    def as_proxy(self) -> Any:
        return self.value

    def describe(self) -> str:
        return f"constant {self.value!r}"

    __repr__ = describe

    def truth(self, tx: "Translator") -> bool:
        return bool(self.value)

    def length(self, tx: "Translator") -> int:
        return folded(tx, len, self.value).value

    def iterate(self, tx: "Translator") -> list[Variable]:
        return [tx.constant(item) for item in folded(tx, list, self.value, raw=True)]

    def iterator(self, tx: "Translator") -> Variable:
        return tx.constant_items(self.iterate(tx)).iterator(tx)

    def getattr(self, tx: "Translator", name: str) -> Variable:
        value = folded(tx, getattr, self.value, name, raw=True)
        if callable(value) and not isinstance(value, type):
            return ConstantMethodVariable(self, name)
        return tx.wrap_constant(value)

    def call_method(self, tx, name, args, kwargs) -> Variable:
        if all(a.is_constant() for a in (*args, *kwargs.values())):
            method = folded(tx, getattr, self.value, name, raw=True)
            values = [a.as_python_constant() for a in args]
            keywords = {k: v.as_python_constant() for k, v in kwargs.items()}
            result = folded(tx, lambda: method(*values, **keywords), raw=True)
            return tx.wrap_constant(result)
        if name == "join" and isinstance(self.value, (str, bytes)) and len(args) == 1 and not kwargs:
            items = [item.as_python_constant() for item in args[0].iterate(tx) if item.is_constant() or unsupported(
                "MP207", "joining strings that are not known while tracing")]
            return folded(tx, self.value.join, items)
        unsupported("MP207", f"method {name!r} of {self.describe()} with arguments not known while tracing")

    def reconstruct(self, cg: "Emitter") -> None:
        cg.load_const(self.value)


class ConstantMethodVariable(Variable):
    """A bound method of a constant: ``"{}".format``."""

    def __init__(self, owner: ConstantVariable, name: str, source: Any = None):
        super().__init__(source)
        self.owner, self.name = owner, name

    def python_type(self) -> type:
        return type(getattr(self.owner.value, self.name))

    def call(self, tx, args, kwargs) -> Variable:
        return self.owner.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, cg: "Emitter") -> None:
        cg(self.owner)
        cg.load_attr(self.name)


def folded(tx: "Translator", fn: Any, *values: Any, raw: bool = False) -> Any:
    """``fn(*values)`` now; an exception it raises is the traced program's own."""
    try:
        result = fn(*values)
    except Exception as error:
        raise observed(type(error), *error.args) from None
    return result if raw else tx.wrap_constant(result)


