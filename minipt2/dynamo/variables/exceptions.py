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
        self.suppress_context = False

    def python_type(self) -> type:
        return self.cls

    def children(self):
        return (*self.args, *(v for v in (self.cause, self.context) if v is not None))

    def describe(self) -> str:
        return f"exception {self.cls.__name__}"

    __repr__ = describe

    def getattr(self, tx: "Translator", name: str) -> Variable:
        from .classes import C_ATTRIBUTES, MISSING, class_attribute, lookup

        pending = tx.output.side_effects.load_attr(self, name)
        if pending is not None and pending is not tx.output.side_effects.DELETED:
            return pending
        if name == "args":
            return tx.tuple(self.args)
        if name in ("__cause__", "__context__"):
            return (self.cause if name == "__cause__" else self.context) or tx.constant(None)
        if name == "__suppress_context__":
            return tx.constant(self.suppress_context)
        if name == "__class__":
            return tx.wrap_constant(self.cls)
        raw = lookup(self.cls, name)
        if name in ("__dict__", "__traceback__") or (raw is MISSING and lookup(self.cls, "__getattr__") is not MISSING):
            return super().getattr(tx, name)
        if raw is MISSING:
            raise observed(AttributeError, f"{self.cls.__name__!r} object has no attribute {name!r}")
        if isinstance(raw, C_ATTRIBUTES):
            return self._field(tx, name)
        return class_attribute(tx, self, self.cls, name, raw)

    def _like(self) -> BaseException | None:
        """An exception of the built-in class beneath with the same arguments, where those are constants."""
        from .containers import constants

        known = constants(*self.args)
        return None if known is None else built_in(self.cls)(*known)

    def _field(self, tx: "Translator", name: str) -> Variable:
        """What a built-in class computes of the arguments: ``StopIteration.value``, ``OSError.errno``."""
        if name == "value" and issubclass(self.cls, StopIteration):
            return self.args[0] if self.args else tx.constant(None)
        like = self._like()
        if like is None:
            return super().getattr(tx, name)
        return tx.wrap_constant(getattr(like, name))

    def setattr(self, tx: "Translator", name: str, value: Variable) -> None:
        if name == "__cause__":
            self.cause, self.suppress_context = value, True
        elif name == "__context__":
            self.context = value
        elif name == "__suppress_context__":
            self.suppress_context = value.truth(tx)
        elif name == "args":
            self.args = value.iterate(tx)
        elif name != "__traceback__":
            return tx.output.side_effects.store_attr(self, name, value)
        tx.output.side_effects.touch()

    def call_method(self, tx, name, args, kwargs) -> Variable:
        """Methods of the built-in class (``getattr`` finds those of the user's)."""
        if name == "__init__" and not kwargs:
            self.args = list(args)
            tx.output.side_effects.touch()
            return tx.constant(None)
        if name in ("__str__", "__repr__") and not args:
            return self._text(tx, name)
        if name == "with_traceback":
            return self
        if name == "add_note":
            if not self.hasattr(tx, "__notes__"):
                self.setattr(tx, "__notes__", tx.list([]))
            return self.getattr(tx, "__notes__").call_method(tx, "append", args, {})
        unsupported("MP207", f"method {name!r} of {self.describe()}")

    def _text(self, tx: "Translator", name: str) -> Variable:
        from .operators import text

        like = self._like()
        if like is not None and name == "__str__":
            return tx.constant(str(like))
        if like is not None and type(like).__repr__ is BaseException.__repr__:
            return tx.constant(repr(like).replace(type(like).__name__, self.cls.__name__, 1))
        if len(self.args) == 1 and name == "__str__" and built_in(self.cls).__str__ is BaseException.__str__:
            return text(tx, self.args[0])
        unsupported("MP215", f"text of {self.describe()}")

    def truth(self, tx: "Translator") -> bool:
        return True

    def reconstruct(self, cg: "Emitter") -> None:
        from .builder import from_constant
        from .classes import user_defined

        if not (self.context or self.suppress_context or user_defined(self.cls, "__init__")):
            return cg.call_const(self.cls, self.args)
        none = from_constant(None)
        facts = [from_constant(self.cls), self.cause or none, self.context or none, from_constant(self.suppress_context)]
        cg.call_const(rebuilt, [*facts, *self.args])


def rebuilt(cls: type[BaseException], cause: Any, context: Any, suppress: bool, *args: Any) -> BaseException:
    """An exception as the traced program left it; the user's ``__init__`` was traced and does not run again."""
    error = cls.__new__(cls, *args)
    built_in(cls).__init__(error, *args)
    error.__cause__, error.__context__, error.__suppress_context__ = cause, context, suppress
    return error


def built_in(cls: type[BaseException]) -> type[BaseException]:
    """The nearest base that the interpreter defines."""
    return next(base for base in cls.__mro__ if base.__module__ == "builtins")


def observed(cls: type[BaseException], *args: Any) -> ObservedException:
    """The traced program raises ``cls(*args)`` (constants) here: ``raise observed(KeyError, "x")``."""
    from .constant import ConstantVariable

    values = [a if isinstance(a, Variable) else ConstantVariable(a) for a in args]
    return ObservedException(ExceptionVariable(cls, values))
