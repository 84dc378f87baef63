"""Which kernels of a schedule become one foreign call.

Upstream calls every kernel by itself (``torch._inductor.codegen.wrapper``).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..ir import Extern
from ..scheduler.kernels import Schedule
from ..scheduler.memory import is_large
from ..sizes import use

MOST_POINTERS = 200
"""Pointers of one C function (ctypes passes at most 1024)."""


@dataclass
class Run:
    """Consecutive kernels, called through one C function."""

    steps: list[int]
    kernels: list[Any]
    pointers: list[str] = field(default_factory=list)


def in_runs(schedule: Schedule, kernels: Sequence[Any], products: Mapping[str, Any]) -> list[Run | Extern]:
    """The steps of ``schedule`` with consecutive kernels joined. ``kernels``: the specs of its kernel steps, in order; ``products``: those of
    extern steps that are kernels too, by name."""
    units: list[Run | Extern] = []
    specs = iter(kernels)
    room = _Room(schedule)
    for i, step in enumerate(schedule.steps):
        if isinstance(step, Extern) and step.name not in products:
            if step.target != "alloc":
                units.append(step)
            continue
        spec = products[step.name] if isinstance(step, Extern) else next(specs)
        pointers = [a for a in spec.args if a not in schedule.plan]
        last = units[-1] if units and isinstance(units[-1], Run) else None
        if last is None or len({*last.pointers, *pointers}) > MOST_POINTERS or room.between(last, step):
            units.append(last := Run([], []))
        last.steps.append(i)
        last.kernels.append(spec)
        last.pointers += [p for p in dict.fromkeys(pointers) if p not in last.pointers]
    return units


class _Room:
    """Where a run ends early so that large tensors are freed before others are made: its tensors are made before it and freed behind it."""

    def __init__(self, schedule: Schedule):
        self.schedule = schedule
        with use(schedule.program.hints):
            self.large = {n for n, layout in schedule.layouts.items() if n not in schedule.plan and is_large(schedule, layout)}
        self.made = self.large - {b.name for b in schedule.program.inputs}

    def between(self, run: Run, step: Any) -> bool:
        return not self.made.isdisjoint(step.writes()) and any(not self.large.isdisjoint(self.schedule.frees[i]) for i in run.steps)
