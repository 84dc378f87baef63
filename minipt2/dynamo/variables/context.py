"""Context managers that the interpreter enters itself: grad mode, autocast, and those that do nothing while compiled.

Upstream: ``torch/_dynamo/variables/ctx_manager.py``.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable

import torch

from ..source import AttrSource
from .base import Variable, unsupported
from .containers import BoundMethodVariable, const, constants, none


class ContextVariable(Variable):
    """A manager before it is entered; ``enter``/``exit`` may nest, ``reconstruct`` builds it un-entered."""

    cls: type = object

    def __init__(self, source=None):
        super().__init__(source)
        self.saved: list[Any] = []

    def python_type(self) -> type:
        return self.cls

    def truth(self, tx) -> bool:
        return True

    def enter_context(self, tx):
        from .functions import ContextExitVariable

        before = self.grad_before()
        value = self.enter(tx)
        return ContextExitVariable(self, before), value if value is not None else none()

    def grad_before(self) -> bool:
        """The grad mode to which leaving this goes back."""
        return torch.is_grad_enabled()

    def enter(self, tx) -> Variable | None:
        raise NotImplementedError

    def exit(self, tx) -> None:
        raise NotImplementedError

    def getattr(self, tx, name):
        if name in ("__enter__", "__exit__", "clone", "__call__", "_recreate_cm"):
            return BoundMethodVariable(self, name)
        return super().getattr(tx, name)

    def call_method(self, tx, name, args, kwargs):
        if name in ("clone", "_recreate_cm"):
            return self.again()
        if name == "__enter__":
            return self.enter(tx) or none()
        if name == "__exit__":
            self.exit(tx)
            return none()
        if name == "__call__":
            return self.call(tx, args, kwargs)
        return super().call_method(tx, name, args, kwargs)

    def again(self) -> "ContextVariable":
        return self

    def call(self, tx, args, kwargs):
        """Used as a decorator: the function runs inside a fresh context on every call."""
        return DecoratedVariable(self, args[0])


class DecoratedVariable(Variable):
    """A function made while tracing by using a context manager as its decorator."""

    def __init__(self, context: ContextVariable, fn: Variable, source=None):
        super().__init__(source)
        self.context, self.fn = context, fn

    def children(self):
        return (self.context, self.fn)

    def truth(self, tx) -> bool:
        return True

    def getattr(self, tx, name):
        return self.fn.getattr(tx, name)

    def call(self, tx, args, kwargs):
        self.context.enter(tx)
        try:
            return self.fn.call(tx, args, kwargs)
        finally:
            self.context.exit(tx)

    def reconstruct(self, cg) -> None:
        cg.call_value(self.context, [self.fn])


class GradModeVariable(ContextVariable):
    """``no_grad``, ``enable_grad``, and ``set_grad_enabled`` (which acts when it is made, not when it is entered)."""

    def __init__(self, cls: type, mode: bool, before: bool | None = None, source=None):
        super().__init__(source)
        self.cls, self.mode, self.before = cls, mode, before

    def grad_before(self) -> bool:
        return super().grad_before() if self.before is None else self.before

    def enter(self, tx):
        self.saved.append(self.grad_before())
        tx.output.set_grad(self.mode)

    def exit(self, tx):
        tx.output.set_grad(self.saved.pop())

    def again(self):
        return GradModeVariable(self.cls, self.mode, None)

    def reconstruct(self, cg) -> None:
        if self.cls is torch.set_grad_enabled:
            cg.call_const(grad_mode_context, [const(self.mode), const(self.before)])
        else:
            cg.call_const(self.cls, [])


def grad_mode_context(mode: bool, before: bool | None):
    """Run between graphs: a ``set_grad_enabled`` that goes back to ``before`` and hasn't acted yet."""
    now = torch.is_grad_enabled()
    torch._C._set_grad_enabled(now if before is None else before)
    made = torch.set_grad_enabled(mode)
    torch._C._set_grad_enabled(now)
    return made


class AutocastVariable(ContextVariable):
    """``torch.autocast`` and its device-specific forms."""

    cls = torch.autocast

    def __init__(self, device: str, dtype: torch.dtype | None, enabled: bool, cache_enabled: bool | None, source=None):
        super().__init__(source)
        self.arguments = (device, dtype, enabled, cache_enabled)

    def enter(self, tx):
        self.saved.append(tx.output.enter_autocast(*self.arguments))

    def exit(self, tx):
        tx.output.exit_autocast(self.saved.pop())

    def again(self):
        return AutocastVariable(*self.arguments)

    def getattr(self, tx, name):
        fields = {"device": 0, "fast_dtype": 1, "_enabled": 2}
        if name in fields and self.arguments[fields[name]] is not None:
            return const(self.arguments[fields[name]])
        return super().getattr(tx, name)

    def reconstruct(self, cg) -> None:
        cg.call_const(torch.autocast, [const(a) for a in self.arguments])


class NullContextVariable(ContextVariable):
    """``contextlib.nullcontext`` and markers (``record_function``) that mean nothing inside a graph."""

    cls = contextlib.nullcontext

    def __init__(self, value: Variable | None = None, source=None):
        super().__init__(source)
        self.value = value

    def children(self):
        return (self.value,) if self.value is not None else ()

    def enter(self, tx):
        return self.value

    def exit(self, tx):
        return None

    def reconstruct(self, cg) -> None:
        cg.call_const(contextlib.nullcontext, [self.value or none()])


# -- making them -------------------------------------------------------------------------------------------------------
def _no_grad(tx, fn: Variable | None = None):
    return GradModeVariable(torch.no_grad, False) if fn is None else DecoratedVariable(
        GradModeVariable(torch.no_grad, False), fn)


def _enable_grad(tx, fn: Variable | None = None):
    return GradModeVariable(torch.enable_grad, True) if fn is None else DecoratedVariable(
        GradModeVariable(torch.enable_grad, True), fn)


def _set_grad_enabled(tx, mode: Variable):
    value = bool(mode.as_python_constant())
    var = GradModeVariable(torch.set_grad_enabled, value, torch.is_grad_enabled())
    tx.output.set_grad(value)
    return var


def _autocast(tx, device_type: Variable, dtype=None, enabled=None, cache_enabled=None):
    known = constants(*(v or none() for v in (device_type, dtype, enabled, cache_enabled)))
    if known is None:
        unsupported("MP315", "autocast with arguments not known while tracing")
    device, kind, on, cache = known
    return AutocastVariable(device, kind, True if on is None else bool(on), cache)


def _device_autocast(device: str) -> Callable:
    def make(tx, enabled=None, dtype=None, cache_enabled=None):
        default = {"cuda": torch.float16, "cpu": torch.bfloat16}[device]
        return _autocast(tx, const(device), dtype or const(default), enabled, cache_enabled)

    return make


def _null(tx, enter_result=None):
    return NullContextVariable(enter_result)


def _marker(tx, *args, **kwargs):
    return NullContextVariable()


def _breaks(name: str) -> Callable:
    def refuse(tx, *args, **kwargs):
        unsupported("MP315", f"the context manager {name}", f"use {name} outside the compiled code")

    return refuse


CONTEXT_CLASSES: dict[Any, Callable[..., Variable]] = {
    torch.no_grad: _no_grad, torch.enable_grad: _enable_grad, torch.set_grad_enabled: _set_grad_enabled,
    torch.autocast: _autocast, torch.cuda.amp.autocast: _device_autocast("cuda"),
    torch.cpu.amp.autocast: _device_autocast("cpu"), contextlib.nullcontext: _null,
    torch.profiler.record_function: _marker, torch.autograd.profiler.record_function: _marker,
    torch.inference_mode: _breaks("torch.inference_mode"), torch.autograd.profiler.profile: _breaks("profile"),
    torch.profiler.profile: _breaks("profile"), torch.autograd.detect_anomaly: _breaks("detect_anomaly"),
    torch.autograd.set_detect_anomaly: _breaks("set_detect_anomaly"),
}  # fmt: skip


AUTOCAST_CLASSES = (torch.autocast, torch.cuda.amp.autocast, torch.cpu.amp.autocast)


def wrap_autocast(tx, value: Any, source) -> Variable:
    """An existing instance: the one that a function was decorated with, or that an object keeps."""
    fields = ("device", "fast_dtype", "_enabled", "_cache_enabled")
    if source is not None:
        tx.output.guard(source, "TYPE", type(value))
        for name in fields:
            tx.output.guard(AttrSource(source, name), "CONST", getattr(value, name))
    var = AutocastVariable(*(getattr(value, name) for name in fields), source)
    return tx.output.side_effects.track_existing(var, value)
