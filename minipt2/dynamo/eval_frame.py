"""The callback of the frame evaluation hook: which frames are compiled, kept, recompiled or left alone.

Called by ``api``: ``optimize``, ``disable``, ``reset``, ``is_compiling``. C keeps the entries (code and guard function) of every
code object and checks them before it asks this callback. Upstream: ``torch/_dynamo/eval_frame.py`` and ``convert_frame.py``.
"""
from __future__ import annotations

import functools
import inspect
import threading
import warnings
import weakref
from types import CodeType
from typing import Any, Callable

import torch

from .. import trace
from ..config import config
from ..errors import Unsupported
from . import hook
from .frame import Backend, Compiled, SkipFrame, compile_frame
from .guards import compile_guards
from .resume import is_resume_code, run_resumed
from .skip import allow_code, disable_code, skipped_as_frame

_lock = threading.RLock()
_tracing = threading.local()
_callbacks: "weakref.WeakSet[FrameCallback]" = weakref.WeakSet()
_NOT_FRAMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# Functions whose frames torch's own machinery runs in the middle of things.
_NEVER_NAMES = frozenset({"__setattr__", "__del__", "__repr__", "<module>"})
RESUME_LIMIT_FACTOR = 4
"""Resume functions specialise on loop positions: they may have this many times more entries."""


def is_compiling() -> bool:
    """True while a frame is being traced in this thread (and True inside captured code)."""
    return getattr(_tracing, "depth", 0) > 0


class Entry:
    """One compiled version of a code object: its guard function, kept by C too, and how to drop it."""

    __slots__ = ("guard", "manager")

    def __init__(self, guard: Any, manager: hook.GuardManager):
        self.guard, self.manager = guard, manager


class FrameCallback:
    """Decides about frames for one ``optimize`` call; C tells entries of different callbacks apart by identity."""

    def __init__(self, backend: Backend, fullgraph: bool, dynamic: bool | None):
        self.backend, self.fullgraph, self.dynamic = backend, fullgraph, dynamic
        self.entries: dict[CodeType, list[Entry]] = {}
        self.left_alone: set[CodeType] = set()
        _callbacks.add(self)

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> hook.Decision:
        code = frame.f_code
        if skipped_as_frame(code) or code.co_flags & _NOT_FRAMES or code.co_name in _NEVER_NAMES:
            return hook.skip_code()
        if code in self.left_alone:
            return hook.skip_once()
        with _lock:
            _tracing.depth = getattr(_tracing, "depth", 0) + 1
            try:
                return self._compile(frame, code)
            finally:
                _tracing.depth -= 1

    def _compile(self, frame: Any, code: CodeType) -> hook.Decision:
        entries = self.entries.setdefault(code, [])
        if entries and not self._may_recompile(frame, code, entries):
            return hook.skip_once()
        try:
            compiled = compile_frame(frame, self.backend, self.fullgraph)
        except SkipFrame as skip:
            if self.fullgraph:
                raise Unsupported("MP900", f"{code.co_qualname} cannot be captured: {skip}") from skip
            return self._leave_alone(code, str(skip))
        except Unsupported:
            if self.fullgraph:
                raise
            raise
        except Exception as error:
            if config.raise_internal_errors or self.fullgraph:
                raise
            return self._leave_alone(code, f"{type(error).__name__}: {error}", internal=True)
        return self._keep(frame, code, compiled, entries)

    def _keep(self, frame: Any, code: CodeType, compiled: Compiled, entries: list[Entry]) -> hook.Decision:
        guard = compile_guards(compiled.guards, frame.f_globals)
        manager = hook.GuardManager(guard, code.co_qualname)
        entries.append(Entry(guard, manager))
        trace.artifact("guards", code.co_qualname, lambda: (code, compiled.guards))
        if not guard(frame.f_locals):
            failed = guard.explain(frame.f_locals)
            if config.raise_internal_errors:
                raise AssertionError(f"guards of {code.co_qualname} fail for the frame they were made from: {failed}")
            return self._leave_alone(code, f"unstable guard: {failed}", internal=True)
        return hook.run(hook.GuardedCode(compiled.code, manager, code.co_qualname))

    def _may_recompile(self, frame: Any, code: CodeType, entries: list[Entry]) -> bool:
        reasons = [entry.guard.explain(frame.f_locals) for entry in entries]
        limit = config.recompile_limit * (RESUME_LIMIT_FACTOR if is_resume_code(code) else 1)
        if len(entries) >= limit:
            self.left_alone.add(code)
            warnings.warn(
                f"minipt2: {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) was compiled {len(entries)} times, "
                f"config.recompile_limit; it runs eagerly from now on. The last check that failed: {reasons[-1]}",
                stacklevel=3,
            )
            return False
        trace.count("recompiles")
        trace.artifact("recompiles", code.co_qualname, lambda: (code, reasons))
        return True

    def _leave_alone(self, code: CodeType, reason: str, internal: bool = False) -> hook.Decision:
        self.left_alone.add(code)
        trace.count("skipped_frames")
        trace.artifact("skipped", code.co_qualname, lambda: (code, reason))
        if internal:
            warnings.warn(f"minipt2 could not compile {code.co_qualname} and runs it eagerly: {reason}", stacklevel=4)
        return hook.skip_once()

    def drop(self) -> None:
        """Forget all entries, in C too."""
        for entries in self.entries.values():
            for entry in entries:
                entry.manager.invalidate()
        self.entries.clear()
        self.left_alone.clear()


def optimize(fn: Callable, backend: Backend, *, fullgraph: bool = False, dynamic: bool | None = None) -> Callable:
    """A callable that runs ``fn`` (function, method or module) with its frames captured and compiled by ``backend``.

    ``fullgraph``: raise ``Unsupported`` instead of breaking the graph. Entries die with the returned callable.
    """
    callback = FrameCallback(backend, fullgraph, dynamic)
    set_callback = hook.set_callback
    inner = _entry_point(fn)

    @functools.wraps(fn if not isinstance(fn, torch.nn.Module) else type(fn).forward)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        before = set_callback(None)
        if is_compiling():
            set_callback(before)
            return fn(*args, **kwargs)
        try:
            set_callback(callback)
            return inner(*args, **kwargs)
        finally:
            set_callback(None)
            set_callback(before)

    compiled._minipt2_callback = callback
    compiled._minipt2_inline = fn
    weakref.finalize(compiled, FrameCallback.drop, callback)
    hook.never_capture(compiled.__code__)
    return compiled


def _entry_point(fn: Callable) -> Callable:
    """``fn`` itself, if its frame may be captured; else a function that calls it, so that it gets inlined there."""
    function = inspect.unwrap(fn, stop=lambda f: hasattr(f, "__code__")) if not isinstance(fn, torch.nn.Module) else fn
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None and not skipped_as_frame(code):
        return fn
    return _caller(fn)


def _caller(fn: Callable) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call


allow_code(_caller(len).__code__)


def disable(fn: Callable) -> Callable:
    """``fn`` with nothing below it captured."""
    set_callback = hook.set_callback

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        before = set_callback(None)
        try:
            return fn(*args, **kwargs)
        finally:
            set_callback(before)

    disabled._minipt2_disable = True
    disable_code(disabled.__code__)
    hook.never_capture(disabled.__code__)
    return disabled


def reset() -> None:
    """Drop everything compiled so far."""
    with _lock:
        for callback in list(_callbacks):
            callback.drop()


hook.never_capture(run_resumed.__code__)
