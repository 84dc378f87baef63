"""``fx.GraphModule``s among what is compiled: called like any module, and captured anew when somebody edits their graph."""
from __future__ import annotations

import torch
from torch import fx, nn

import minipt2

from tests.compare import assert_same


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x, scale=2):
        return torch.relu(self.linear(x)) * scale


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x, scale=3) + 1


def exchange(module, old, new):
    for node in module.graph.nodes:
        if node.target is old:
            node.target = new
    module.recompile()


def check(model, inner):
    fn, x = minipt2.compile(model, backend="eager", fullgraph=True), torch.randn(2, 3)
    assert_same(model(x), fn(x))
    exchange(inner, torch.relu, torch.tanh)
    assert_same(model(x), fn(x))
    handle = inner.register_forward_hook(lambda module, args, out: out * 3)
    assert_same(model(x), fn(x))
    handle.remove()
    assert_same(model(x), fn(x))


def test_a_graph_module_itself():
    traced = fx.symbolic_trace(Layer())
    check(traced, traced)


def test_a_graph_module_inside_another_module():
    traced = fx.symbolic_trace(Layer())
    check(Around(traced), traced)
