"""What races told: one record each, shown by ``explain`` and the report; and the bar that shows how far tuning has come.

Upstream: ``torch._inductor.select_algorithm``'s table of choices (``TORCH_LOGS=+inductor`` and ``log_results``).
"""
from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import Any, Iterable, Iterator, TypeVar

from ..codegen.triton_blocks import Blocks

T = TypeVar("T")
SILENT = 2.0
"""Seconds of tuning that show no bar."""
SHOWN = 5
"""Configurations of a race that are listed."""


@dataclass
class Tried:
    """One race: microseconds of each configuration, the guess or the library's kernel first."""

    kernel: str
    best: Any
    microseconds: dict[Any, float] = field(default_factory=dict)

    def __str__(self) -> str:
        times = sorted(self.microseconds.items(), key=lambda item: item[1])
        shown = times[:SHOWN] + [item for item in times[SHOWN:] if item[0] == self.best or isinstance(item[0], str)]
        return f"{self.kernel}: {len(times)} tried, " + ", ".join(
            f"{label(c)} {us:.1f} µs{' (chosen)' if c == self.best else ''}" for c, us in shown)


def label(c: Any) -> str:
    """A configuration in a few words."""
    if not isinstance(c, Blocks):
        return str(c)
    sides = "×".join(str(n) for n in (c.x, c.y, c.z) if n)
    return (sides + f" rows of {c.r}" * bool(c.r) + f", {c.warps} warps" + f", {c.stages} stages" * (c.stages > 1)
            + f", {c.held} pieces held" * (c.held > 0))


def progress(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """``items``, with a bar on a terminal once they take long."""
    begin, bar = time.monotonic(), None
    try:
        for k, item in enumerate(items):
            yield item
            if bar is None and time.monotonic() - begin > SILENT and sys.stderr.isatty():
                bar = _bar(total, what)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=k + 1)
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int, what: str) -> Any:
    from rich.console import Console
    from rich.progress import Progress
    bar = Progress(console=Console(stderr=True), transient=True)
    bar.add_task(f"minipt2: {what}", total=total)
    bar.start()
    return bar
