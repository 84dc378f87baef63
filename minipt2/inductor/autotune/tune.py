"""Block sizes for the Triton kernels of one graph, measured on the GPU that will run them, and kept on disk.

Every configuration of ``space.candidates`` is compiled beside the others in the pool's processes, run on memory of the right sizes with
the GPU's cache emptied in between, and compared with the first guess's results before it may win. What was tried and what won is told
as an ``autotune`` artifact. Upstream: ``torch._inductor.runtime.triton_heuristics.CachingAutotuner``.
"""
from __future__ import annotations

import contextlib
import ctypes
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Iterator, Sequence

import torch

from ... import trace
from ...errors import BackendError
from .. import cache, triton_pool
from ..codegen.c_openmp_plan import Plan
from ..codegen.triton import Program, variant, walked_across
from ..codegen.triton_blocks import Blocks
from ..hardware import Hw
from ..scheduler.kernels import Schedule
from ..scheduler.memory import storage_bytes
from ..triton_library import FLAGS, cuda, freeze, loaded, told
from .race import pick
from .space import candidates

SMALL = 1 << 20
"""Bytes below which a kernel costs its launch, whatever its blocks are."""
BUDGET = 1.0
"""Seconds of a race."""
TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-3, torch.float64: 1e-8}
"""Sums in another order differ by less than so much of the largest value."""
_chosen: dict[str, Blocks] = {}
"""What this process knows by key."""


@dataclass
class Tried:
    """One kernel's race: microseconds of each configuration, the first guess first."""

    kernel: str
    best: Blocks
    microseconds: dict[Blocks, float] = field(default_factory=dict)

    def __str__(self) -> str:
        times = sorted(self.microseconds.items(), key=lambda item: item[1])
        return f"{self.kernel}: {len(times)} tried, " + ", ".join(
            f"{_short(c)} {us:.1f} µs{' (chosen)' if c == self.best else ''}" for c, us in times[:5])


def _short(c: Blocks) -> str:
    return f"{c.x}" + f"×{c.y}" * bool(c.y) + f" rows of {c.r}" * bool(c.r) + f", {c.warps} warps" + f", {c.stages} stages" * (c.stages > 1)


def tuned(plans: Sequence[Plan], schedule: Schedule, hw: Hw, device: torch.device) -> list[Blocks]:
    """The fastest blocks for each of ``plans``, kernels of ``schedule`` on ``device``. A kernel that cannot be raced keeps the first guess."""
    keys = []
    races: dict[str, _Race] = {}
    for plan in plans:
        cs = candidates(plan, hw, walked_across(plan))
        key = _key(plan, cs, schedule, hw)
        keys.append((key, cs[0]))
        if cs[0].split > 1 or key in races or _known(key) is not None or _bytes(plan, schedule) < SMALL or len(cs) == 1:
            continue
        races[key] = _Race(plan, cs, schedule, hw, device)  # compiling begins here, for all kernels beside each other
    for race, key in _progress(races.values(), list(races)):
        result = race.run()
        trace.artifact("autotune", schedule.program.name, result)
        trace.count("tuned_kernels")
        _chosen[key] = result.best
        cache.store_bytes(f"{key}.tuned", json.dumps(dict(best=asdict(result.best))).encode())
    return [_known(key) or guess for key, guess in keys]


def _key(plan: Plan, cs: Sequence[Blocks], schedule: Schedule, hw: Hw) -> str:
    """Everything that the result of a race depends on: the kernel (its sizes are in its text), the space, the device, versions."""
    program = variant(plan, cs[0], schedule)[0]
    body = program.text.split("\n", 2)[2]
    return cache.digest(body, repr((program.signature, program.aligned, list(cs))), hw.identity(), torch.__version__, str(triton_pool.triton_version()))


def _known(key: str) -> Blocks | None:
    if key not in _chosen:
        data = cache.load_bytes(f"{key}.tuned")
        if data is None:
            return None
        _chosen[key] = Blocks(**json.loads(data)["best"])
    return _chosen[key]


def _bytes(plan: Plan, schedule: Schedule) -> int:
    return sum(storage_bytes(schedule.layouts[p.buffer]) for p in plan.params)


@contextlib.contextmanager
def _shown(total: int) -> Iterator[Any]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("minipt2: tuning kernels", total=total)
        yield lambda: progress.advance(task)


def _progress(races: Any, keys: list[str]) -> Iterator[tuple["_Race", str]]:
    with _shown(len(keys)) as advance:
        for race, key in zip(races, keys):
            yield race, key
            advance()


class _Race:
    """One kernel's candidates, being compiled; then its runs."""

    def __init__(self, plan: Plan, cs: Sequence[Blocks], schedule: Schedule, hw: Hw, device: torch.device):
        self.plan, self.cs, self.hw, self.device = plan, list(cs), hw, device
        self.layouts = [schedule.layouts[p.buffer] for p in plan.params]
        self.variants: dict[Blocks, tuple[Program, tuple[int, int], bool]] = {c: variant(plan, c, schedule) for c in cs}
        programs = [asdict(program) for program, _, _ in self.variants.values()]
        self.made = dict(zip(self.cs, triton_pool.submit(programs, hw.capability)))

    def run(self) -> Tried:
        name, times = self.variants[self.cs[0]][0].name, {}
        try:
            with torch.cuda.device(self.device), torch.no_grad():
                self.prepare()
                best = pick(self.cs, self.time, self.right, BUDGET, times)
        except (BackendError, RuntimeError) as error:  # out of memory, or the guess itself does not run: nothing to compare with
            trace.artifact("autotune", name, error)
            best = self.cs[0]
        return Tried(name, best, {c: 1e6 * s for c, s in times.items()})

    def prepare(self) -> None:
        """Memory for every operand, the results of the first guess, and something to empty the cache with."""
        self.buffers = [_filled(storage_bytes(layout), layout.dtype, self.device) for layout in self.layouts]
        self.written = [k for k, p in enumerate(self.plan.params) if p.written]
        self.before = [self.buffers[k].clone() for k in self.written]
        self.flags = torch.zeros(FLAGS, dtype=torch.int32, pin_memory=True)
        self.flush = torch.empty(2 * self.hw.cache, dtype=torch.uint8, device=self.device)
        self.launch(self.cs[0])
        self.wanted = [self.buffers[k].clone() for k in self.written]

    def right(self, c: Blocks) -> bool:
        """Whether ``c`` gives the results of the first guess."""
        for k, before in zip(self.written, self.before):
            self.buffers[k].copy_(before)
        self.launch(c)
        return all(_close(self.buffers[k], wanted) for k, wanted in zip(self.written, self.wanted))

    def time(self, c: Blocks) -> float:
        """Seconds of one run with a cold cache."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flush.zero_()
        begin.record()
        self.launch(c)
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def launch(self, c: Blocks) -> None:
        """Raises BackendError for a kernel that does not compile or launch."""
        program, grid, checks = self.variants[c]
        try:
            made = self.made[c].result()
        except BackendError as error:
            raise RuntimeError(str(error)) from error
        function, threads, shared = loaded(self.device.index or 0, *freeze(made))
        places = [ctypes.c_void_p(b.data_ptr()) for b in self.buffers]
        places += [ctypes.c_void_p(self.flags.data_ptr())] * checks + [ctypes.c_void_p()] * 2
        args = (ctypes.c_void_p * len(places))(*[ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in places])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        x, y = grid
        told(cuda().cuLaunchKernel(ctypes.c_void_p(function), x, y, 1, threads, 1, 1, shared, stream, args, None), program.name)


def _filled(nbytes: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Ordinary numbers; zeros for integers, which may be indices."""
    count = nbytes // dtype.itemsize
    if dtype.is_floating_point:
        return torch.rand(count, device=device, dtype=torch.float32 if dtype.itemsize < 4 else dtype).add_(0.5).to(dtype)
    return torch.zeros(count, dtype=dtype, device=device)


def _close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    if not found.dtype.is_floating_point:
        return torch.equal(found, wanted)
    a, b = found.float(), wanted.float()
    most = b.nan_to_num(0, 0, 0).abs().max().item() if b.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=TOLERANCE.get(found.dtype, 5e-2) * max(most, 1e-30), equal_nan=True)
