"""The one file that speaks to CPython's frame evaluation hook through torch's C half of it (PEP 523).

Comes in: a callback ``(frame, cache_entry, frame_state) -> Decision``. Goes out: code objects with a guard function, kept
by C in a list per code object and checked there before the callback is asked. Works on torch 2.11 to 2.14.
Upstream: ``torch/csrc/dynamo/eval_frame.c``, ``torch/_dynamo/types.py``, ``torch/_dynamo/eval_frame.py``.
"""
from __future__ import annotations

from types import CodeType
from typing import Any, Callable

from torch._C._dynamo import eval_frame as _c
from torch._C._dynamo.guards import RootGuardManager

_Action, _Strategy = _c._FrameAction, _c._FrameExecStrategy

set_callback: Callable[[Any], Any] = _c.set_eval_frame
"""Install a callback for this thread (None: none; False: run cached code only); returns the one before."""


class GuardManager:
    """What C keeps beside the code of an entry. C reads and writes exactly these attributes; a missing one aborts."""

    id_matched_objs = {"": lambda: GuardManager}
    """Upstream's compiler, run on the same function, looks here whether the entry was made for the same objects: never for its own."""

    def __init__(self, check: Callable[[dict], bool], text: str):
        self.root = RootGuardManager()
        self.root.add_lambda_guard(check, [text], None)
        self.diff_guard_root = None
        self.cache_entry = None  # set by C
        self.extra_state = None  # set by C

    def collect_diff_guard_sources(self) -> set[str]:
        """Asked by upstream's compiler of every entry of a function that it compiles too, as is the next."""
        return set()

    def populate_diff_guard_manager(self) -> None:
        """There is nothing to rebuild: ``root`` holds all guards."""

    def invalidate(self) -> None:
        """Drop the entry this manager belongs to, so that its code and what it holds can be freed."""
        if self.cache_entry is not None and self.extra_state is not None:
            self.extra_state.invalidate(self.cache_entry, GuardManager(_never, "entry dropped"))


def _never(f_locals: dict) -> bool:
    return False


def has_others(code: CodeType) -> bool:
    """Whether upstream's compiler, too, keeps entries for ``code``."""
    return any(not isinstance(entry.guard_manager, GuardManager) for entry in _c._debug_get_cache_entry_list(code))


class GuardedCode:
    """Code to run instead of the frame's whenever ``manager``'s guards hold."""

    def __init__(self, code: CodeType, manager: GuardManager, name: str):
        self.code, self.guard_manager, self.compile_id, self.trace_annotation = code, manager, name, name


class Decision:
    """A callback's answer (C reads it by attribute; upstream's ``ConvertFrameReturn``)."""

    def __init__(self, action: Any, recursive: Any, guarded: GuardedCode | None, apply_to_code: bool):
        self.frame_exec_strategy = _Strategy(action, recursive)
        self.guarded_code, self.apply_to_code, self.skip_reason = guarded, apply_to_code, None


def run(guarded: GuardedCode) -> Decision:
    """Run this code now, and later whenever its guards hold."""
    return Decision(_Action.DEFAULT, _Action.DEFAULT, guarded, False)


def skip_code() -> Decision:
    """Run this frame as it is, now and always; frames it calls are still looked at."""
    return Decision(_Action.SKIP, _Action.DEFAULT, None, True)


def skip_code_below() -> Decision:
    """Run this frame as it is, now and always, and what it calls with it."""
    return Decision(_Action.SKIP, _Action.SKIP, None, True)


def skip_once() -> Decision:
    """Run this frame as it is, this time; entries already made stay in use."""
    return Decision(_Action.SKIP, _Action.DEFAULT, None, False)


def never_capture(code: CodeType) -> None:
    """Frames of ``code`` run as they are (frames they call are looked at), without asking the callback."""
    _c.set_code_exec_strategy(code, _Strategy(_Action.SKIP, _Action.DEFAULT))


def never_capture_below(code: CodeType) -> None:
    """Neither frames of ``code`` nor what they call are looked at: compiled graphs run here."""
    _c.set_code_exec_strategy(code, _Strategy(_Action.SKIP, _Action.SKIP))


def forget(code: CodeType) -> None:
    """Drop every entry and decision kept for ``code``."""
    _c.reset_code(code)
