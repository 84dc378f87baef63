"""The one call by which a stage tells the world what it made.

``artifact(stage, name, payload)`` is called by dynamo, aot, prims and inductor; logs, ``explain``, the report and the
minifier subscribe. No stage knows its listeners. Counters (``graphs``, ``breaks`` ...) live here too, for the same reason.
Upstream: ``torch._logging.trace_structured`` and ``torch._dynamo.utils.counters``.
"""
from __future__ import annotations

import threading
from collections import Counter
from typing import Any, Callable

Listener = Callable[[str, str, Any], None]

_listeners: list[Listener] = []
_counters: Counter[str] = Counter()
_lock = threading.Lock()
STANDARD_COUNTERS = ("graphs", "breaks", "recompiles", "kernels", "fallbacks", "skipped_frames")


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call ``listener(stage, name, payload)`` for every artifact; returns a function that unsubscribes."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def artifact(stage: str, name: str, payload: Any) -> None:
    """Announce what ``stage`` made. ``payload`` may be a callable, evaluated only when somebody listens."""
    if not _listeners:
        return
    if callable(payload) and not hasattr(payload, "graph"):
        payload = payload()
    for listener in list(_listeners):
        listener(stage, name, payload)


def listening() -> bool:
    """Whether somebody wants artifacts: then every stage is run, even where its result is known."""
    return bool(_listeners)


def count(name: str, n: int = 1) -> None:
    with _lock:
        _counters[name] += n


def counters() -> dict[str, int]:
    """All counters since the last ``reset``; the standard ones are present even at zero."""
    with _lock:
        return {**dict.fromkeys(STANDARD_COUNTERS, 0), **_counters}


def reset() -> None:
    with _lock:
        _counters.clear()
