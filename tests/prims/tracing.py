"""A tiny ATen tracer on real tensors, for tests of ``expand`` alone: records what the dispatcher sees, in-place calls made functional."""
from __future__ import annotations

import operator
from typing import Any, Callable

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map


class Untraceable(Exception):
    """The program writes through a view or reads data back: what functionalisation and capture deal with elsewhere."""


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.graph, self.nodes, self.alive, self.constants = fx.Graph(), {}, [], {}

    def bind(self, tensor: torch.Tensor, node: fx.Node) -> None:
        self.nodes[id(tensor)] = node
        self.alive.append(tensor)

    def node(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self.nodes:
            name = f"constant{len(self.constants)}"
            self.constants[name] = value
            node = self.graph.get_attr(name)
            node.meta["val"] = value
            self.bind(value, node)
        return self.nodes[id(value)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        functional = func
        if func._schema.is_mutable:
            functional = self.functional(func, args)
        node_args, node_kwargs = tree_map(self.node, args), tree_map(self.node, kwargs)
        out = func(*args, **kwargs)
        node = self.graph.call_function(functional, tuple(node_args), node_kwargs)
        if isinstance(out, torch.Tensor):
            node.meta["val"] = out.detach().clone(memory_format=torch.preserve_format) if func is not functional else out
            self.bind(out, node)
        elif isinstance(out, (tuple, list)):
            node.meta["val"] = out
            for i, part in enumerate(out):
                if isinstance(part, torch.Tensor):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["val"] = part
                    self.bind(part, item)
        else:
            raise Untraceable(str(func))
        return out

    def functional(self, func: Any, args: Any) -> Any:
        packet, overload = func._schema.name.split("::")[1], func._schema.overload_name or "default"
        if torch.Tag.inplace_view in func.tags or not packet.endswith("_") or packet.endswith("__") or args[0]._is_view():
            raise Untraceable(str(func))
        packet = packet.rstrip("_")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if op is None:
            raise Untraceable(str(func))
        return op


def trace(fn: Callable[..., Any], *tensors: torch.Tensor) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """(ATen graph, eager results) of ``fn(*tensors)``; results are the flat list of tensors it returns."""
    mode = _Recorder()
    for i, tensor in enumerate(tensors):
        node = mode.graph.placeholder(f"arg{i}")
        node.meta["val"] = tensor
        mode.bind(tensor, node)
    with mode:
        out = fn(*tensors)
    results = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)]
    mode.graph.output(tuple([mode.node(t) for t in results])).meta["val"] = results
    return fx.GraphModule(mode.constants, mode.graph), results
