"""Block sizes for the Triton kernels of one graph, measured on the GPU that will run them, and kept on disk.

Every configuration of ``space.candidates`` is compiled beside the others in the pool's processes, run on memory of the right sizes with
the GPU's cache emptied in between, and compared with the first guess's results before it may win. What was tried and what won is told
as an ``autotune`` artifact. Upstream: ``torch._inductor.runtime.triton_heuristics.CachingAutotuner``.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any, Sequence

import torch

from ... import trace
from ...config import config
from ...errors import BackendError
from .. import cache, triton_pool
from ..codegen.c_openmp_plan import Plan
from ..codegen.triton import Program, title, variant, walked_across
from ..codegen.triton_blocks import Blocks
from ..hardware import Hw
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.templates import Template
from .bench import LATE, Bench, finished, in_turns, on_gpu
from .descent import descend
from .race import pick
from .records import Tried, progress
from .space import candidates, neighbours

SMALL = 1 << 20
"""Bytes below which a kernel costs its launch, whatever its blocks are."""
BUDGET = 1.0
"""Seconds of a race."""
COMPILING, RACING = 60.0, 30.0
"""Seconds in which the candidates of one graph are compiled (those that are not are out), and in which they are raced: kernels that were not reached
keep the first guess."""
_chosen: dict[str, Blocks] = {}
"""What this process knows by key."""


def tuned(plans: Sequence[Plan], schedule: Schedule, hw: Hw, device: torch.device) -> list[Blocks]:
    """The fastest blocks for each of ``plans``, kernels of ``schedule`` on ``device``. A kernel that cannot be raced keeps the first guess."""
    keys = []
    races: dict[str, _Race] = {}
    for step, plan in zip((k for k in schedule.kernels if not isinstance(k, Template)), plans, strict=True):
        cs = candidates(plan, hw, walked_across(plan))
        key = _key(plan, cs, schedule, hw)
        keys.append((key, cs[0]))
        if cs[0].split > 1 or key in races or _known(key) is not None or _bytes(plan, schedule) < SMALL or len(cs) == 1:
            continue
        races[key] = _Race(step, plan, cs, schedule, hw, device)
    waiting = list(races.values())
    for k, c in in_turns([race.cs for race in waiting]):  # compiling begins here, for all kernels beside each other
        waiting[k].add([c])
    end = time.monotonic() + COMPILING
    for race in progress(waiting, len(races), "compiling kernels"):  # all first: compilers would disturb the timing
        race.compiled(end)
    end = time.monotonic() + RACING
    for key, race in progress(races.items(), len(races), "tuning kernels"):
        if time.monotonic() > end:
            break
        result = race.run()
        trace.artifact("autotune", schedule.program.name, result)
        trace.count("tuned_kernels")
        _chosen[key] = result.best
        if not race.late:  # another process may have the time to race them all
            cache.store_bytes(f"{key}.tuned", json.dumps(dict(best=asdict(result.best))).encode())
    return [_known(key) or guess for key, guess in keys]


def _key(plan: Plan, cs: Sequence[Blocks], schedule: Schedule, hw: Hw) -> str:
    """Everything that the result of a race depends on: the kernel (its sizes are in its text), the space, the device, versions."""
    program = variant(plan, cs[0], schedule)[0]
    body = program.text.split("\n", 2)[2]
    return cache.digest(body, repr((program.signature, program.aligned, list(cs), config.coordinate_descent)), hw.identity(), torch.__version__, str(triton_pool.triton_version()))


def _known(key: str) -> Blocks | None:
    if key not in _chosen:
        data = cache.load_bytes(f"{key}.tuned")
        if data is None:
            return None
        _chosen[key] = Blocks(**json.loads(data)["best"])
    return _chosen[key]


def _bytes(plan: Plan, schedule: Schedule) -> int:
    return sum(storage_bytes(schedule.layouts[p.buffer]) for p in plan.params)


class _Race:
    """One kernel's candidates, being compiled; then its runs. ``late``: whether some were not compiled in time."""

    def __init__(self, step: Kernel, plan: Plan, cs: Sequence[Blocks], schedule: Schedule, hw: Hw, device: torch.device):
        self.name = title(step, set())
        self.plan, self.cs, self.guess, self.hw, self.device = plan, list(cs), cs[0], hw, device
        self.layouts = {p.buffer: schedule.layouts[p.buffer] for p in plan.params}
        self.schedule = schedule
        self.variants: dict[Blocks, tuple[Program, tuple[int, int], bool]] = {}
        self.made: dict[Blocks, Any] = {}
        self.late = False

    def add(self, cs: Sequence[Blocks]) -> None:
        """Have ``cs`` compiled, beside each other."""
        new = [c for c in cs if c not in self.variants]
        self.variants.update((c, variant(self.plan, c, self.schedule)) for c in new)
        self.made.update(zip(new, triton_pool.submit([asdict(self.variants[c][0]) for c in new], self.hw.capability)))

    def compiled(self, end: float) -> None:
        """Wait until all are compiled, but not beyond ``end``; those that are not, or that the compiler rejects, are out."""
        for c, reason in finished(self.made, end).items():
            self.cs.remove(c)
            self.late |= reason is LATE
            trace.artifact("autotune", self.name, f"{self.name}: {c} is out, {reason}")

    def around(self, c: Blocks) -> list[Blocks]:
        found = neighbours(c, self.plan, self.hw)
        self.add(found)
        return found

    def run(self) -> Tried:
        name, times = self.name, {}
        try:
            if self.guess not in self.cs:
                raise BackendError(f"{name}: without the first guess there is nothing to compare with")
            with on_gpu(self.device):
                self.prepare()
                best = pick(self.cs, self.time, self.right, BUDGET, times)
                if config.coordinate_descent:
                    best = descend(best, self.around, self.time, self.right, BUDGET, times)
        except (BackendError, RuntimeError) as error:  # out of memory, or the guess itself does not run: nothing to compare with
            trace.artifact("autotune", name, error)
            best = self.guess
        self.bench = None  # its memory is for the next race
        return Tried(name, best, {c: 1e6 * s for c, s in times.items()})

    def prepare(self) -> None:
        """Memory for every operand, and the results of the first guess."""
        self.bench = Bench(self.layouts, self.hw, self.device)
        written = [p.buffer for p in self.plan.params if p.written]
        self.before = self.bench.taken(written)
        self.launch(self.guess)
        self.wanted = self.bench.taken(written)

    def right(self, c: Blocks) -> bool:
        """Whether ``c`` gives the results of the first guess."""
        self.bench.give_back(self.before)
        self.launch(c)
        return self.bench.agrees(self.wanted)

    def time(self, c: Blocks) -> float:
        return self.bench.time(lambda: self.launch(c))

    def launch(self, c: Blocks) -> None:
        program, grid, checks = self.variants[c]
        self.bench.launch(program, self.made[c], [p.buffer for p in self.plan.params], grid, checks)
