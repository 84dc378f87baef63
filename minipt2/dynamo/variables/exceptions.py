"""Exceptions of the traced program: raised, caught and re-raised without leaving the trace.

Upstream: ``torch/_dynamo/variables/misc.py`` (ExceptionVariable) and ``torch/_dynamo/exc.py`` (ObservedException).
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import ObservedException, Variable, unsupported

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..translator import Translator


class ExceptionVariable(Variable):
    """An instance of the exception class ``cls`` with variables as ``args``; attributes live in the side-effect log."""

    def __init__(self, cls: type[BaseException], args: "list[Variable]", source: Any = None):
        super().__init__(source)
        self.cls, self.args = cls, list(args)
        self.context: Variable | None = None
        self.cause: Variable | None = None

    def python_type(self) -> type:
        return self.cls

    def children(self):
        return self.args

    def describe(self) -> str:
        return f"exception {self.cls.__name__}"

    __repr__ = describe

    def getattr(self, tx: "Translator", name: str) -> Variable:
        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None:
            return pending
        if name == "args":
            return tx.tuple(self.args)
        if name in ("__cause__", "__context__"):
            return (self.cause if name == "__cause__" else self.context) or tx.constant(None)
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else tx.constant(None)
        if name == "__class__":
            return tx.wrap_constant(self.cls)
        return super().getattr(tx, name)

    def setattr(self, tx: "Translator", name: str, value: Variable) -> None:
        if name == "__cause__":
            self.cause = value
        elif name != "__traceback__":
            tx.output.side_effects.store_attr(self, name, value)

    def call_method(self, tx, name, args, kwargs) -> Variable:
        if name == "__str__" and not args:
            if not self.args:
                return tx.constant("")
            if len(self.args) == 1 and self.args[0].is_constant():
                return tx.constant(str(self.cls(self.args[0].as_python_constant())))
        if name == "with_traceback":
            return self
        unsupported("MP207", f"method {name!r} of {self.describe()}")

    def truth(self, tx: "Translator") -> bool:
        return True

    def reconstruct(self, cg: "Emitter") -> None:
        cg.call_const(self.cls, self.args)


def observed(cls: type[BaseException], *args: Any) -> ObservedException:
    """The traced program raises ``cls(*args)`` (constants) here: ``raise observed(KeyError, "x")``."""
    from .constant import ConstantVariable

    values = [a if isinstance(a, Variable) else ConstantVariable(a) for a in args]
    return ObservedException(ExceptionVariable(cls, values))
