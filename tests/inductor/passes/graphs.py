"""Test helper: the prims graph of a module's inference, as ``compile_graph`` receives it."""
from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import fx, nn

from minipt2 import prims
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly


def lift(module: nn.Module, inputs: int) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """``module`` as one graph of its parameters, its buffers and ``inputs`` tensors; and the former."""
    named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    graph = fx.Graph()
    state = [graph.placeholder(f"p{i}") for i in range(len(named))]
    for node in state:
        node.meta["static"] = True
    given = [graph.placeholder(f"x{i}") for i in range(inputs)]

    def call(*values: Any) -> Any:
        result = torch.func.functional_call(module, dict(zip(named, values)), tuple(values[len(named):]))
        return result if isinstance(result, tuple) else (result,)

    graph.output(graph.call_function(call, (*state, *given)))
    return fx.GraphModule(nn.Module(), graph), list(named.values())


def inference_graph(module: nn.Module, *inputs: torch.Tensor) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """(prims graph, all its arguments)."""
    gm, state = lift(module, len(inputs))
    graphs = []

    def keep(graph: fx.GraphModule, fakes: Any) -> Any:
        graphs.append(graph)
        return run_eagerly(graph)

    with torch.no_grad():
        aot_compile(gm, [*state, *inputs], fw_compiler=keep, decompose=prims.expand)
    return graphs[0], [*state, *inputs]


def targets(gm: fx.GraphModule) -> Counter[str]:
    return Counter(getattr(n.target, "name", str(n.target)) if not isinstance(n.target, torch._ops.OpOverload) else n.target._schema.name.split("::")[1]
                   for n in gm.graph.nodes if n.op == "call_function")


def run(gm: fx.GraphModule, args: list[torch.Tensor]) -> list[torch.Tensor]:
    gm.recompile()
    with torch.no_grad():
        return list(gm(*args))
