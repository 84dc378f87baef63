"""Calls that wait until the graph has run: log records and warnings, in program order.

Upstream: ``torch/_dynamo/variables/misc.py`` (DebuggingVariable, LoggingLoggerVariable).
"""
from __future__ import annotations

import logging
import warnings
from typing import Any, Callable

from ..hook import set_callback
from .base import Variable, unsupported
from .containers import BoundMethodVariable, const, constants, fold, none
from .exceptions import ExceptionVariable
from .numbers import NumberVariable


class EffectVariable(Variable):
    """A call without a result that waits until the graph has run: a log record, a warning. Replayed in program order."""

    def __init__(self, fn: Any, args: list[Variable], kwargs: dict[str, Variable]):
        super().__init__()
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.source = _NO_SOURCE

    def children(self):
        return (*self.args, *self.kwargs.values())

    def emit_mutation(self, cg) -> None:
        cg.call_const(call_uncaptured, [const(self.fn), *self.args], self.kwargs)
        cg.pop()


def call_uncaptured(fn: Any, *args: Any, **kwargs: Any) -> None:
    """Run after a graph: handlers of logs and warnings are the user's, but no part of what is compiled."""
    before = set_callback(None)
    try:
        fn(*args, **kwargs)
    finally:
        set_callback(before)


class _NoSource:
    """Marks an effect as belonging to no object: pushing it pushes None."""

    base = None

    def name(self) -> str:
        return "None"

    def load(self, cg) -> None:
        cg.load_const(None)


_NO_SOURCE: Any = _NoSource()


def defer(tx, fn: Callable, args: list[Variable], kwargs: dict[str, Variable] | None = None) -> Variable:
    """Call ``fn`` after the graph; its arguments must be known now or be rebuilt from what the graph gives."""
    effect = EffectVariable(fn, args, kwargs or {})
    tx.output.side_effects.track_existing(effect, effect)
    tx.output.side_effects.mutate(effect)
    return none()


class LoggerVariable(Variable):
    """``logging.Logger``: records of constants are emitted after the graph; records of a disabled level vanish."""

    LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50, "fatal": 50, "exception": 40,
              "warning_once": 30, "info_once": 20, "warning_advice": 30}

    def __init__(self, logger: logging.Logger, source=None):
        super().__init__(source)
        self.real = logger

    def python_type(self) -> type:
        return type(self.real)

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name):
        if callable(getattr(self.real, name, None)):
            return BoundMethodVariable(self, name)
        return const(getattr(self.real, name)) if name in ("name", "level", "disabled") else super().getattr(tx, name)

    def call_method(self, tx, name, args, kwargs):
        if name in ("isEnabledFor", "getEffectiveLevel", "hasHandlers") and (known := constants(*args)) is not None:
            return fold(getattr(self.real, name), *known)
        if name in self.LEVELS and not self.real.isEnabledFor(self.LEVELS[name]):
            return none()
        known_later = all(isinstance(v, NumberVariable) or v.is_constant() for v in (*args, *kwargs.values()))
        if name not in self.LEVELS and name != "log" or not known_later:
            unsupported("MP302", f"logging call {name}()", "log outside the compiled code")
        return defer(tx, getattr(self.real, name), args, kwargs)

    def reconstruct(self, cg) -> None:
        cg.load_const(self.real)


def warn(tx, message: Variable, category: Variable | None = None, stacklevel: Variable | None = None, source=None,
         **kwargs: Variable) -> Variable:
    """``warnings.warn`` of a known message, given after the graph, for the user's line."""
    if isinstance(message, ExceptionVariable):
        category, message = const(message.cls), message.args[0] if message.args else const("")
    known = constants(message, *([category] if category is not None else []))
    if known is None:
        unsupported("MP302", "warnings.warn() with a message not known while tracing", "warn outside the compiled code")
    level = 1 if stacklevel is None else max(stacklevel.as_python_constant(), 1)
    frames = tx.frames()
    at = frames[-min(level, len(frames))]
    return defer(tx, warnings.warn_explicit, [
        const(known[0]), const(known[1] if len(known) > 1 and known[1] else UserWarning), const(at.file), const(at.line)])
