"""Templates against the library: each contraction of a graph as a Triton template with the loops before and after it, raced against the extern call
and the loops' own kernels.

The race is between sequences: [kernels of loops, library's kernel, the loops' kernel] and [one template]. Both run on the same memory, after the GPU's cache was
emptied once, so that the loops find the library's result in the cache as they do in the graph; and both as CUDA graphs, so that it is the GPU
that is timed. A template must give the library's results and
be faster by ``CLEARLY``. What won is kept on disk under everything that it depends on. Upstream:
``torch._inductor.select_algorithm.AlgorithmSelectorCache``, ``ir.MultiTemplateBuffer``.
"""
from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from typing import Any, NamedTuple, Sequence

import torch

from ... import trace
from ...config import config
from ...errors import BackendError
from .. import cache, triton_pool
from ..codegen.c_openmp_plan import make_plan
from ..codegen.triton import Program, program_of, templates, title, variant, walked_across
from ..codegen.triton_blocks import choose as first_guess
from ..codegen.triton_template_plan import tf32_allowed
from ..hardware import Hw
from ..ir import TensorRef
from ..scheduler.attention import Attention
from ..scheduler.contraction import Contraction, seen
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.operands import prologues
from ..scheduler.templates import Candidate
from . import attention, template_space
from .bench import LATE, Bench, finished, in_turns, on_gpu
from .descent import descend
from .race import pick
from .records import Tried, progress

Tile = template_space.Tile | attention.AttentionTile
LIBRARY = "library"
BUDGET = 1.0
"""Seconds of a race."""
COMPILING, RACING = 90.0, 60.0
"""Seconds in which the templates of one graph are compiled (those that are not are out), and in which they are raced: contractions that were not
reached stay with the library."""
CLEARLY = 1.08
"""A template takes the library's place where it is faster by so much: BERT's first MLP layer, raced at 1.06 on an H200, made the model 2 % slower."""
_chosen: dict[str, Tile | None] = {}
"""What this process knows by key."""


def tiles(c: Contraction | Attention, hw: Hw) -> list[Tile]:
    """What is tried for ``c``, the likely ones first."""
    return (attention if isinstance(c, Attention) else template_space).tiles(c, hw)


def around(t: Tile, c: Contraction | Attention, hw: Hw) -> list[Tile]:
    """Neighbours of ``t`` in its space."""
    return (attention if isinstance(c, Attention) else template_space).around(t, c, hw)


def _read(data: bytes) -> Tile | None:
    """A tile from what is on disk; its fields say of which space it is."""
    found = json.loads(data)
    return None if found is None else (template_space.Tile if "k" in found else attention.AttentionTile)(**found)


def choose(candidates: Sequence[Candidate], schedule: Schedule, hw: Hw, device: torch.device) -> list[Tile | None]:
    """A tile for each candidate that is faster than the library on ``device``, None for the others."""
    keys: list[str | None] = []
    races: dict[str, _Race] = {}
    for candidate in candidates:
        ts = tiles(candidate.step.contraction, hw)
        key = _key(candidate, ts, schedule, hw) if ts else None
        keys.append(key)
        if key is not None and key not in races and not _known(key):
            races[key] = _Race(candidate, ts, schedule, hw, device)
    waiting = list(races.values())
    for k, tile in in_turns([race.tiles for race in waiting]):
        waiting[k].add([tile])
    end = time.monotonic() + COMPILING
    for race in progress(waiting, len(races), "compiling templates"):  # all first: compilers would disturb the timing
        race.compiled(end)
    end = time.monotonic() + RACING
    for key, race in progress(races.items(), len(races), "tuning templates"):
        if time.monotonic() > end:
            break
        result = race.run()
        trace.artifact("autotune", schedule.program.name, result)
        trace.count("tuned_kernels")
        _chosen[key] = None if result.best == LIBRARY else result.best
        if not race.late:  # another process may have the time to race them all
            cache.store_bytes(f"{key}.tile", json.dumps(None if result.best == LIBRARY else asdict(result.best)).encode())
    return [_chosen[key] if key is not None and _known(key) else None for key in keys]


def _key(candidate: Candidate, ts: Sequence[Tile], schedule: Schedule, hw: Hw) -> str:
    """Everything that the result of a race depends on: the template (sizes and strides are in its text), the call it replaces, the space, the
    device, versions."""
    shots = _variant(candidate, ts[0], schedule)
    bodies = [(s.program.text.split("\n", 2)[2], s.program.signature, s.program.aligned, s.grid) for s in shots]
    c = candidate.step.contraction
    allowed = isinstance(c, Contraction) and tf32_allowed(c)  # the library's kernels depend on it
    return cache.digest(repr((bodies, list(ts), str(c.extern.target), config.coordinate_descent, allowed)), hw.identity(), torch.__version__,
                        str(torch.backends.cudnn.version()), str(triton_pool.triton_version()))


def _known(key: str) -> bool:
    if key not in _chosen:
        data = cache.load_bytes(f"{key}.tile")
        if data is None:
            return False
        _chosen[key] = _read(data)
    return True


class _Shot(NamedTuple):
    """One launch of a variant. ``work``: bytes of the memory that its launches share, by a name that is among ``names``."""

    program: Program
    grid: tuple[int, int]
    names: list[str]
    checks: bool
    work: dict[str, int]


def _variant(candidate: Candidate, tile: Tile, schedule: Schedule) -> list[_Shot]:
    shots = []
    for body in templates(replace(candidate.step, tile=tile), schedule):
        work = {f"{name} of {size} bytes": size for name, size in body.work.items()}
        shots.append(_Shot(program_of(body, schedule), body.grid, [p.buffer for p in body.params] + list(work), body.checks, work))
    return shots


class _Race:
    """One contraction's tiles, being compiled, and the library; then their runs. ``late``: whether some were not compiled in time."""

    def __init__(self, candidate: Candidate, ts: Sequence[Tile], schedule: Schedule, hw: Hw, device: torch.device):
        self.candidate, self.schedule, self.hw, self.device = candidate, schedule, hw, device
        self.name = title(candidate.step, set())
        self.variants: dict[Tile, list[_Shot]] = {}
        self.tiles = list(ts)
        self.recorded: dict[Any, Any] = {}
        self.made: dict[tuple[Tile, int], Any] = {}
        self.late = False
        self.before = [self._launch_of(kernel) for kernel in candidate.before]
        self.after = [self._launch_of(candidate.after)] if candidate.after is not None else []

    def _launch_of(self, kernel: Kernel) -> tuple[Program, Any, list[str], tuple[int, int], bool]:
        """Loops as a kernel of their own: the arguments of ``Bench.launch``."""
        plan = make_plan(kernel, self.schedule)
        program, grid, checks = variant(plan, first_guess(plan, self.hw, walked_across(plan)), self.schedule)
        made, = triton_pool.submit([asdict(program)], self.hw.capability)
        return program, made, [p.buffer for p in plan.params], grid, checks

    def add(self, ts: Sequence[Tile]) -> None:
        """Have ``ts`` compiled, beside each other."""
        new = [t for t in ts if t not in self.variants]
        self.variants.update((t, _variant(self.candidate, t, self.schedule)) for t in new)
        shots = [(t, k) for t in new for k in range(len(self.variants[t]))]
        self.made.update(zip(shots, triton_pool.submit([asdict(self.variants[t][k].program) for t, k in shots], self.hw.capability)))

    def compiled(self, end: float) -> None:
        """Wait until all are compiled, but not beyond ``end``; those that are not, or that the compiler rejects, are out."""
        for t, reason in {t: reason for (t, _), reason in finished(self.made, end).items()}.items():
            self.tiles.remove(t)
            self.late |= reason is LATE
            trace.artifact("autotune", self.name, f"{self.name}: {t} is out, {reason}")

    def run(self) -> Tried:
        times: dict[Any, float] = {}
        best: Any = LIBRARY
        try:
            with on_gpu(self.device):
                self.prepare()
                best = pick([LIBRARY, *self.tiles], self.time, self.right, BUDGET, times)
                if config.coordinate_descent and best != LIBRARY:
                    best = descend(best, self.around, self.time, self.right, BUDGET, times)
        except (BackendError, RuntimeError) as error:  # out of memory, or the library itself refuses: nothing to compare with
            trace.artifact("autotune", self.name, error)
        if best != LIBRARY and times[best] * CLEARLY > times[LIBRARY]:
            best = LIBRARY
        self.bench, self.recorded = None, {}  # their memory is for the next race
        return Tried(self.name, best, {c: 1e6 * s for c, s in times.items()})

    def around(self, t: Tile) -> list[Tile]:
        found = around(t, self.candidate.step.contraction, self.hw)
        self.add(found)
        return found

    def prepare(self) -> None:
        """Memory for all that either way touches, and the library's results."""
        step = self.candidate.step
        names = {step.contraction.made, *step.reads(), *step.writes()}.union(*(buffers for _, _, buffers, *_ in self.before + self.after))
        # integers that a prologue reads are no indices: zeros would hide what it makes of them
        values = {n for _, loops in prologues(step.contraction) for n in loops.reads} - step.flat_reads()
        self.bench = Bench({n: self.schedule.layouts[n] for n in sorted(names)}, self.hw, self.device, values)
        self.call, self.result = self._call()
        self.begun = self.bench.taken(sorted(step.writes()))
        self._loops(self.before)
        made = self.call()
        made = made[0] if isinstance(made, tuple) else made  # attention tells statistics too, which nobody reads
        if made is not self.result:
            self.result.copy_(made)
        self._loops(self.after)
        self.wanted = self.bench.taken(sorted(step.writes()))

    def right(self, c: Any) -> bool:
        """Whether a template gives what the library and the loops gave."""
        self.bench.give_back(self.begun)
        self.launch(c)
        return self.bench.agrees(self.wanted)

    def time(self, c: Any) -> float:
        if c not in self.recorded:
            self.recorded[c] = self.bench.recorded(lambda: self.launch(c))
        return self.bench.time(self.recorded[c])

    def launch(self, c: Any) -> None:
        if c == LIBRARY:
            self._loops(self.before)
            self.call()
            self._loops(self.after)
            return
        for k, shot in enumerate(self.variants[c]):
            for name in shot.work.keys() - self.bench.buffers.keys():
                self.bench.buffers[name] = torch.empty(shot.work[name], dtype=torch.uint8, device=self.device)
            self.bench.launch(shot.program, self.made[c, k], shot.names, shot.grid, shot.checks)

    def _loops(self, launches: Sequence[tuple]) -> None:
        for launch in launches:
            self.bench.launch(*launch)

    def _call(self) -> tuple[Any, torch.Tensor]:
        """The extern call on the race's memory, and the tensor for its result."""
        extern = self.candidate.step.contraction.extern
        args = [self._tensor(a) if isinstance(a, TensorRef) else a for a in extern.args]
        kwargs = {k: self._tensor(a) if isinstance(a, TensorRef) else a for k, a in extern.kwargs.items()}
        out = self._tensor(TensorRef(self.candidate.step.contraction.made))
        if extern.out_variant is not None:
            return lambda: extern.out_variant(*args, **kwargs, out=out), out
        return lambda: extern.target(*args, **kwargs), out

    def _tensor(self, ref: TensorRef) -> torch.Tensor:
        layout = seen(ref, self.schedule.buffers)
        return self.bench.buffers[ref.buffer].as_strided(layout.sizes, layout.strides, layout.offset)
