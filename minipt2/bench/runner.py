"""One row of the bench: a model in one phase, every contender in one process, rounds interleaved."""
from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Callable

import torch
from torch import nn

import minipt2

from .. import models
from ..report import measure


@dataclass
class Row:
    """Results for a model and phase; times in milliseconds, compile times in seconds, memory in MiB."""

    model: str
    phase: str
    ms: dict[str, float] = field(default_factory=dict)
    faults: dict[str, float] = field(default_factory=dict)
    speedup: dict[str, float] = field(default_factory=dict)
    """Name of contender -> how many times minipt2 is faster, the median over rounds."""
    compile_s: dict[str, float] = field(default_factory=dict)
    cold_s: float | None = None
    """First call of a process of its own with an empty disk cache."""
    warm_s: float | None = None
    """The same of a second process, which finds the cache filled."""
    peak_mib: dict[str, float] = field(default_factory=dict)
    kernels: int = 0
    breaks: int = 0
    fallbacks: int = 0
    max_error: float = 0.0
    """Largest difference from eager over outputs (and gradients), as ``difference`` measures it."""
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Case:
    """A model with its inputs and step, the same for every contender. ``amp``: under autocast to bfloat16."""

    def __init__(self, name: str, phase: str, size: str, device: str = "cpu", amp: bool = False):
        self.name, self.train, self.device, self.amp = name, phase == "train", torch.device(device), amp
        self.model = models.build(name, size).train(self.train).to(self.device)
        for module in self.model.modules():  # all contenders must compute the same thing
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.inputs = tuple(x.to(self.device) for x in models.inputs(name, size))

    def step(self, model: Callable) -> Any:
        """A forward pass without grad, or forward and backward with gradients fresh."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.amp):
            if not self.train:
                with torch.no_grad():
                    return model(*self.inputs)
            self.model.zero_grad(set_to_none=True)
            loss = models.loss(model(*self.inputs))
        loss.backward()
        return loss.detach()

    def timed(self, model: Callable) -> None:
        """A step of which the device's work is over when it returns."""
        self.step(model)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def results(self, model: Callable) -> list[torch.Tensor]:
        """Outputs (and gradients when training) of one step, buffers put back as they were."""
        before = {name: b.clone() for name, b in self.model.named_buffers()}
        output = self.step(model)
        found = [output] if isinstance(output, torch.Tensor) else list(output)
        found += [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
        with torch.no_grad():
            for name, b in self.model.named_buffers():
                b.copy_(before[name])
        return found


def difference(expected: list[torch.Tensor], found: list[torch.Tensor]) -> float:
    """Largest absolute difference relative to the tensor's largest value, or to 1/1000 of the largest of all where that is more:
    gradients that are 0 but for rounding (a bias before batch norm, a key's bias before softmax) have no relative error worth naming."""
    if len(expected) != len(found):
        return float("inf")
    pairs = [(e.detach().double(), f.detach().double()) for e, f in zip(expected, found) if e.numel()]
    floor = max((float(e.abs().max()) for e, _ in pairs), default=0.0) / 1000
    return max((float((e - f).abs().max()) / max(float(e.abs().max()), floor, 1e-12) for e, f in pairs), default=0.0)


def run(name: str, phase: str, *, size: str = "bench", device: str = "cpu", amp: bool = False, mode: str | None = None, peer: bool = False,
        rounds: int = 15, threads: int = 1, memory: bool = False, warm: bool = False) -> Row:
    """Measure one row. ``mode``: of both compilers. ``peer`` adds ``torch.compile``; ``warm`` and ``memory`` start child processes."""
    row = Row(name, phase)
    torch.set_num_threads(threads)
    case = Case(name, phase, size, device, amp)
    contenders: dict[str, Callable] = {"eager": case.model}
    expected = case.results(case.model)
    minipt2.reset()
    with _cold_cache():
        ours = minipt2.compile(case.model, mode=mode)
        row.compile_s["minipt2"] = _seconds(lambda: case.timed(ours))
    counted = minipt2.counters()
    row.kernels, row.breaks, row.fallbacks = counted["kernels"], counted["breaks"], counted["fallbacks"]
    row.max_error = difference(expected, case.results(ours))
    contenders["minipt2"] = ours
    if peer:
        torch.compiler.reset()
        contenders["torch.compile"] = theirs = torch.compile(case.model, mode=mode)
        row.compile_s["torch.compile"] = _seconds(lambda: case.timed(theirs))
    calls = {who: (lambda model=model: case.timed(model)) for who, model in contenders.items()}
    timings = measure.interleave(calls, rounds, measure.clock_for(threads, device))
    for who, timing in timings.items():
        row.ms[who] = sorted(timing.seconds)[rounds // 2] * 1e3
        row.faults[who] = timing.faults
        if who != "minipt2":
            row.speedup[who] = measure.ratio(timing.seconds, timings["minipt2"].seconds).median
    if case.device.type == "cuda":
        row.peak_mib = {who: _peak(call, case.device) for who, call in calls.items()}
    del contenders, ours, calls
    gc.collect()
    if warm:
        row.cold_s, row.warm_s = child("first-calls", name, phase, size)
    if memory and case.device.type == "cpu":
        row.peak_mib = {who: child(f"peak-{who}", name, phase, size) for who in ("eager", "minipt2")}
    return row


class _cold_cache:
    """Both compilers' disk caches off (ours: an empty folder), as the environment of children too."""

    def __enter__(self) -> None:
        import tempfile
        self._folder = tempfile.TemporaryDirectory(prefix="minipt2-bench-")
        self._patch = minipt2.config.patch(cache_dir=self._folder.name)
        self._patch.__enter__()
        os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

    def __exit__(self, *exc: Any) -> None:
        self._patch.__exit__(*exc)
        self._folder.cleanup()


def _peak(call: Callable[[], Any], device: torch.device) -> float:
    """MiB that a step needs on a GPU beyond what is allocated before it."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def child(task: str, name: str, phase: str, size: str) -> Any:
    """Run ``task`` in a fresh process and return what it prints (a number, or a list of them)."""
    argv = [sys.executable, "-m", "minipt2.bench.child", task, name, phase, size]
    env = dict(os.environ, OMP_NUM_THREADS=str(torch.get_num_threads()))
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if done.returncode:
        raise RuntimeError(f"bench child {task} {name} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])
