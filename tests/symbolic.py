"""Test helper: functions of tensors as captured graphs whose sizes are symbols, without capture."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx

from minipt2.fake import FakeMode, FakeTensor
from minipt2.prims.meta import dims_by_stride, strides_in_order
from minipt2.shapes import ShapeEnv


class At:
    """A source that says where a number was."""

    def __init__(self, name: str):
        self._name = name

    def name(self) -> str:
        return self._name


class Symbolic:
    """``fn(*examples)`` as a graph: its symbols first, then one input for each example.

    dims: example -> its symbolic dimensions; by default all of them. Numbers among the examples vary too. ``graph`` and ``inputs`` are what
    a backend takes, ``arguments(*args)`` what its result is called with.
    """

    def __init__(self, fn: Callable[..., Any], examples: Sequence[Any], dims: dict[int, Sequence[int]] | None = None):
        self.fn, self.env, self.mode = fn, ShapeEnv(), FakeMode()
        self.places: dict[Any, tuple[torch.SymInt, int, int]] = {}
        values = [self._example(i, x, None if dims is None else dims.get(i, ())) for i, x in enumerate(examples)]
        self.inputs = [symbol for symbol, _, _ in self.places.values()] + values
        graph = fx.Graph()
        nodes = [graph.placeholder(f"x{k}") for k in range(len(self.inputs))]
        for node, value in zip(nodes, self.inputs):
            node.meta["val"] = value
        graph.output(graph.call_function(self._flat, tuple(nodes[len(self.places):])))
        self.graph = fx.GraphModule(torch.nn.Module(), graph)

    def _flat(self, *args: Any) -> tuple:
        result = self.fn(*args)
        return tuple(result) if isinstance(result, (tuple, list)) else (result,)

    def _example(self, i: int, x: Any, dims: Sequence[int] | None) -> Any:
        if not isinstance(x, torch.Tensor):
            return self.env.number(x, At(f"x[{i}]"))
        shape = [self.env.symbol(n, At(f"x[{i}].shape[{d}]")) if dims is None or d in dims else n for d, n in enumerate(x.shape)]
        for d, n in enumerate(shape):
            if isinstance(n, torch.SymInt):
                self.places.setdefault(n.node.expr, (n, i, d))
        strides = strides_in_order(shape, dims_by_stride(x.stride()))
        elem = torch.empty_strided(shape, strides, dtype=x.dtype, device="meta")
        return FakeTensor(self.mode, elem, x.device).requires_grad_(x.requires_grad)

    def arguments(self, *args: Any) -> list[Any]:
        return [*(args[i].shape[d] for _, i, d in self.places.values()), *args]

    def holds(self, *args: Any) -> bool:
        """Whether the guards allow ``args``."""
        import math

        return all(eval(g.test(lambda source: source.name()), {"math": math, "x": args}) for g in self.env.guards())

    def facts(self) -> list[str]:
        """The guards that are more than ``size >= 2`` and sharing of symbols, as text."""
        texts = [str(g).split(" with ")[0] for g in self.env.guards() if g.twin is None]
        return [t for t in texts if not t.endswith(" >= 2")]


def fresh(example: Any) -> Any:
    """A copy of a tensor, a leaf again."""
    if not isinstance(example, torch.Tensor):
        return example
    return example.detach().clone(memory_format=torch.preserve_format).requires_grad_(example.requires_grad)
