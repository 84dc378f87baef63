"""Attention for tests: tensors of heads, and graphs of one call of an attention kernel."""
from __future__ import annotations

import operator
from typing import Any, Sequence

import torch
from torch import fx


def heads(b: int, h: int, length: int, depth: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor of heads as a projection leaves it: (b, h, length, depth) over rows of h x depth."""
    return torch.randn(b, length, h, depth).to(dtype).transpose(1, 2)


def graph_of(target: Any, *args: Any, outputs: Sequence[int] = (0,), **kwargs: Any) -> fx.GraphModule:
    """The graph of one call, whose tensors are inputs, and of those of its results that ``outputs`` names."""
    graph, known = fx.Graph(), {}

    def given(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in known:
            node = known[id(value)] = graph.placeholder(f"x{len(known)}")
            node.meta["val"] = value
        return known[id(value)]
    made = graph.call_function(target, tuple(map(given, args)), {name: given(a) for name, a in kwargs.items()})
    made.meta["val"] = target(*args, **kwargs)
    parts = [graph.call_function(operator.getitem, (made, i)) for i in outputs]
    for part, i in zip(parts, outputs):
        part.meta["val"] = made.meta["val"][i]
    graph.output(tuple(parts))
    return fx.GraphModule({}, graph)
