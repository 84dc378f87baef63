"""Triton's interpreter in the GPU's place: races whose kernels run, and whose times are planted."""
from __future__ import annotations

import contextlib
from dataclasses import asdict

import pytest
import torch

from minipt2.inductor import triton_pool
from minipt2.inductor.autotune import templates, tune
from minipt2.inductor.autotune.bench import Bench, filled
from minipt2.inductor.scheduler.memory import storage_bytes
from minipt2.inductor.triton_interpreter import Interpreted


class Interpreter(Bench):
    """A ``Bench`` over host memory."""

    def __init__(self, layouts, hw, device, values=()):
        numbers = torch.Generator("cpu").manual_seed(0)
        self.buffers = {n: filled(storage_bytes(v), v.dtype, numbers, n in values) for n, v in layouts.items()}

    def launch(self, program, made, names, grid, checks):
        places = [["p", k] for k in range(len(names))]
        launched = dict(kernel=0, grid=grid, args=places, sizes=[self.buffers[n].nbytes for n in names], checks=checks)
        runs = [dict(arena=False, pointers=len(names), aligned=[], launches=[launched])]
        assert Interpreted(dict(programs=[asdict(program)], runs=runs)).run(0)(0, *[self.buffers[n].data_ptr() for n in names]) == 0


    def recorded(self, run):
        return run


class Compiled:
    """Machine code that nobody needs; ``late``: of a kernel that does not get compiled in time."""

    def __init__(self, late=False):
        self.late = late

    def result(self, timeout=None):
        if self.late:
            raise TimeoutError

    def cancel(self):
        """It has begun: nobody stops it."""
        return False


@pytest.fixture
def interpreter(monkeypatch):
    """Races run by the interpreter."""
    for module in (templates, tune):
        monkeypatch.setattr(module, "on_gpu", lambda device: contextlib.nullcontext())
        monkeypatch.setattr(module, "Bench", Interpreter)
        monkeypatch.setattr(module, "_chosen", {})
    monkeypatch.setattr(triton_pool, "submit", lambda programs, capability: [Compiled() for _ in programs])
    return Interpreter
