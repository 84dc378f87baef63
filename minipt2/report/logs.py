"""``set_logs("graph", "breaks")``: what stages make, written through the standard ``logging`` module.

In: artifacts of ``minipt2.trace``. Out: records of the loggers ``minipt2.graph``, ``minipt2.breaks`` …, level INFO, one an artifact.
``MINIPT2_LOGS=graph,breaks`` does the same from the start. Upstream: ``torch._logging`` and ``TORCH_LOGS``.
"""
from __future__ import annotations

import logging
from typing import Any, Callable

from .. import trace
from ..errors import InvalidArgument
from . import text

Render = Callable[[Any], str]

LOGS: dict[str, dict[str, Render]] = {
    "bytecode": {"bytecode": text.bytecode},
    "graph": {"graph": text.graph},
    "guards": {"guards": text.guards},
    "breaks": {"breaks": text.plain, "skipped": text.skipped},
    "recompiles": {"recompiles": text.recompiles, "dynamic": text.dynamic},
    "aot": {"aot": text.plain},
    "prims": {"prims": text.plain, "fallback": text.plain},
    "ir": {"ir": text.plain},
    "code": {"code": text.plain},
    "perf": {"perf": text.perf},
}
"""Names for ``set_logs``, and how the artifacts of each stage that belongs to one are written."""

_root = logging.getLogger("minipt2")
_stops: list[Callable[[], None]] = []
_handler = logging.StreamHandler()
_handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))


def set_logs(*names: str) -> None:
    """Log these artifacts from now on, and no others; with no name, log nothing (and it costs nothing).

    Records go to the loggers ``minipt2.<name>``, so ``logging``'s handlers, filters and files apply; where neither ``minipt2`` nor the
    root logger has a handler, they go to standard error. Raises ``InvalidArgument`` for a name that is not one of ``LOGS``.
    """
    unknown = sorted(set(names) - set(LOGS))
    if unknown:
        raise InvalidArgument(f"no log {unknown[0]!r}; there are {', '.join(LOGS)}")
    while _stops:
        _stops.pop()()
    _root.removeHandler(_handler)
    if names and not _root.hasHandlers():
        _root.addHandler(_handler)
    for name in dict.fromkeys(names):
        _stops.append(_start(logging.getLogger(f"minipt2.{name}"), LOGS[name]))


def _start(logger: logging.Logger, renders: dict[str, Render]) -> Callable[[], None]:
    def listen(stage: str, name: str, payload: Any) -> None:
        if logger.isEnabledFor(logging.INFO):
            body = renders[stage](payload)
            if not body.startswith(f"[{name}]"):
                body = f"{name}:\n{body}" if "\n" in body else f"{name}: {body}"
            logger.info("%s", body)
    level = logger.level
    logger.setLevel(logging.INFO)
    unsubscribe = trace.subscribe(listen, *renders)

    def stop() -> None:
        unsubscribe()
        logger.setLevel(level)
    return stop
