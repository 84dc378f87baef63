"""Inference: what depends on parameters alone is computed once, and again when a parameter changes.

Before::

    def graph(x, weight, gamma, var):            # weight, gamma, var: meta["static"]
        scale = gamma * rsqrt(var + 1e-5)
        folded = weight * scale[:, None, None, None]
        return convolution(x, folded, ...)

After: a prologue ``(weight, gamma, var) -> (folded,)``, and ``def graph(x, folded): return convolution(x, folded, ...)``.

``Frozen`` holds the prologue's results under a check made at every call: the very same tensor objects, at the same addresses, with the same
version counters, and unchanged samples of their content (a write through ``.data`` does not move the version).
Upstream: ``torch._inductor.freezing`` (which assumes that parameters never change) and ``constant_folding``.
"""
from __future__ import annotations

import operator
from collections import OrderedDict
from typing import Any, Callable, Sequence
from weakref import ref

import torch
from torch import fx

from ...prims import kind
from ...prims.lazy import Graph
from ...prims.kinds import pure
from .graphs import SYMBOLIC, numel, output_node, placeholders, static_nodes, widened
from .samples import Samples

KEPT = 32
"""Sets of parameters for which results are kept (one graph may serve many equal layers)."""


def split_static(gm: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """(prologue, main); None when nothing depends on parameters alone.

    The prologue takes all of ``gm``'s placeholders that are static; main takes the placeholders it still reads, then the prologue's results.
    ``meta["positions"]`` of each says which arguments of ``gm`` it takes.
    """
    places = placeholders(gm.graph)
    written = [places[i] for i in gm.meta.get("mutated_inputs", {}).values()]  # an optimizer's parameters are others at each call
    static = static_nodes(gm.graph, pure, written)
    frontier = _frontier(gm.graph, static)
    if not frontier:
        return None
    inputs = placeholders(gm.graph)
    needed = _ancestors(frontier)
    prologue, old_to_new = Graph(), {}
    for node in gm.graph.nodes:
        if node in needed:
            old_to_new[node] = _copy(prologue, node, old_to_new)
    prologue.output(tuple(old_to_new[n] for n in frontier))

    main, old_to_new = Graph(), {}
    seen = [n for n in gm.graph.nodes if n.op == "call_function" and not pure(n)]
    live = _ancestors([*output_node(gm.graph).all_input_nodes, *seen], stop=set(frontier))
    kept = [n for n in inputs if (n in live or isinstance(n.meta.get("val"), SYMBOLIC)) and n not in frontier]
    for node in kept:
        old_to_new[node] = _copy(main, node, old_to_new)
    for node in frontier:
        new = old_to_new[node] = main.placeholder(f"frozen_{node.name}")
        new.meta = {**node.meta, "static": True, "frozen": True}
    for node in gm.graph.nodes:
        if node in live and node not in old_to_new and node.op != "placeholder":
            old_to_new[node] = _copy(main, node, old_to_new)
    out = main.output(fx.map_arg(output_node(gm.graph).args[0], old_to_new.__getitem__))
    out.meta = dict(output_node(gm.graph).meta)
    position = {n: i for i, n in enumerate(inputs)}
    result = fx.GraphModule(gm, prologue), fx.GraphModule(gm, main)
    for graph_module in result:
        graph_module.meta.update(gm.meta)
    result[0].meta["positions"] = [position[n] for n in inputs if n in needed]
    result[1].meta["positions"] = [position[n] for n in kept]
    if "mutated_inputs" in gm.meta:
        at = {old: new for new, old in enumerate(result[1].meta["positions"])}
        result[1].meta["mutated_inputs"] = {o: at[i] for o, i in gm.meta["mutated_inputs"].items() if i in at}
    return result


def _frontier(graph: fx.Graph, static: set[fx.Node]) -> list[fx.Node]:
    """Static nodes whose values the rest reads. What only repeats elements, or holds them wider, stays with its readers: nearly free inside a loop,
    memory outside."""
    distinct: dict[fx.Node, int] = {}  # elements a node's value is really made from
    for node in graph.nodes:
        count = numel(node)
        inputs = sum(distinct.get(i, count) for i in node.all_input_nodes)
        spread = node.op == "call_function" and kind(node) in ("view", "pointwise") and node.target is not operator.getitem
        distinct[node] = min(count, inputs) if spread else count
    late: set[fx.Node] = set()
    wider = widened(graph, static)
    for node in reversed(graph.nodes):
        if node in static and (node in wider or numel(node) > 4 * distinct[node]) and any(u not in static or u in late for u in node.users):
            late.add(node)
    early = [n for n in graph.nodes if n in static and n not in late]
    return [n for n in early if n.op == "call_function" and any(u not in static or u in late for u in n.users)]


def _ancestors(nodes: Sequence[fx.Node], stop: set[fx.Node] = frozenset()) -> set[fx.Node]:
    seen: set[fx.Node] = set()
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            if node not in stop:
                todo += node.all_input_nodes
    return seen


def _copy(graph: fx.Graph, node: fx.Node, old_to_new: dict[fx.Node, fx.Node]) -> fx.Node:
    new = graph.node_copy(node, old_to_new.__getitem__)
    new.meta = dict(node.meta)
    return new


class Frozen:
    """The prologue's results for the parameters it is called with, kept while these stay as they were.

    ``compute(statics) -> list`` runs the prologue. Several sets of parameters are kept side by side, least recently used ones go first,
    and so does a set one of whose tensors has died.
    """

    def __init__(self, compute: Callable[[Sequence[torch.Tensor]], list[Any]]):
        self.compute = compute
        self.sets: OrderedDict[tuple[int, ...], _Set] = OrderedDict()

    def __call__(self, statics: Sequence[torch.Tensor]) -> list[Any]:
        key = tuple(map(id, statics))  # a set goes when one of its tensors dies, so that an id cannot mean another object
        kept = self.sets.get(key)
        if kept is not None and kept.holds(statics):
            return kept.values
        return self._fill(key, statics)

    def _fill(self, key: tuple[int, ...], statics: Sequence[torch.Tensor]) -> list[Any]:
        with torch.inference_mode(False), torch.no_grad():
            values = self.compute(statics)
        self.sets[key] = _Set(statics, values, lambda _: self.sets.pop(key, None))
        self.sets.move_to_end(key)
        while len(self.sets) > KEPT:
            self.sets.popitem(last=False)
        return values


_version = operator.attrgetter("_version")


class _Set:
    """Results, and what their parameters were like when they were made. That they are the same objects is the caller's to check."""

    def __init__(self, statics: Sequence[torch.Tensor], values: list[Any], died: Callable[[Any], Any]):
        self.values = values
        self.refs = [ref(t, died) for t in statics]
        self.versions, self.pointers = _versions(statics), list(map(torch.Tensor.data_ptr, statics))
        self.samples = Samples(statics)

    def holds(self, statics: Sequence[torch.Tensor]) -> bool:
        # samples last: they read memory that only belongs to the tensors if the addresses are still theirs
        return (list(map(torch.Tensor.data_ptr, statics)) == self.pointers and _versions(statics) == self.versions
                and self.samples.same())


def _versions(statics: Sequence[torch.Tensor]) -> list[int]:
    try:
        return list(map(_version, statics))
    except RuntimeError:  # inference tensors have no version counter; the samples must do
        return [-1 if t.is_inference() else t._version for t in statics]
