"""Global modes of torch as a frame finds them, so that tracing leaves no trace of its own.

Upstream: ``torch/_dynamo/utils.py`` (``preserve_rng_state``) and ``convert_frame.py`` (``preserve_global_state``).
"""
from __future__ import annotations

import contextlib
import signal
import threading
import logging
from typing import Any, Iterator

import torch

AUTOCAST_DEVICES = ("cpu", "cuda")
_FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")


class GlobalState:
    """Grad mode at the frame's start, and the autocast contexts entered (as graph nodes) since."""

    def __init__(self) -> None:
        self.grad = torch.is_grad_enabled()
        self.autocasts: list[Any] = []


@contextlib.contextmanager
def preserved() -> Iterator[None]:
    """Put grad mode, autocast, the default dtype and torch's CPU random state back as they were.

    Meanwhile hooks on saved tensors (checkpointing, offloading) are off: what is traced is not theirs. Nor does torch log what fails
    on fake tensors: where that is the user's mistake, eager raises it at the user's line.
    """
    grad, dtype, rng = torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_rng_state()
    nesting = _nesting()
    autocast = [(d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in AUTOCAST_DEVICES]
    cache = torch.is_autocast_cache_enabled()
    hooks = _take_saved_tensor_hooks()
    silent, _FAKE_LOG.disabled = _FAKE_LOG.disabled, True
    try:
        yield
    finally:
        _FAKE_LOG.disabled = silent
        for pair in reversed(hooks):
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)
        torch._C._set_grad_enabled(grad)
        torch.set_rng_state(rng)
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
        for device, enabled, kind in autocast:
            if torch.is_autocast_enabled(device) != enabled:
                torch.set_autocast_enabled(device, enabled)
            if torch.get_autocast_dtype(device) != kind:
                torch.set_autocast_dtype(device, kind)
        torch.set_autocast_cache_enabled(cache)
        while _nesting() > nesting:
            torch.autocast_decrement_nesting()


@contextlib.contextmanager
def interrupts_later() -> Iterator[None]:
    """Ctrl-C takes effect at the end of the block: raised inside a kernel's Python callback it would abort the process."""
    came: list[tuple[int, Any]] = []
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.signal(signal.SIGINT, lambda *what: came.append(what))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if came:
            usual(*came[0])


def _take_saved_tensor_hooks() -> list[tuple[Any, Any]]:
    """Pop this thread's pairs of hooks, innermost first."""
    taken = []
    while (pair := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        taken.append(pair)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    return taken


def _nesting() -> int:
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth
