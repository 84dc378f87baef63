"""SymInts among the arguments of a graph become nodes."""
from __future__ import annotations

import torch
from torch import fx

from minipt2.prims.lazy import Graph
from minipt2.shapes import ShapeEnv, call, materialize

from .test_env import At


def test_graph_runs_on_plain_numbers():
    env = ShapeEnv()
    n, m = env.symbol(4, At("n")), env.symbol(6, At("m"))
    graph = Graph()
    inputs = [graph.placeholder(name) for name in "nmx"]
    for node, val in zip(inputs, (n, m, None)):
        node.meta["val"] = val
    view = graph.call_function(torch.Tensor.reshape, (inputs[2], [n * m // 2, call(max, n, m + 1), n - m + 3]))
    sliced = graph.call_function(torch.Tensor.narrow, (view, 0, n // 4, n * m // 2 - 2))
    graph.output((sliced, n * m // 2, call(float, n)))
    gm = materialize(fx.GraphModule({}, graph))
    out, half, real = gm(6, 8, torch.arange(24 * 9.0))
    assert out.shape == (22, 9, 1) and half == 24 and real == 6.0
    assert sum(node.op == "call_function" and node.name.startswith("floordiv") for node in gm.graph.nodes) == 2
    before = gm.code
    assert materialize(gm).code == before
