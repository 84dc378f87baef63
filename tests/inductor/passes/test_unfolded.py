"""Gradients of convolutions as matrix products: the same numbers and memory orders, for every window; which way is taken is timed."""
import copy
import itertools

import pytest
import torch
from torch import nn

import minipt2
from minipt2.inductor.autotune import cpu, gradients
from minipt2.inductor.passes import unfolded
from minipt2.inductor.passes.unfolded import Gradients
from minipt2.trace import subscribe


@pytest.fixture
def always(monkeypatch):
    monkeypatch.setattr(gradients, "worth_unfolding", lambda problem: True)
    monkeypatch.setattr(unfolded, "FEWEST_MULTIPLICATIONS", 0)


def check(module, *inputs, dynamic=None):
    """Gradients of compiled ``module`` are eager's for each input, in eager's memory order; returns the names of the prims of the backward."""
    twin, seen = copy.deepcopy(module), []
    compiled = minipt2.compile(module, dynamic=dynamic)
    stop = subscribe(lambda stage, name, graph: seen.extend(getattr(n.target, "name", "") for n in graph.graph.nodes) if name.endswith("backward") else None,
                     "prims")
    for x in inputs:
        leaves = []
        for run in (compiled, twin):
            run.zero_grad(set_to_none=True)
            leaf = x.clone().requires_grad_()
            run(leaf).square().sum().backward()
            leaves.append(leaf)
        for found, expected in zip([leaves[0], *module.parameters()], [leaves[1], *twin.parameters()]):
            torch.testing.assert_close(found.grad, expected.grad, rtol=1e-4, atol=1e-3)
            assert found.grad.stride() == expected.grad.stride()
    stop()
    return seen


def between(convolution):
    return nn.Sequential(nn.Conv2d(6, 8, 3, padding=1), nn.ReLU(), convolution, nn.ReLU())


WINDOWS = [dict(kernel_size=k, stride=s, padding=p, dilation=d) for k, s, p, d in
           itertools.product((1, 3), (1, 2), (0, 1), (1, 2)) if k > 1 or d == 1]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("window", [*WINDOWS, dict(kernel_size=(2, 3), stride=(3, 1), padding=(1, 2), dilation=(1, 2)), dict(kernel_size=3, bias=False)])
def test_gradients_are_eagers(always, window, last):
    torch.manual_seed(0)
    module, x = between(nn.Conv2d(8, 10, **window)), torch.randn(3, 6, 9, 7)
    if last:
        module, x = module.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    seen = check(module, x)
    assert "mm" in seen and "convolution_backward" not in seen


@pytest.mark.parametrize("module", [nn.Conv2d(8, 8, 3, groups=2), nn.ConvTranspose2d(8, 4, 3), nn.Conv2d(8, 4, 4)], ids=["groups", "transposed", "16 taps"])
def test_others_stay(always, module):
    assert "convolution_backward" in check(nn.Sequential(nn.ReLU(), module), torch.randn(2, 8, 6, 6))


@pytest.mark.parametrize("window", [dict(kernel_size=3, padding=1), dict(kernel_size=3, stride=2), dict(kernel_size=1)])
@pytest.mark.parametrize("sizes", [[(2, 6, 8, 8), (3, 6, 8, 8), (5, 6, 8, 8)], [(2, 6, 8, 8), (2, 6, 10, 10), (2, 6, 13, 13)]], ids=["batch", "image"])
def test_sizes_that_vary(always, window, sizes):
    versions = []
    stop = subscribe(lambda stage, name, payload: versions.append(name), "guards")
    check(between(nn.Conv2d(8, 10, **window)), *map(torch.randn, sizes))
    stop()
    assert len(versions) == 2


def test_only_the_weights_gradient(always):
    module, x = nn.Conv2d(6, 8, 3, padding=1), torch.randn(2, 6, 5, 5)
    expected = torch.autograd.grad(module(x).square().sum(), module.weight)
    torch.testing.assert_close(torch.autograd.grad(minipt2.compile(module)(x).square().sum(), module.weight), expected, rtol=1e-4, atol=1e-4)


def test_the_race_times_both(monkeypatch):
    problem = Gradients((2, 8, 6, 6), (4, 8, 3, 3), (2, 1), (1, 0), (1, 1), (False, True, False), (True, True))
    for run in gradients.contenders(problem).values():
        run()
    for slow in ("vendor", "products"):
        monkeypatch.setattr(gradients, "seconds_of", lambda run: run())
        monkeypatch.setattr(gradients, "contenders", lambda p: {name: (lambda name=name: 1.0 + (name == slow)) for name in ("vendor", "products")})
        monkeypatch.setattr(cpu.cache, "load_entry", lambda key: None)
        monkeypatch.setattr(cpu.cache, "store_entry", lambda key, entry: None)
        cpu._remembered.cache_clear()
        assert gradients.worth_unfolding(problem) == (slow == "vendor")
    cpu._remembered.cache_clear()
