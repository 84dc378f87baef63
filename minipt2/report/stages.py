"""What each captured graph became, stage by stage, gathered for the HTML report while a call is explained."""
from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import fx

from ..errors import CompilerNotFound
from ..inductor import Recipe, cache
from ..inductor.codegen import c_openmp
from ..inductor.scheduler import Schedule
from ..inductor.scheduler.memory import storage_bytes
from .figures.joint import snapshot
from .figures.pipeline import Prims

REPEATS = 3


@dataclass
class Part:
    """One compiled graph: inference, forward or backward."""

    name: str
    prims: Prims = field(default_factory=lambda: Prims([], {}))
    plan: Schedule | None = None
    recipe: Recipe | None = None


@dataclass
class Stages:
    """What became of one captured graph. ``codes``: the frame's own code and what runs instead."""

    graph: fx.GraphModule
    codes: tuple[CodeType, CodeType] | None = None
    joint: fx.GraphModule | None = None
    parts: dict[str, Part] = field(default_factory=dict)

    def part(self, name: str) -> Part:
        return self.parts.setdefault(name, Part(name))


class Gathering:
    """A listener. ``graphs`` are in order of capture; what is announced between two captures belongs to the earlier one."""

    LISTENS = ("bytecode", "graph", "aot", "prims", "scheduler", "recipe")

    def __init__(self) -> None:
        self.graphs: list[Stages] = []
        self._named: dict[str, Stages] = {}

    def listen(self, stage: str, name: str, payload: Any) -> None:
        if stage == "graph":
            self.graphs.append(Stages(payload))
            self._named[name] = self.graphs[-1]
        elif not self.graphs:
            return  # a frame without tensor operations
        elif stage == "bytecode":
            if self.graphs[-1].codes is None:  # that of a frame comes after its graph
                self.graphs[-1].codes = payload
        elif stage == "aot":
            if name == "decomposed" and any(n.meta.get("tangent") for n in payload.graph.nodes):
                self.graphs[-1].joint = snapshot(payload)
        elif stage == "prims":
            self._of(name).prims = Prims.of(payload)
        elif stage == "scheduler":
            self._of(name).plan = payload
        else:
            self._of(name).recipe = payload

    def _of(self, name: str) -> Part:
        """The part of that name, of the graph whose name it begins with."""
        owner = next((s for known, s in self._named.items() if name.startswith(f"{known}_")), self.graphs[-1])
        return owner.part(name)


def kernel_seconds(part: Part) -> list[float] | None:
    """Seconds of each kernel of a part, the shortest of a few runs on buffers of their own; None where there is no C to run."""
    if part.plan is None or part.recipe is None:
        return None
    try:
        library = cache.compile_c(part.recipe.c)
    except CompilerNotFound:
        return None
    specs = c_openmp.generate(part.plan).kernels
    return [_time(library, spec, part.plan) for spec in specs]


def _time(library: ctypes.CDLL, spec: c_openmp.KernelSpec, plan: Schedule) -> float:
    memory = [torch.zeros(max(1, storage_bytes(plan.layouts[name])), dtype=torch.uint8) for name in spec.args]
    error = ctypes.c_int(0)
    pointers = [ctypes.c_void_p(m.data_ptr()) for m in memory] + [ctypes.byref(error)] * spec.checks
    function = library[spec.name]
    function.restype = None
    shortest = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        function(*pointers)
        shortest = min(shortest, time.perf_counter() - start)
    return shortest
