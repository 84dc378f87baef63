"""The one call by which a stage tells the world what it made.

``artifact(stage, name, payload)`` is called by dynamo, aot, prims and inductor; logs, ``explain``, the report and the
minifier subscribe. No stage knows its listeners. Counters (``graphs``, ``breaks`` ...) live here too, for the same reason.
Upstream: ``torch._logging.trace_structured`` and ``torch._dynamo.utils.counters``.
"""
from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import Any, Callable, Iterator, NamedTuple

Listener = Callable[[str, str, Any], None]

_listeners: list[tuple[Listener, frozenset[str]]] = []
_wanted: frozenset[str] = frozenset()
_counters: Counter[str] = Counter()
_lock = threading.Lock()
_running = threading.local()
STANDARD_COUNTERS = ("graphs", "breaks", "recompiles", "kernels", "fallbacks", "skipped_frames")
STAGES = ("instruction", "bytecode", "graph", "guards", "breaks", "skipped", "recompiles", "dynamic", "aot", "prims", "ir", "schedule", "scheduler",
          "codegen", "code", "recipe", "fallback", "cache", "autotune", "cudagraphs", "perf")
"""What can be listened to, in the order data flow."""


class Span(NamedTuple):
    """How long a stage took in seconds: with the stages it called, and without them; ``depth`` counts the stages around it."""

    seconds: float
    own: float
    depth: int


def subscribe(listener: Listener, *stages: str) -> Callable[[], None]:
    """Call ``listener(stage, name, payload)`` for every artifact of ``stages`` (default: all); returns a function that unsubscribes."""
    unknown = sorted(set(stages) - set(STAGES))
    if unknown:
        raise ValueError(f"no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    entry = listener, frozenset(stages or STAGES)
    _listeners.append(entry)
    _note_wanted()

    def unsubscribe() -> None:
        _listeners.remove(entry)
        _note_wanted()
    return unsubscribe


def _note_wanted() -> None:
    global _wanted
    _wanted = frozenset().union(*[stages for _, stages in _listeners])


def artifact(stage: str, name: str, payload: Any) -> None:
    """Announce what ``stage`` made. ``payload`` may be a callable, evaluated only when somebody listens."""
    if stage not in _wanted:
        return
    if callable(payload) and not hasattr(payload, "graph"):
        payload = payload()
    for listener, stages in list(_listeners):
        if stage in stages:
            listener(stage, name, payload)


def listening(*stages: str) -> bool:
    """Whether somebody wants artifacts of one of these stages: then they are run, even where their result is known."""
    return not _wanted.isdisjoint(stages)


@contextlib.contextmanager
def span(name: str) -> Iterator[None]:
    """Announce how long the block took as an artifact of ``perf``; costs next to nothing when nobody listens."""
    if "perf" not in _wanted:
        yield
        return
    children = getattr(_running, "children", None)
    if children is None:
        children = _running.children = [0.0]
    start, depth = time.perf_counter(), len(children) - 1
    children.append(0.0)
    try:
        yield
    finally:
        seconds = time.perf_counter() - start
        own = seconds - children.pop()
        children[-1] += seconds
        artifact("perf", name, Span(seconds, own, depth))


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
