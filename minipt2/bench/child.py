"""What the bench measures in processes of their own: first calls with an empty and with a full disk cache, and peak memory of a step.

    python -m minipt2.bench.child first-calls|peak-eager|peak-minipt2|budget-0.5 MODEL PHASE SIZE
"""
from __future__ import annotations

import ctypes
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import minipt2

from ..report import measure
from .runner import Case


def first_calls(*case: str) -> list[float]:
    """Seconds of the first call in a process that finds an empty disk cache, and in a second one that finds what the first left there."""
    with tempfile.TemporaryDirectory(prefix="minipt2-bench-") as folder:
        argv = [sys.executable, "-m", "minipt2.bench.child", "first-call", *case, folder]
        return [json.loads(subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout) for _ in range(2)]


def first_call(case: Case) -> float:
    """Seconds of the first call of a compiled model here: what is imported on first use counts."""
    model = minipt2.compile(case.model)
    start = time.perf_counter()
    case.step(model)
    return time.perf_counter() - start


def peak(case: Case, compiled: bool, model: Any = None) -> float:
    """MiB by which one step's peak resident memory exceeds what was resident before it. ``model``: already compiled."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(-3, 128 << 10)  # every tensor of 128 KiB and more is mapped alone, and unmapped when freed
    model = model or (minipt2.compile(case.model) if compiled else case.model)
    for _ in range(3):
        case.step(model)
    case.model.zero_grad(set_to_none=True)
    gc.collect()
    libc.malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # resets the high-water mark
    before = _status("VmRSS")
    case.step(model)
    return (_status("VmHWM") - before) / 1024


def with_budget(case: Case, budget: float) -> list[float]:
    """MiB saved for the backward, MiB of a step's peak, and milliseconds of a step, under ``memory_budget=budget``."""
    with minipt2.config.patch(memory_budget=budget):
        model = minipt2.compile(case.model)
        case.step(model)
    saved, _ = measure.saved_for_backward(lambda: model(*case.inputs), case.model.parameters())
    seconds = measure.interleave({"step": lambda: case.step(model)}, 7, time.process_time)["step"].seconds
    return [saved / 2**20, peak(case, True, model), statistics.median(seconds) * 1e3]


def _status(field: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(field))


def main() -> None:
    task, name, phase, size = sys.argv[1:5]
    value: Any
    if task == "first-calls":
        value = first_calls(name, phase, size)
    elif task == "first-call":
        minipt2.config.cache_dir = sys.argv[5]
        value = first_call(Case(name, phase, size))
    elif task.startswith("budget-"):
        value = with_budget(Case(name, phase, size), float(task.removeprefix("budget-")))
    else:
        value = peak(Case(name, phase, size), task == "peak-minipt2")
    print(json.dumps(value))


if __name__ == "__main__":
    main()
