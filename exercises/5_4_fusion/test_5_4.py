import random

import torch

import minipt2
from minipt2 import prims as P
from minipt2.config import config
from minipt2.course.checks import same
from minipt2.course.programs import groups_of, schedule_of
from minipt2.inductor.scheduler import fuse

A = torch.zeros(48, 64)


def spread(v, like):
    return P.broadcast_in_dim(v, like.shape, [0])


def softmax(u):
    m = spread(P.amax(u, [1]), u)
    e = P.exp(P.sub(u, m))
    return P.div(e, spread(P.sum(e, [1]), u))


PROGRAMS = {
    "chain": (1, lambda u: [v := P.exp(u), v := P.mul(v, 2.0), P.sin(v)]),
    "softmax": (1, softmax),
    "two chains, one input": (1, lambda u: [P.exp(P.mul(u, 2.0)), P.sin(P.add(u, 1.0))]),
    "rows and columns": (2, lambda u: [P.sum(P.exp(u), [1]), P.sum(u, [0])]),
    "a product in between": (2, lambda u: [h := P.exp(u), P.sin(P.mm(h, P.permute(h, [1, 0])))]),
}


def test_golden_counts():
    """Kernels of small programs."""
    for name, (count, fn) in PROGRAMS.items():
        same(len(schedule_of(fn, A).kernels), count, where=f"kernels of {name}")


def test_order_independent():
    """However the groups are listed."""
    rng = random.Random(0)
    for name, (_, fn) in PROGRAMS.items():
        counts = set()
        for _ in range(4):
            groups = groups_of(fn, A)
            rng.shuffle(groups)
            counts.add(len(fuse(groups)))
        same(len(counts), 1, where=f"different numbers of groups for {name}: {counts}")


def test_most_bytes_first():
    """Where two fusions exclude each other, the larger saving wins, though the other pair stands closer."""
    def fn(u):
        h = P.exp(u)
        return h, P.sum(h, [1]), P.mul(h, u)  # the sum shares h with the exponential, the product h and u
    with config.patch(max_fusion_size=2):
        groups = fuse(groups_of(fn, torch.zeros(64, 64)))
    same(sorted(len(g.nodes) for g in groups), [1, 2])
    pair = next(g for g in groups if len(g.nodes) == 2)
    same(pair.reduces, False, where="whether the fused pair has the sum in it")


def test_an_order_that_may_run():
    """Producers before consumers."""
    for _, fn in PROGRAMS.values():
        s, made = schedule_of(fn, A), set()
        made |= {i.name for i in s.program.inputs} | {c.name for c in s.program.constants}
        for step in s.steps:
            assert step.reads() - step.writes() <= made, f"{step} reads {step.reads() - made} too early"
            made |= step.writes()


def test_switched_off():
    """config.fusion is an ablation: one kernel for each loop nest."""
    groups = groups_of(PROGRAMS["two chains, one input"][1], A)
    with config.patch(fusion=False):
        same(len(fuse(groups)), len(groups))


def test_compiled_transformer_block():
    """The whole compiler on your fusion: numbers, and far fewer kernels than operators."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").eval()
    x = torch.randn(2, 8, 32)
    with torch.no_grad():
        torch.backends.mha.set_fastpath_enabled(False)
        same(minipt2.compile(layer)(x), layer(x), rtol=1e-3, atol=1e-4)
    assert minipt2.counters()["kernels"] <= 8, minipt2.counters()
