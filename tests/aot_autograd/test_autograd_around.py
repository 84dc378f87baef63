"""What users do around a compiled function: hooks, accumulation, retained and freed graphs, anomaly mode, second derivatives."""
import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import minipt2

from .observing import differences


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def both(scenario, make=model):
    """``scenario(call, module)`` of an eager and of a compiled module give the same."""
    module = make()
    twin = copy.deepcopy(module)
    expected, found = scenario(module, module), scenario(minipt2.compile(twin, backend="aot_eager", fullgraph=True), twin)
    assert not differences({"values": expected}, {"values": found})


def batch(k=0, grad=False):
    return torch.linspace(-1, 1 + k, 8).view(2, 4).requires_grad_(grad)


def test_accumulated_gradients():
    def scenario(call, module):
        for k in range(3):
            call(batch(k)).square().sum().backward()
        return [p.grad for p in module.parameters()]
    both(scenario)


def test_hooks_on_leaves_and_outputs():
    def scenario(call, module):
        seen, t = {"bias": [], "input": [], "out": []}, batch(grad=True)  # which leaf comes first is not said
        module[0].weight.register_hook(lambda g: g * 2)
        module[2].bias.register_post_accumulate_grad_hook(lambda p: seen["bias"].append(p.grad.clone()))
        t.register_hook(lambda g: seen["input"].append(g.clone()))
        for _ in range(2):
            out = call(t)
            out.register_hook(lambda g: g + 1)
            out.retain_grad()
            out.square().sum().backward()
            seen["out"].append(out.grad)
        return [*seen.values(), t.grad, *(p.grad for p in module.parameters())]
    both(scenario)


def test_gradients_of_some_inputs():
    def scenario(call, module):
        t = batch(grad=True)
        out = call(t).sin().sum()
        first = torch.autograd.grad(out, [t, module[2].bias], retain_graph=True)
        second = torch.autograd.grad(out, module[0].weight)
        return [*first, *second]
    both(scenario)


def test_frozen_parameters():
    def scenario(call, module):
        module[0].requires_grad_(False)
        call(batch()).sum().backward()
        module[0].requires_grad_(True)
        module[2].weight.requires_grad_(False)
        call(batch()).sum().backward()
        return [p.grad for p in module.parameters()]
    both(scenario)


def test_freed_graph():
    call = minipt2.compile(model(), backend="aot_eager")
    loss = call(batch()).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_anomaly_mode():
    def scenario(call, module):
        with torch.autograd.detect_anomaly(check_nan=True):
            call(batch()).sum().backward()
        return [p.grad for p in module.parameters()]
    with pytest.warns(UserWarning, match="Anomaly"):
        both(scenario)

    @minipt2.compile(backend="aot_eager")
    def root(t):
        return (t - t).sqrt() * 0
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan values"):
        root(torch.ones(3, requires_grad=True)).sum().backward()


def test_saved_tensors_hooks():
    """They see what the compiled function saves, and what they unpack is what its backward uses."""
    def scenario(call, module):
        packed = []

        def pack(t):
            packed.append(t)
            return t.double()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
            out = call(batch())
        assert packed
        with torch.autograd.graph.save_on_cpu():
            out = out + call(batch(1))
        out.sum().backward()
        return [p.grad for p in module.parameters()]
    both(scenario)


@pytest.mark.parametrize("reentrant", [False, True])
def test_compiled_under_checkpoint(reentrant):
    def scenario(call, module):
        t = batch(grad=True)
        checkpoint(call, t, use_reentrant=reentrant).square().sum().backward()
        return [t.grad, *(p.grad for p in module.parameters())]
    both(scenario)


def test_second_derivatives():
    def scenario(call, module):
        t = batch(grad=True)
        (slope,) = torch.autograd.grad(call(t).square().sum(), t, create_graph=True)
        slope.norm().backward()
        hessian = torch.autograd.functional.hessian(lambda u: call(u).exp().sum(), batch())
        return [t.grad, hessian, *(p.grad for p in module.parameters() if p.grad is not None)]
    both(scenario)


def test_second_derivative_of_what_may_be_differentiated_once():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].cos()

    for call in (Once.apply, minipt2.compile(lambda t: Once.apply(t) * 1, backend="aot_eager", fullgraph=True)):
        t = torch.ones(3, requires_grad=True)
        (slope,) = torch.autograd.grad(call(t).square().sum(), t, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiate twice a function that was marked with @once_differentiable"):
            slope.sum().backward()


def test_sparse_gradients_of_embeddings():
    results = []
    for wrap in (lambda fn: fn, lambda fn: minipt2.compile(fn, backend="aot_eager")):
        weight = torch.ones(5, 3, requires_grad=True)
        wrap(lambda w, i: F.embedding(i, w, sparse=True).sin())(weight, torch.tensor([1, 3])).sum().backward()
        results.append(weight.grad)
    assert results[0].is_sparse and results[1].is_sparse
    torch.testing.assert_close(results[1].to_dense(), results[0].to_dense())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_versions_of_saved_tensors(backend):
    call = minipt2.compile(lambda a, b: a * b.exp(), backend=backend)
    a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    out = call(a, b)
    with torch.no_grad():
        b.add_(1)
        a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_gradients_cut_by_the_caller():
    """The caller's modes at the call decide: no_grad, inference mode, inputs that do not require grad."""
    module = model()
    call = minipt2.compile(module, backend="aot_eager", fullgraph=True)
    t = batch(grad=True)
    with torch.no_grad():
        assert not call(t).requires_grad
    with torch.inference_mode():
        assert call(t).is_inference()
    assert call(t).requires_grad and call(t.detach()).requires_grad
    module.requires_grad_(False)
    assert not call(t.detach()).requires_grad
