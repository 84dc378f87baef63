"""The candidates of a kernel: they launch, they are few, the guess leads, and each computes the same (under Triton's interpreter)."""
from __future__ import annotations

from dataclasses import asdict

import pytest
import torch

import minipt2
from minipt2 import trace
from minipt2.config import config
from minipt2.inductor.autotune import candidates
from minipt2.inductor.autotune.space import MOST, launchable
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.codegen.triton import variant, walked_across
from minipt2.inductor.codegen.triton_blocks import choose
from minipt2.inductor.hardware import REFERENCE, Hw
from minipt2.inductor.scheduler.memory import storage_bytes
from minipt2.inductor.triton_interpreter import Interpreted

pytest.importorskip("triton")
KERNELS = {
    "pointwise": (lambda x: torch.relu(x) * 2 + 1, (16, 300)),
    "transpose": (lambda x: x.t().contiguous() + 1, (70, 90)),
    "transposes of each image": (lambda x: x.mT + x, (3, 70, 70)),
    "three ways": (lambda x: x + x.permute(1, 2, 0) + x.permute(2, 0, 1), (20, 20, 20)),
    "short rows": (lambda x: torch.softmax(x, -1), (60, 20)),
    "long rows": (lambda x: x - x.amax(-1, keepdim=True), (2, 5000)),
    "columns": (lambda x: x.sum(0), (200, 40)),
    "all": (lambda x: x.sum(), (50, 50)),
}


def kernels(name):
    """(plan, schedule) of the kernels that a function compiles to."""
    fn, shape = KERNELS[name]
    schedules = []
    unsubscribe = trace.subscribe(lambda stage, name, payload: schedules.append(payload), "schedule")
    try:
        with config.patch(triton_interpret=True):
            minipt2.compile(fn)(torch.randn(shape))
    finally:
        unsubscribe()
    return [(make_plan(step, schedule), schedule) for schedule in schedules for step in schedule.kernels]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("hw", [REFERENCE, Hw(sms=108, capability=80, shared=163 << 10)])
def test_candidates(fresh, name, hw):
    for plan, _ in kernels(name):
        across = walked_across(plan)
        cs = candidates(plan, hw, across)
        assert cs[0] == choose(plan, hw, across) and 1 < len(cs) <= MOST and len(set(cs)) == len(cs)
        assert all(launchable(c, plan, hw) for c in cs[1:])
        assert all(n & (n - 1) == 0 for c in cs for n in (c.x, max(c.y, 1), max(c.z, 1), max(c.r, 1), c.warps))


def run(plan, schedule, blocks):
    """What a kernel writes, from operands that are the same for every ``blocks``."""
    program, grid, checks = variant(plan, blocks, schedule)
    generator = torch.Generator().manual_seed(0)
    memory = [torch.rand(storage_bytes(schedule.layouts[p.buffer]) // p.dtype.itemsize, generator=generator).to(p.dtype) for p in plan.params]
    launch = dict(kernel=0, grid=list(grid), args=[["p", k] for k in range(len(memory))], sizes=[m.nbytes for m in memory], checks=checks)
    table = dict(device="cpu", programs=[asdict(program)], runs=[dict(arena=False, pointers=len(memory), aligned=[], launches=[launch])])
    assert Interpreted(table).run(0)(0, *[m.data_ptr() for m in memory]) == 0
    return [m for m, p in zip(memory, plan.params) if p.written]


@pytest.mark.parametrize("name", KERNELS)
def test_every_candidate_computes_the_same(fresh, name):
    for plan, schedule in kernels(name):
        guess, *others = candidates(plan, Hw(sms=2), walked_across(plan))
        wanted = run(plan, schedule, guess)
        for c in others[::3]:
            torch.testing.assert_close(run(plan, schedule, c), wanted, rtol=1e-5, atol=1e-4)

