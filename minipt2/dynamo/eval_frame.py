"""The callback of the frame evaluation hook: which frames are compiled, kept, recompiled or left alone.

Called by ``api``: ``optimize``, ``disable``, ``reset``, ``is_compiling``. C keeps the entries (code and guard function) of every
code object and checks them before it asks this callback. Upstream: ``torch/_dynamo/eval_frame.py`` and ``convert_frame.py``.
"""
from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import types
import weakref
from types import CodeType
from typing import Any, Callable

import torch

from .. import trace
from ..config import config
from ..errors import FixedSize, Unsupported, UserFrame, warn
from . import hook
from .cache import CodeCache, Entry
from .dynamic import Dynamism
from .frame import Backend, Compiled, SkipFrame, compile_frame
from .guard_kinds import under_transform
from .guards import compile_guards, interrupts
from .modes import interrupts_later
from .own_frame import look_at_itself
from .resume import is_resume_code, run_resumed
from .variables.functions import CONSTANT_CALLS
from .skip import allow_code, disable_code, skipped_as_frame, skipped_with_callees

_lock = threading.RLock()
"""Held while a frame is compiled."""
_tracing = threading.local()
_callbacks: "weakref.WeakSet[FrameCallback]" = weakref.WeakSet()
_RESUMABLE = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# Functions whose frames torch's own machinery runs in the middle of things.
_NEVER_NAMES = frozenset({"__setattr__", "__del__", "__repr__", "<module>"})
RESUME_LIMIT_FACTOR = 4
"""Resume functions specialise on loop positions: they may have this many times more entries."""


def is_compiling() -> bool:
    """True while a frame is being traced in this thread (and True inside captured code)."""
    return getattr(_tracing, "depth", 0) > 0


CONSTANT_CALLS[is_compiling] = True


def is_function_code(code: CodeType) -> bool:
    """Code that runs from call to return on locals of its own: no generator, and no body of a class or a module."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_flags & _RESUMABLE


class CodeRecord:
    """What one callback knows of one code object (kept alive, so that its ``id`` stays its own).

    The entries' ``payload`` is the guard manager by which C knows them.
    """

    __slots__ = ("code", "cache", "dynamism", "left_alone", "__weakref__")

    def __init__(self, code: CodeType, dynamic: bool | None):
        self.code, self.left_alone, self.dynamism = code, False, Dynamism(dynamic)
        self.cache = CodeCache(config.recompile_limit * (RESUME_LIMIT_FACTOR if is_resume_code(code) else 1))


class FrameCallback:
    """Decides about frames for one ``optimize`` call; C tells entries of different callbacks apart by identity."""

    def __init__(self, backend: Backend, fullgraph: bool, dynamic: bool | None):
        self.backend, self.fullgraph, self.dynamic = backend, fullgraph, dynamic
        self.records: dict[int, CodeRecord] = {}
        self.broken: set[UserFrame] = set()
        """Lines at which an inlined function broke the graph of its caller: their own frame's break is the same one."""
        _callbacks.add(self)

    def __call__(self, frame: Any, cache_entry: Any, frame_state: Any) -> hook.Decision:
        if interrupts and threading.current_thread() is threading.main_thread():
            raise interrupts.pop()
        code = frame.f_code
        if skipped_with_callees(code):
            return hook.skip_code_below()
        if skipped_as_frame(code) or not is_function_code(code) or code.co_name in _NEVER_NAMES:
            return hook.skip_code()
        if (tracer := sys.gettrace()) is not None and getattr(tracer, "__code__", None) is code:
            return hook.skip_once()  # a debugger's or coverage tool's own function
        record = self.records.get(id(code))
        if record is None:
            record = self.records.setdefault(id(code), CodeRecord(code, self.dynamic))  # of two threads that meet here one makes it
        if record.left_alone or under_transform():
            return hook.skip_once()
        if cache_entry is not None and hook.has_others(code):  # torch.compile was here: its bookkeeping and ours do not mix
            return hook.skip_once()
        with _lock:
            return self._decide(frame, record)

    def _decide(self, frame: Any, record: CodeRecord) -> hook.Decision:
        _tracing.depth = getattr(_tracing, "depth", 0) + 1
        try:
            if threading.active_count() > 1 and record.cache.lookup(frame.f_locals) is not None:
                return hook.skip_once()  # since C looked, another thread has made it
            with trace.span(f"capture of {record.code.co_qualname}"):
                return self._compile(frame, record)
        finally:
            _tracing.depth -= 1

    def _compile(self, frame: Any, record: CodeRecord) -> hook.Decision:
        if record.cache.entries and not self._may_recompile(frame, record):
            return hook.skip_once()
        try:
            if (reason := look_at_itself(record.code, frame.f_globals)) is not None:
                raise SkipFrame(record.code.co_qualname, reason)
            with interrupts_later():
                compiled = compile_frame(frame, self.backend, self.fullgraph, self._broke, record.dynamism)
            return self._keep(frame, record, compiled)
        except SkipFrame as skip:
            if self.fullgraph:
                raise skip.reason from skip
            return self._leave_alone(record, skip.reason)
        except Exception as error:
            if config.raise_internal_errors or self.fullgraph or isinstance(error, FixedSize):
                raise
            return self._leave_alone(record, f"{type(error).__name__}: {error}")

    def _keep(self, frame: Any, record: CodeRecord, compiled: Compiled) -> hook.Decision:
        name = record.code.co_qualname
        if news := record.dynamism.news:
            trace.artifact("dynamic", name, (record.code, news))
            record.dynamism.news = []
        with trace.span("guards"):
            guard = compile_guards(compiled.guards, frame.f_globals, frame.f_locals)
        trace.artifact("guards", name, lambda: (record.code, guard, compiled.gm))
        failed = guard.explain(frame.f_locals) if not guard.check(frame.f_locals) else None
        if failed is not None:
            if config.raise_internal_errors:
                raise AssertionError(f"guards of {name} fail for the frame they were made from: {failed}")
            return self._leave_alone(record, f"unstable guard: {failed}")
        manager = hook.GuardManager(guard.check, name)
        entry = Entry(guard, compiled.code, manager)
        record.cache.add(entry)
        if compiled.assumptions is not None:
            compiled.assumptions.give_up = _giver_up(weakref.ref(record), weakref.ref(entry))
        guard.on_death(_dropper(weakref.ref(record), weakref.ref(manager)))
        return hook.run(hook.GuardedCode(compiled.code, manager, name))

    def _broke(self, reason: Unsupported, inlined: bool) -> None:
        """Tell of a graph break, once: met in an inlined function it is met again when that function runs as its own frame."""
        place = reason.frames[-1] if reason.frames else None
        if place in self.broken:
            return
        if inlined:
            self.broken.add(place)
        trace.count("breaks")
        trace.artifact("breaks", reason.code, reason)

    def _may_recompile(self, frame: Any, record: CodeRecord) -> bool:
        code, cache = record.code, record.cache
        reasons = cache.record_miss(frame.f_locals)
        if cache.full:
            record.left_alone = True
            warn(
                f"minipt2: {code.co_qualname} ({code.co_filename}:{code.co_firstlineno}) was compiled {len(cache.entries)} times, "
                f"config.recompile_limit; it runs eagerly from now on. The check that failed most: {cache.often()}; "
                f"this time: {next(iter(reasons.values()), '')}"
            )
            return False
        trace.count("recompiles")
        trace.artifact("recompiles", code.co_qualname, lambda: (code, reasons))
        return True

    def _leave_alone(self, record: CodeRecord, reason: Unsupported | str) -> hook.Decision:
        """Run the frame eagerly from now on; a reason that is no ``Unsupported`` is a fault of ours, and told aloud."""
        record.left_alone = True
        name = record.code.co_qualname
        trace.count("skipped_frames")
        trace.artifact("skipped", name, lambda: (record.code, reason))
        if not isinstance(reason, Unsupported):
            warn(f"minipt2 could not compile {name} and runs it eagerly: {reason} (config.raise_internal_errors = True raises it, with its traceback)")
        return hook.skip_once()

    def drop(self) -> None:
        """Forget all entries, in C too."""
        for record in self.records.values():
            for entry in record.cache:
                entry.payload.invalidate()
        self.records.clear()
        self.broken.clear()


def _giver_up(record: "weakref.ref[CodeRecord]", entry: "weakref.ref[Entry]") -> Callable[[], None]:
    """Drops an entry whose assumptions keep failing; its function is compiled without any from now on."""

    def give_up() -> None:
        owner, failing = record(), entry()
        if owner is None or failing is None:
            return
        owner.dynamism.assumes = False
        owner.cache.remove(failing)
        failing.payload.invalidate()

    return give_up


def _dropper(record: "weakref.ref[CodeRecord]", manager: "weakref.ref[hook.GuardManager]") -> Callable[[], None]:
    """Drops one entry when an object it was made for dies."""

    def drop(at_exit: Callable[[], bool] = sys.is_finalizing) -> None:
        if at_exit():  # our modules are half gone
            return
        owner, dead = record(), manager()
        if owner is None or dead is None:
            return
        owner.cache.drop_dead()
        dead.invalidate()

    return drop


def optimize(fn: Callable, backend: Backend, *, fullgraph: bool = False, dynamic: bool | None = None) -> Callable:
    """A callable that runs ``fn`` (function, method or module) with its frames captured and compiled by ``backend``.

    ``fullgraph``: raise ``Unsupported`` instead of breaking the graph. Entries die with the returned callable.
    """
    callback = FrameCallback(backend, fullgraph, dynamic)
    set_callback = hook.set_callback
    inner, original = _entry_point(fn)
    twin = getattr(inner, "__func__", inner)

    @functools.wraps(fn if not isinstance(fn, torch.nn.Module) else type(fn).forward)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        before = set_callback(None)
        if is_compiling() or _seen_by_another_tracer():
            set_callback(before)
            return fn(*args, **kwargs)
        if original is not None and _outdated(twin, original):
            _renew(twin, original)
        try:
            set_callback(callback)
            return inner(*args, **kwargs)
        except Unsupported as error:  # its message names the user's lines; ours would bury them
            if config.raise_internal_errors:
                raise
            raise error.with_traceback(None) from error.__cause__
        finally:
            set_callback(None)
            set_callback(before)

    compiled._minipt2_callback = callback
    compiled._minipt2_inline = fn
    weakref.finalize(compiled, FrameCallback.drop, callback).atexit = False
    hook.never_capture(compiled.__code__)
    return compiled


_tracing_state, _dispatch_mode, _PROXY = torch._C._get_tracing_state, torch._C._get_dispatch_mode, torch._C._TorchDispatchModeKey.PROXY


def _seen_by_another_tracer() -> bool:
    """Whether ``torch.jit.trace`` or ``make_fx`` records what runs: they see operators, not our kernels, so the original must run."""
    return _tracing_state() is not None or _dispatch_mode(_PROXY) is not None


def _entry_point(fn: Callable) -> tuple[Callable, types.FunctionType | None]:
    """What to call, with a code object of its own, and the user's function that it copies (None if there is none).

    It is ``fn`` itself, if its frame may be captured; else a function that calls it, so that it gets inlined there.
    """
    function = inspect.unwrap(fn, stop=lambda f: hasattr(f, "__code__")) if not isinstance(fn, torch.nn.Module) else fn
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if isinstance(code, types.CodeType) and not skipped_as_frame(code):
        return _with_own_code(fn), getattr(fn, "__func__", fn) if isinstance(fn, _FUNCTIONS) else None
    return _caller(fn), None


_FUNCTIONS = (types.FunctionType, types.MethodType)


def _outdated(twin: types.FunctionType, original: types.FunctionType) -> bool:
    """Whether the user has given ``original`` other code or defaults since ``twin`` was made of it."""
    return (twin.__defaults__ is not original.__defaults__ or twin.__kwdefaults__ is not original.__kwdefaults__
            or getattr(twin, "_minipt2_code", None) is not original.__code__)


def _renew(twin: types.FunctionType, original: types.FunctionType) -> None:
    twin.__code__, twin._minipt2_code = original.__code__.replace(), original.__code__
    twin.__defaults__, twin.__kwdefaults__ = original.__defaults__, original.__kwdefaults__


def _with_own_code(fn: Callable) -> Callable:
    """A copy of ``fn`` (function or bound method) with a code object of its own.

    The interpreter keeps compiled entries per code object: those of two compiled models, or of upstream's compiler used on the same
    function, must not lie in one list.
    """
    if isinstance(fn, types.MethodType):
        return types.MethodType(_with_own_code(fn.__func__), fn.__self__)
    if not isinstance(fn, types.FunctionType):
        return fn
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, None, fn.__closure__)
    copy.__qualname__, copy.__module__ = fn.__qualname__, fn.__module__
    copy.__dict__.update(fn.__dict__)
    _renew(copy, fn)
    return copy


def _caller(fn: Callable) -> Callable:
    """A function that calls ``fn``, whose code is its own and bears the name and place of what it calls."""
    call = lambda *args, **kwargs: fn(*args, **kwargs)  # noqa: E731 (one line, so that every part of it lies on the line named)
    call.__code__ = call.__code__.replace(**_place(fn))
    allow_code(call.__code__)
    return call


def _place(fn: Callable) -> dict[str, Any]:
    """Fields of a code object that say where ``fn`` was written, as far as it is Python."""
    function = inspect.unwrap(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    if not hasattr(function, "__code__") and not inspect.isroutine(function):
        function = inspect.unwrap(type(function).__call__)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return dict(co_qualname=getattr(fn, "__qualname__", type(fn).__qualname__))
    return {field: getattr(code, field) for field in ("co_name", "co_qualname", "co_filename", "co_firstlineno")}


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


def _renew_lock() -> None:
    """In the child of a fork: the thread that may have held the lock is not there."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)
hook.never_capture(run_resumed.__code__)
