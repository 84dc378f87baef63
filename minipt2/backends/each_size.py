"""Graphs with symbolic sizes for a backend from outside that takes none of our symbols: one graph for each tuple of sizes.

A backend built on upstream's AOTAutograd asks a symbol for what only upstream's environment knows. Before, ``s0`` an input::

    forward(s0, x: f32[s0, 8]):  n = s0 * 8;  return (x.view(n),)

After, for a call with three rows: ``forward(s0, x: f32[3, 8]): return (x.view(24),)`` goes to the backend, and what it makes is kept for calls of
these sizes. Upstream has no counterpart: its backends share its symbols.
"""
from __future__ import annotations

from collections import OrderedDict
from typing import Any, Callable, Sequence

import torch
from torch import fx
from torch.amp import autocast_mode
from torch.fx.node import map_arg

from ..errors import warn
from ..fake import FakeMode
from ..shapes.known import SYMBOLIC

KEPT = 16
"""Tuples of sizes whose code is kept, those used last."""
Compile = Callable[[fx.GraphModule, list], Callable[..., Any]]


def has_symbols(example_inputs: Sequence[Any]) -> bool:
    """Whether an input is a symbol or a tensor with symbolic sizes."""
    return any(isinstance(x, SYMBOLIC) or isinstance(x, torch.Tensor) and x._has_symbolic_sizes_strides for x in example_inputs)


def for_each_size(compile: Compile, gm: fx.GraphModule, why: Exception) -> Callable[..., Any]:
    """``gm`` as ``compile(gm, fake_inputs)`` makes it for the sizes of each call, when they first come.

    ``why``: what it raised for symbols. Where it raises for known sizes too, ``gm`` runs as it is for them, with a warning that says both.
    """
    made: OrderedDict[tuple, Callable[..., Any]] = OrderedDict()

    def run(*args: Any) -> Any:
        key = tuple([(a.shape, a.stride(), a.requires_grad) if isinstance(a, torch.Tensor) else (type(a), a) for a in args])
        fn = made.get(key)
        if fn is None:
            fn = made[key] = _compiled(compile, gm, args, why)
            if len(made) > KEPT:
                made.popitem(last=False)
        made.move_to_end(key)
        return fn(*args)
    return run


def _compiled(compile: Compile, gm: fx.GraphModule, args: Sequence[Any], why: Exception) -> Callable[..., Any]:
    try:
        known, inputs = with_sizes(gm, args)
        return compile(known, inputs)
    except Exception as error:
        warn(f"a backend compiles a graph neither for symbolic sizes ({type(why).__name__}: {why}) nor for those at hand, for which it runs "
             f"eagerly: {type(error).__name__}: {error}")
        return gm.forward


def with_sizes(gm: fx.GraphModule, args: Sequence[Any]) -> tuple[fx.GraphModule, list]:
    """``gm`` for inputs like ``args`` only, its numbers known and its metadata without symbols, and fake inputs for it.

    Raises what operators raise where a number depends on data.
    """
    mode, graph = FakeMode(), fx.Graph()
    new: dict[fx.Node, Any] = {}
    values: dict[fx.Node, Any] = {}
    remaining, regions = iter(args), []
    try:
        with mode, torch.set_grad_enabled(torch.is_grad_enabled()):
            for node in gm.graph.nodes:
                value = values[node] = _value(mode, gm, node, values, remaining)
                created = graph.node_copy(node, new.__getitem__)
                if "val" in node.meta:
                    created.meta["val"] = value
                if isinstance(node.meta.get("val"), SYMBOLIC):
                    new[node] = value
                    if node.op != "placeholder":
                        graph.erase_node(created)
                else:
                    new[node] = created
                if node.target is autocast_mode._enter_autocast:
                    regions.append(value)
                elif node.target is autocast_mode._exit_autocast:
                    regions.remove(values[node.args[0]])
    finally:
        for region in reversed(regions):
            region.__exit__(None, None, None)
    known = fx.GraphModule(gm, graph)
    known.meta.update(gm.meta)
    return known, [values[n] for n in gm.graph.nodes if n.op == "placeholder"]


def _value(mode: FakeMode, gm: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any], inputs: Any) -> Any:
    """What ``node`` is for the sizes at hand: a fake tensor, or a number."""
    if node.op == "placeholder":
        value = next(inputs)
        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
    if node.op == "get_attr":
        owner, _, name = node.target.rpartition(".")
        value = getattr(gm.get_submodule(owner), name)
        return mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "output":
        return args[0]
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return (gm.get_submodule(node.target) if node.op == "call_module" else node.target)(*args, **kwargs)
