"""Test helper: graphs like those that capture makes, from modules and functions, without capture."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx, nn


def lift(module: nn.Module, inputs: int = 1) -> tuple[fx.GraphModule, list[torch.Tensor], list[str]]:
    """``module`` as one graph whose placeholders are its parameters, its buffers and ``inputs`` tensors.

    Returns the graph, the parameters and buffers in order, and their names. The graph returns a flat tuple.
    """
    named = [*module.named_parameters(), *module.named_buffers()]
    names = [n for n, _ in named]
    graph = fx.Graph()
    state = [graph.placeholder("p_" + n.replace(".", "_")) for n in names]
    for node in state:
        node.meta["static"] = True
    given = [graph.placeholder(f"x{i}") for i in range(inputs)]

    def call(*values: torch.Tensor) -> Any:
        return torch.func.functional_call(module, dict(zip(names, values)), tuple(values[len(names):]))

    result = graph.call_function(call, (*state, *given))
    graph.output((result,))
    return fx.GraphModule(nn.Module(), graph), [t for _, t in named], names


def graph_of(fn: Callable[..., Any], inputs: int) -> fx.GraphModule:
    """``fn`` (returning a tuple of tensors) as a graph of one call."""
    graph = fx.Graph()
    given = [graph.placeholder(f"x{i}") for i in range(inputs)]
    graph.output(graph.call_function(lambda *xs: tuple(fn(*xs)), tuple(given)))
    return fx.GraphModule(nn.Module(), graph)


def copies(tensors: Sequence[torch.Tensor], leaf: bool = True) -> list[torch.Tensor]:
    """Independent tensors with the same contents, strides and ``requires_grad``; not leaves if so wished."""
    result = []
    for t in tensors:
        new = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t.detach()).requires_grad_(t.requires_grad)
        result.append(new if leaf or not t.requires_grad else new.clone())
    return result
