"""Whole steps with recordings that share memory, beside eager: what a user's program may hold, repeat or leave out between two replays.

Kernels run under Triton's interpreter, recordings lie in the pool of ``pool.py``, in which a replay leaves rubbish where it may write.
"""
from __future__ import annotations

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import trace
from minipt2.config import config
from minipt2.inductor import cudagraphs
from tests.inductor.pool import Pool, recorded

W = 8


@pytest.fixture
def pool(fresh, monkeypatch):
    pool = Pool()
    recorded(monkeypatch, pool)
    with config.patch(triton_interpret=True, disk_cache=False):
        yield pool
    cudagraphs._leaving.clear()


@pytest.fixture
def told():
    reasons: list[str] = []
    unsubscribe = trace.subscribe(lambda stage, name, reason: reasons.append(reason), "cudagraphs")
    yield reasons
    unsubscribe()


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(W, W), nn.GELU(), nn.LayerNorm(W), nn.Linear(W, W), nn.Tanh())


def batch():
    return torch.randn(4, W)


def grads(model, call, xs):
    """Gradients of the batches ``xs``, one after another added up."""
    model.zero_grad(set_to_none=True)
    for x in xs:
        call(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters()]


def close(ours, eager):
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)


def test_a_step_is_replayed_in_the_memory_of_its_activations(pool, told):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    for _ in range(5):
        x = batch()
        close(grads(model, call, [x]), grads(model, model, [x]))
    assert pool.recorded == 2 and pool.apart == 0 and told == []
    backward, = [r for r in cudagraphs._recordings if r.recorder is pool and not r.shown]
    assert len(backward.lenders) == 1


def test_activations_are_taken_over_where_some_output_is_not_used(pool):
    model = mlp()
    call = minipt2.compile(lambda x: (model(x), x.sum() * model[0].bias), mode="reduce-overhead")
    for _ in range(4):
        x = batch()
        close(grads(model, lambda x: call(x)[0], [x]), grads(model, model, [x]))
    backward, = [r for r in cudagraphs._recordings if r.recorder is pool and not r.shown]
    assert len(backward.lenders) == 1 and pool.recorded == 2


def test_gradients_that_are_added_up(pool):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    for many in (1, 1, 1, 3, 3, 1, 2):
        xs = [batch() for _ in range(many)]
        close(grads(model, call, xs), grads(model, model, xs))
    assert pool.recorded == 2 and pool.apart == 0


def test_forwards_of_two_models_before_their_backwards(pool):
    models = [mlp(1), mlp(2)]
    calls = [minipt2.compile(m, mode="reduce-overhead") for m in models]
    for k in range(6):
        xs = [batch(), batch()]
        for m in models:
            m.zero_grad(set_to_none=True)
        losses = [call(x).square().mean() for call, x in zip(calls, xs)]
        for loss in losses[::1 - 2 * (k % 2)]:
            loss.backward()
        ours = [[p.grad.clone() for p in m.parameters()] for m in models]
        for m, x, found in zip(models, xs, ours):
            close(found, grads(m, m, [x]))


def test_two_forwards_before_their_backwards_and_hooks_that_hold_objects(pool):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    for k in range(8):
        xs = [batch(), batch()]
        model.zero_grad(set_to_none=True)
        if k % 2:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                losses = [call(x).square().mean() for x in xs]
        else:
            losses = [call(x).square().mean() for x in xs]
        for loss in losses:
            loss.backward()
        close([p.grad.clone() for p in model.parameters()], grads(model, model, xs))


def test_a_graph_that_is_kept(pool):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    for k in range(6):
        x = batch()
        model.zero_grad(set_to_none=True)
        loss = call(x).square().mean()
        loss.backward(retain_graph=k != 2)
        if k != 2:
            loss.backward()
        close([p.grad.clone() for p in model.parameters()], [(1 + (k != 2)) * g for g in grads(model, model, [x])])


def test_a_forward_whose_backward_never_comes(pool):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    kept = []
    for k in range(8):
        x = batch()
        close(grads(model, call, [x]), grads(model, model, [x]))
        if k > 2:
            kept.append((call(x), model(x)))
    for ours, eager in kept:
        close(ours, eager)


def test_a_broken_model(pool):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = mlp(3), mlp(4)

        def forward(self, x):
            h = self.a(x)
            stop()
            return self.b(h) + h
    model, stop = Broken(), minipt2.disable(lambda: None)
    call = minipt2.compile(model, mode="reduce-overhead")
    for many in (1, 1, 1, 2, 1):
        xs = [batch() for _ in range(many)]
        close(grads(model, call, xs), grads(model, model, xs))


def test_sizes_in_turns(pool):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead", dynamic=True)
    for _ in range(4):
        xs = [torch.randn(n, W) for n in (3, 5, 7)]
        for x in xs:
            close(grads(model, call, [x]), grads(model, model, [x]))
        close(grads(model, call, xs), grads(model, model, xs))


def test_no_memory_for_a_recording(pool, told, monkeypatch):
    model = mlp()
    call = minipt2.compile(model, mode="reduce-overhead")
    record, asked = pool.record, []

    def refuse(fn, inputs, moving, looks, apart):
        asked.append(1)
        if len(asked) in (2, 3):  # the backward, twice
            inputs.clear()
            raise torch.OutOfMemoryError("CUDA out of memory")
        return record(fn, inputs, moving, looks, apart)
    monkeypatch.setattr(pool, "record", refuse)
    for _ in range(9):
        x = batch()
        close(grads(model, call, [x]), grads(model, model, [x]))
    assert len(told) == 6 and "out of memory" in told[0] and pool.recorded == 2


def test_results_of_calls_without_gradients_are_held(pool):
    model = mlp().eval()
    call = minipt2.compile(model, mode="reduce-overhead")
    with torch.no_grad(), config.patch(freeze=False):
        previous = []
        for k in range(10):
            x = batch()
            previous.append((call(x), model(x)))
            for ours, eager in previous[-3:]:
                close(ours, eager)


def test_results_that_are_expanded(pool, told):
    """Those of a call, and gradients: one is the expanded tangent."""
    w, v = nn.Parameter(torch.randn(4, W)), nn.Parameter(torch.randn(4, W))
    model = lambda x: ((x * v).tanh() + w).sum()  # noqa: E731
    call, expanded = minipt2.compile(model, mode="reduce-overhead"), minipt2.compile(lambda x: (x.sum(0).expand(3, W), x * v), mode="reduce-overhead")
    held = []
    for _ in range(5):
        x = batch()
        w.grad = v.grad = None
        call(x).backward()
        held.append(([w.grad, v.grad], torch.autograd.grad(model(x), [w, v])))
        total, product = expanded(x)
        assert total.stride() == (0, 1)
        close([total, product], [x.sum(0).expand(3, W), x * v])
    for ours, eager in held:
        close(ours, list(eager))
    assert told == []
