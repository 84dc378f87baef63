"""``--kernels``: what each GPU kernel of a step reaches, beside the floor that its bytes and operations set.

Bytes are counted from the schedule: each buffer that a kernel reads or writes counts once, as far as its loops reach (a gather counts the
rows it reads). Operations are those of matrix products and convolutions. Times are the device's own, by ``torch.profiler``. The floor of a
loop kernel is its bytes over the bandwidth of a large copy, measured in the same process.
"""
from __future__ import annotations

import functools
import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from math import prod
from typing import Any, Callable, Iterable

import torch
from rich.table import Table

import minipt2

from .. import trace
from ..inductor.ir import Extern
from ..inductor.scheduler.memory import storage_bytes
from ..inductor.scheduler.nodes import walk
from ..inductor.sizes import hint, number
from .runner import Case

COPIED = 1 << 29
"""Bytes of the tensor whose copy gives the bandwidth."""
STEPS = 5
SHOWN = 25
"""Kernels of a step in the table and in the file, slowest first."""


@dataclass
class Reached:
    """One kernel, or all calls of the libraries: launches, bytes, operations and microseconds of a step."""

    kernel: str
    launches: float = 0
    bytes: float = 0
    operations: float = 0
    us: float = 0
    floor_us: float = 0

    @property
    def share(self) -> float:
        """Of the floor's speed: 1 is as fast as memory allows."""
        return self.floor_us / self.us if self.us else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(self).items()} | {"share": round(self.share, 3)}


def kernel_bytes(kernel: Any, layouts: Any) -> int:
    """Bytes that ``kernel`` must read and write."""
    sizes = {v: hint(number(n)) for v, n in kernel.flat.domain.sizes.items()}
    reach: dict[str, int] = defaultdict(int)
    for i in walk(kernel.flat.instrs):
        if i.op in ("load", "store"):
            name, index = i.args[:2]
            known = all(v in sizes for v in index.names())
            reach[name] = max(reach[name], prod(n for v, n in sizes.items() if not known or v in index.names()))
    return sum(min(hint(number(storage_bytes(layouts[name]))), n * layouts[name].dtype.itemsize) for name, n in reach.items() if name in layouts)


def operations(step: Extern, layouts: Any) -> int:
    """Multiplications and additions of a matrix product or a convolution; 0 for any other call."""
    name = getattr(getattr(step.target, "_schema", None), "name", "")

    def sizes(ref: Any) -> list[int]:
        return [hint(number(n)) for n in (ref.layout or layouts[ref.buffer]).sizes]
    if name in ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm"):
        a, b = (sizes(ref) for ref in step.args[-2:] if hasattr(ref, "buffer"))
        return 2 * prod(a) * b[-1]
    if name == "aten::convolution":
        result, weight = [hint(number(n)) for n in step.layout.sizes], sizes(step.args[1])
        if step.args[6]:  # transposed: every element of the input meets every weight of its channel
            return 2 * prod(sizes(step.args[0])) * prod(weight[1:])
        return 2 * prod(result) * prod(weight[1:])
    if name == "aten::convolution_backward":
        grad, weight = sizes(step.args[0]), sizes(step.args[2])
        return 2 * prod(grad) * prod(weight[1:]) * sum(map(bool, step.args[10][:2]))
    return 0


def counted(schedules: Iterable[Any], named: Callable[[Any], list[list[str]]]) -> dict[str, Reached]:
    """By device kernel: bytes of a step. ``named``: for each kernel of a schedule, the names of the programs that it launches, of which the
    first does the work. ``""`` holds the operations of library calls."""
    found: dict[str, Reached] = {"": Reached("")}
    for schedule in schedules:
        for kernel, names in zip(schedule.kernels, named(schedule)):
            for k, name in enumerate(names):
                row = found.setdefault(name, Reached(name))
                row.launches += 1
                row.bytes += 0 if k else kernel_bytes(kernel, schedule.layouts)
        found[""].operations += sum(operations(s, schedule.layouts) for s in schedule.steps if isinstance(s, Extern))
    return found


def joined(work: dict[str, Reached], times: dict[str, float], bandwidth: float) -> list[Reached]:
    """Counted work with measured microseconds of a step by kernel; what is not ours is the libraries'. Slowest first."""
    library = Reached("libraries", operations=work[""].operations)
    rows = [library]
    for name, us in times.items():
        row = work.get(name)
        if row is None or not name:
            library.us += us
        else:
            row.us, row.floor_us = us, row.bytes / bandwidth * 1e6
            rows.append(row)
    return sorted(rows, key=lambda r: -r.us)


def table(title: str, rows: list[Reached], bandwidth: float, most: int = SHOWN) -> Table:
    out = Table(title=f"{title}: kernels of a step (a copy moves {bandwidth / 1e12:.2f} TB/s)")
    for head in ("kernel", "launches", "MB", "µs", "floor µs", "TB/s", "of the floor's speed", "TFLOP/s"):
        out.add_column(head, justify="left" if head == "kernel" else "right", no_wrap=True)
    for r in rows[:most]:
        loops = [f"{r.bytes / 1e6:.1f}", f"{r.us:.1f}", f"{r.floor_us:.1f}", f"{r.bytes / r.us / 1e6:.2f}" if r.us else "", f"{100 * r.share:.0f} %"]
        out.add_row(r.kernel, f"{r.launches:.0f}" if r.launches else "", *(loops if r.bytes else ["", f"{r.us:.1f}", "", "", ""]),
                    f"{r.operations / r.us / 1e6:.1f}" if r.operations and r.us else "")
    return out


# ------------------------------------------------------------------ on a GPU
def main(args: Any, console: Any, machine: dict[str, Any]) -> int:
    """Tables for all models and phases; JSON of the slowest kernels where ``--json`` names a file."""
    cases: dict[str, Any] = {}
    bandwidth = 0.0
    for name in args.names:
        for phase in args.phases:
            rows, bandwidth = measure(functools.partial(_compiled, Case(name, phase, args.size, args.device, args.amp), args.mode), torch.device(args.device))
            console.print(table(f"{name} {phase}", rows, bandwidth))
            cases[f"{name}.{phase}"] = [r.as_dict() for r in rows[:SHOWN]]
    if args.json:
        with open(args.json, "w") as file:
            settings = {k: getattr(args, k) for k in ("device", "amp", "mode", "size")}
            json.dump({"machine": machine, **settings, "copy_bytes_per_s": round(bandwidth), "kernels": cases}, file, indent=1)
    return 0


def _compiled(case: Case, mode: str | None) -> Callable[[], Any]:
    """The step of ``case``, compiled anew: what comes from the disk tells of no schedule."""
    minipt2.reset()
    with minipt2.config.patch(disk_cache=False):
        model = minipt2.compile(case.model, mode=mode)
        case.timed(model)
    return lambda: case.timed(model)


def measure(compile: Callable[[], Callable[[], Any]], device: torch.device) -> tuple[list[Reached], float]:
    """(rows, bytes a second of a copy). ``compile()`` compiles a model and returns its step, which has run once."""
    schedules: list[Any] = []
    stop = trace.subscribe(lambda stage, name, payload: schedules.append(payload() if callable(payload) else payload), "schedule")
    try:
        step = compile()
    finally:
        stop()
    work = counted(schedules, lambda schedule: _names(schedule, device))
    bandwidth = copied(device)
    return joined(work, device_times(step, device), bandwidth), bandwidth


def _names(schedule: Any, device: torch.device) -> list[list[str]]:
    """Equal kernels are compiled once, under the name that came first."""
    from ..inductor import triton_pool
    from ..inductor.codegen import triton
    from ..inductor.hardware import hardware
    hw = hardware(device)
    source = triton.generate(schedule, hw)
    names = [made.result()[1]["name"] for made in triton_pool.submit([asdict(p) for p in source.programs], hw.capability)]
    return [[names[call.kernel] for call in launch.calls] for launch in source.launches]


def device_times(step: Callable[[], Any], device: torch.device) -> dict[str, float]:
    """Microseconds of each device kernel in one step."""
    from torch.profiler import ProfilerActivity, profile
    for _ in range(3):
        step()
    torch.cuda.synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize(device)
    return {e.key: e.self_device_time_total / STEPS for e in profiled.key_averages() if e.self_device_time_total}


def copied(device: torch.device, reps: int = 20) -> float:
    """Bytes a second that a large copy reads and writes."""
    source = torch.empty(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for k in range(reps + 3):
        if k == 3:
            begin.record()
        target.copy_(source)
    end.record()
    end.synchronize()
    return 2 * COPIED * reps / (begin.elapsed_time(end) / 1e3)
