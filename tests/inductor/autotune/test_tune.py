"""Block sizes raced with planted times, on a CPU: Triton's interpreter stands in for the GPU."""
from __future__ import annotations

import pytest
import torch

from minipt2 import prims as P
from minipt2 import trace
from minipt2.config import config
from minipt2.inductor.autotune import tune, tuned
from minipt2.inductor.autotune.space import candidates, launchable, neighbours
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.codegen.triton_blocks import choose
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from tests.inductor.programs import graph_of

from .interpreter import interpreter

__all__ = ["interpreter"]
pytest.importorskip("triton")
X = torch.randn(48, 100)


def scheduled(fn, *tensors):
    plan = schedule(lower(graph_of(fn, *tensors)), GPU)
    return [make_plan(k, plan) for k in plan.kernels], plan


@pytest.fixture
def race(monkeypatch, tmp_path, interpreter):
    """``race(fn, seconds)``: the blocks chosen for the kernels of ``fn(X)`` where blocks take ``seconds(blocks)``."""
    told = []

    def run(fn, seconds, **settings):
        monkeypatch.setattr(tune._Race, "time", lambda self, c: seconds(c))
        monkeypatch.setattr(tune, "BUDGET", 60.0)
        monkeypatch.setattr(tune, "SMALL", 0)
        with config.patch(cache_dir=str(tmp_path), triton_interpret=True, **settings):
            stop = trace.subscribe(lambda stage, name, payload: told.append(payload), "autotune")
            try:
                return tuned(*scheduled(fn, X), REFERENCE, torch.device("cpu")), told
            finally:
                stop()
    return run


def test_the_fastest_blocks_are_taken_and_kept(race, monkeypatch):
    plans, _ = scheduled(P.relu, X)
    cs = candidates(plans[0], REFERENCE)
    (best,), told = race(P.relu, lambda c: 1.0 if c == cs[3] else 2.0)
    assert best == cs[3] != cs[0] and told[0].kernel == "relu_kernel" and told[0].best == best
    tune._chosen.clear()
    assert race(P.relu, lambda c: 1 / 0)[0] == [best]


def test_the_first_guess_stays_where_nothing_is_faster(race):
    plans, _ = scheduled(P.relu, X)
    assert race(P.relu, lambda c: 1.0)[0] == [choose(plans[0], REFERENCE)]


def test_the_generator_is_given_what_was_found(race):
    """Kernels and blocks belong together, whatever stands between the kernels."""
    def fn(x):
        return [P.relu(x), P.sum(P.exp(x), [1])]
    plans, plan = scheduled(fn, X)
    wanted = {tuple(p.name for p in q.params): candidates(q, REFERENCE)[-1] for q in plans}
    last = [candidates(q, REFERENCE)[-1] for q in plans]
    blocks, _ = race(fn, lambda c: 1.0 if c in last else 2.0)
    assert len(blocks) == len(plans) == len(wanted)
    source = codegen.generate(plan, REFERENCE, lambda given, _: blocks)
    assert all(f"XBLOCK: tl.constexpr = {b.x}" in source.text for b in blocks)


def test_descent_goes_beyond_the_candidates(race):
    plans, _ = scheduled(P.relu, X)
    near = candidates(plans[0], REFERENCE)
    far = max(near, key=lambda c: c.x)
    (best,), _ = race(P.relu, lambda c: 1000.0 / c.x, coordinate_descent=True)
    assert best.x > far.x or best.x == max(c.x for q in near for c in [q, *neighbours(q, plans[0], REFERENCE)])


@pytest.mark.parametrize("fn", [P.relu, lambda x: P.sum(x, [1]), lambda x: P.sum(x, [0]), lambda x: P.add(P.permute(x, [1, 0]), 1.0)])
def test_neighbours_launch(fn):
    for plan in scheduled(fn, X)[0]:
        for c in candidates(plan, REFERENCE):
            near = neighbours(c, plan, REFERENCE)
            assert all(launchable(n, plan, REFERENCE) and sum(vars(n)[f] != vars(c)[f] for f in vars(c)) == 1 for n in near)
