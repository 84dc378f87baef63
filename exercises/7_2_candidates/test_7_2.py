from dataclasses import replace

import pytest
import torch

from minipt2 import prims as P
from minipt2.course.checks import same
from minipt2.course.programs import schedule_of
from minipt2.inductor.autotune.space import ELEMENTS, HELD, MOST, _distance, candidates, launchable
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.codegen.triton_blocks import choose
from minipt2.inductor.hardware import Hw

HARDWARE = [Hw(), Hw(sms=108, capability=80, shared=163 << 10)]
KERNELS = {
    "pointwise": (lambda x: P.add(P.mul(x, 2.0), 1.0), (512, 300)),
    "rows": (lambda x: P.sub(x, P.broadcast_in_dim(P.amax(x, [1]), x.shape, [0])), (60, 20)),
    "long rows": (lambda x: P.sub(x, P.broadcast_in_dim(P.amax(x, [1]), x.shape, [0])), (4, 50000)),
    "columns": (lambda x: P.sum(x, [0]), (2000, 40)),
}


def plans(name):
    fn, shape = KERNELS[name]
    s = schedule_of(fn, torch.zeros(shape))
    return [make_plan(step, s) for step in s.kernels]


@pytest.mark.parametrize("name", KERNELS)
def test_few_and_different(name):
    """At most MOST, none twice, more than the guess alone."""
    for plan in plans(name):
        for hw in HARDWARE:
            cs = candidates(plan, hw)
            same(len(set(cs)), len(cs), where="different ones of all candidates")
            assert 1 < len(cs) <= MOST, f"{len(cs)} candidates"


@pytest.mark.parametrize("name", KERNELS)
def test_the_guess_leads(name):
    """Whoever has no time takes the first."""
    for plan in plans(name):
        same(candidates(plan, HARDWARE[0])[0], choose(plan, HARDWARE[0], None))


@pytest.mark.parametrize("name", KERNELS)
def test_all_can_be_launched(name):
    """Threads, registers and shared memory suffice."""
    for plan in plans(name):
        for hw in HARDWARE:
            for c in candidates(plan, hw)[1:]:
                held, lanes = c.x * (c.y or 1) * (c.r or 1), 32 * c.warps
                assert lanes <= 1024 and held <= min(ELEMENTS, HELD * lanes), c


@pytest.mark.parametrize("name", KERNELS)
def test_near_ones_first(name):
    """Distances in doublings never fall."""
    for plan in plans(name):
        guess, *rest = candidates(plan, HARDWARE[0])
        distances = [_distance(guess, c) for c in rest]
        same(distances, sorted(distances))


def test_launchable_by_hand():
    """Each limit by itself."""
    (plan,) = plans("pointwise")
    hw, base = HARDWARE[0], replace(choose(plan, HARDWARE[0], None), x=1024, y=0, r=0, warps=4, stages=1)
    same(launchable(base, plan, hw), True, where="1024 elements, 4 warps")
    for why, c in {"too many threads": replace(base, x=4096, warps=64), "too many elements a thread": replace(base, x=16384, warps=4),
                   "idle threads": replace(base, x=16, warps=4), "too many elements": replace(base, x=ELEMENTS * 2, warps=32)}.items():
        same(launchable(c, plan, hw), False, where=why)
    same(launchable(replace(base, x=8192, warps=32, stages=9), plan, Hw(shared=1 << 10)), False, where="shared memory")
