"""Small helpers that several passes share."""
from __future__ import annotations

from math import prod
from typing import Any, Callable, Collection, Iterable

import torch
from torch import fx

from ...prims import TABLE, Prim, TensorMeta
from ...prims.kinds import kind

SYMBOLIC = (torch.SymInt, torch.SymFloat)
UNKNOWN = 8192
"""What a size that depends on data is taken for. (This module does without sympy: loading a stored graph imports it.)"""


def emit(graph: fx.Graph, target: Any, args: Iterable[Any], like: fx.Node, val: Any = None) -> fx.Node:
    """A new node at the graph's insertion point, with ``like``'s user frames; a prim's meta rule gives its value when ``val`` is None."""
    node = graph.call_function(target, tuple(args))
    node.meta["stack"] = like.meta.get("stack", ())
    node.meta["val"] = infer(node) if val is None else val
    return node


def prim(graph: fx.Graph, name: str, args: Iterable[Any], like: fx.Node) -> fx.Node:
    return emit(graph, TABLE[name], args, like)


def infer(node: fx.Node) -> Any:
    """What the prim's meta rule says of ``node``'s result."""
    def value(arg: Any) -> Any:
        if isinstance(arg, fx.Node):
            return meta_of(arg.meta["val"])
        return type(arg)(map(value, arg)) if isinstance(arg, (list, tuple)) else arg
    assert isinstance(node.target, Prim)
    return node.target.meta(*map(value, node.args))


def meta_of(val: Any) -> Any:
    """TensorMeta of anything tensor-like; numbers as they are."""
    return TensorMeta.of(val) if hasattr(val, "stride") and not isinstance(val, TensorMeta) else val


def is_prim(node: Any, *names: str) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.target, Prim) and node.target.name in names


def shape_of(node: fx.Node) -> tuple[int, ...]:
    return tuple(node.meta["val"].shape)


def likely(n: Any) -> int:
    """A size as a number: for decisions about speed, what a symbolic one was when the graph was captured."""
    return n if isinstance(n, int) else UNKNOWN if n.node.hint is None else n.node.hint


def numel(node: fx.Node) -> int:
    """Elements of a node's value, by ``likely``; 1 for what is no tensor."""
    val = node.meta.get("val")
    return prod(map(likely, val.shape)) if hasattr(val, "shape") else 1


def same_sizes(a: Iterable[Any], b: Iterable[Any]) -> bool:
    """Whether sizes are known to be equal. Unlike ``==``, asks no question that would become a guard."""
    return plain_sizes(a) == plain_sizes(b)


def plain_sizes(sizes: Iterable[Any]) -> list[Any]:
    """Ints and expressions: what can be compared without asking."""
    return [n if isinstance(n, int) else n.node.expr for n in sizes]


def symbolic(node: fx.Node) -> bool:
    """Whether sizes that are arguments of the call occur in a node's value or arguments."""
    found = []
    fx.node.map_aggregate((node.args, node.kwargs), lambda a: found.append(a) if isinstance(a, SYMBOLIC) else None)
    vals = node.meta.get("val")
    for val in vals if isinstance(vals, (tuple, list)) else (vals,):
        found += [n for n in (val, *getattr(val, "shape", ())) if isinstance(n, SYMBOLIC)]
    return bool(found)


def static_nodes(graph: fx.Graph, pure: Callable[[fx.Node], bool], but: Collection[fx.Node] = ()) -> set[fx.Node]:
    """Nodes that depend on parameters, buffers and constants only (and on at least one of them), and on none of ``but``."""
    found: set[fx.Node] = set()
    free: set[fx.Node] = set()  # depend on nothing at all: full, iota ...
    for node in graph.nodes:
        if node.op == "placeholder":
            if node.meta.get("static") and node not in but and isinstance(node.meta.get("val"), (torch.Tensor, TensorMeta)):
                found.add(node)
        elif node.op == "get_attr":
            found.add(node)
        elif node.op == "call_function" and pure(node) and not symbolic(node):
            inputs = node.all_input_nodes
            if all(i in free for i in inputs):
                free.add(node)
            elif all(i in found or i in free for i in inputs):
                found.add(node)
    return found


WIDE = 1 << 20
"""Bytes from which on it matters that a second copy of a parameter is wider than the first."""


def widened(graph: fx.Graph, static: set[fx.Node]) -> set[fx.Node]:
    """Those of ``static`` whose numbers are wider than the parameter's they are made from: a weight of bytes, dequantised. Who keeps bytes wants
    their memory: such a value is made anew at each call. What takes more than a pass over elements (a product of factors, a decomposition) has
    numbers of its own, and is made once."""
    origin: dict[fx.Node, fx.Node] = {}
    found = set()
    for node in graph.nodes:
        if node not in static:
            continue
        cheap = kind(node) in ("view", "pointwise", "index")
        origin[node] = max((origin[i] for i in node.all_input_nodes if cheap and i in origin), key=numel, default=node)
        here, there = (getattr(n.meta.get("val"), "dtype", None) for n in (node, origin[node]))
        if here is not None and there is not None and here.itemsize > there.itemsize and numel(node) * here.itemsize >= WIDE:
            found.add(node)
    return found


def placeholders(graph: fx.Graph) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op == "placeholder"]


def output_node(graph: fx.Graph) -> fx.Node:
    return next(n for n in reversed(graph.nodes) if n.op == "output")
