"""Cut a joint graph into a forward and a backward graph, saving as few bytes in between as recomputation allows.

What the backward needs of the forward is either saved or computed again from what is. Each candidate is a pair of
vertices joined by an edge of capacity "bytes to save it"; recomputing costs too, an edge from the source of capacity
"work to compute it again"; contractions, random and unknown operators must not run twice, so theirs is infinite. A minimum
cut is the cheapest choice. Views are never saved (their base is) and cost nothing to take again.

Upstream: ``torch._functorch.partitioners`` and Chen et al., "Training Deep Nets with Sublinear Memory Cost".
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable

from torch import fx

from ..config import config
from ..exercise import exercise
from ..prims.kinds import kind as prims_kind
from ..prims.lazy import Graph, LazyGraphModule
from ..shapes.known import likely
from .ops import aten
from .simplify import drop_dead, output_node
from .sizes import symbol_inputs

Cost = Callable[[fx.Node], float]
Kind = Callable[[fx.Node], str]
RECOMPUTABLE = frozenset({"pointwise", "view"})
CHEAP_RATE, DEAR_RATE = 1 / 32, 1 / 8
"""Price of recomputing one byte of a pointwise result, in bytes saved: a long chain is not worth one saved tensor."""
_DEAR = frozenset("exp expm1 exp2 log log1p log2 log10 erf erfc erfinv tanh sin cos tan asin acos atan atan2 sinh cosh pow lgamma digamma gelu "
                  "gelu_backward silu sigmoid softplus mish".split())


def nbytes(node: fx.Node) -> float:
    """Bytes of the tensor that ``node`` makes, at the sizes at hand; infinite for anything else, which cannot be saved."""
    val = node.meta.get("val")
    if not hasattr(val, "dtype") or not hasattr(val, "shape"):
        return math.inf
    return float(math.prod(likely(val.shape)) * val.dtype.itemsize)


def backward_nodes(joint: fx.GraphModule) -> set[fx.Node]:
    """The nodes that depend on a tangent, tangents included: they can only run in the backward."""
    found: set[fx.Node] = set()
    for node in joint.graph.nodes:
        if node.meta.get("tangent") or (node.op == "call_function" and any(a in found for a in node.all_input_nodes)):
            found.add(node)
    return found


def needed_from_forward(joint: fx.GraphModule, backward: set[fx.Node]) -> list[fx.Node]:
    """The values that backward nodes, and the gradients themselves, read from outside the backward."""
    grads = [g for g in output_node(joint.graph).args[0][1] if isinstance(g, fx.Node)]
    needed = dict.fromkeys(a for node in joint.graph.nodes if node in backward for a in node.all_input_nodes)
    needed.update(dict.fromkeys(grads))
    return [n for n in needed if n not in backward and n.op != "get_attr"]


def recompute_nothing_dear(node: fx.Node) -> float:
    """The default price of computing ``node`` again: nothing for pointwise operators and views, else infinite."""
    return 0.0 if prims_kind(node) in RECOMPUTABLE else math.inf


@exercise("3.4")
def min_cut(joint: fx.GraphModule, cost: Cost, recompute: Cost = recompute_nothing_dear) -> set[fx.Node]:
    """The set of nodes to save that minimises ``cost`` of what is saved plus ``recompute`` of what is computed again.

    joint: returns ``(outputs, grads)``; placeholders with ``meta["tangent"]`` are the tangents.
    cost(node): the price of saving; infinite for what cannot be saved. recompute(node): the price of running it twice.
    Raises ``networkx.NetworkXUnbounded`` when something needed can be neither saved nor computed again.
    """
    # >>> 3.4
    import networkx as nx  # a fifth of a second that inference does without

    backward = backward_nodes(joint)
    needed = needed_from_forward(joint, backward)
    network = nx.DiGraph()
    pending, seen = list(needed), set(needed)
    while pending:
        node = pending.pop()
        network.add_edge((node, 0), (node, 1), capacity=cost(node))
        again = math.inf if node.op == "placeholder" else recompute(node)
        if again > 0:
            network.add_edge("source", (node, 0), capacity=again)
        if again == math.inf:
            continue  # it is there once and for all: what it was made from does not matter
        for argument in node.all_input_nodes:
            if argument.op == "get_attr":
                continue
            network.add_edge((argument, 1), (node, 0), capacity=math.inf)
            if argument not in seen:
                seen.add(argument)
                pending.append(argument)
    for node in needed:
        network.add_edge((node, 1), "sink", capacity=math.inf)
    if "source" not in network or "sink" not in network:
        return set()
    _, (reachable, _) = nx.minimum_cut(network, "source", "sink", flow_func=nx.algorithms.flow.boykov_kolmogorov)
    return _first_met(needed, {node for node in seen if (node, 0) in reachable and (node, 1) not in reachable})
    # <<< 3.4


def _first_met(needed: list[fx.Node], cut: set[fx.Node]) -> set[fx.Node]:
    """The part of ``cut`` that is read: free nodes behind another saved one are cut edges too, and of no use."""
    found, pending, seen = set(), list(needed), set(needed)
    while pending:
        node = pending.pop()
        if node in cut:
            found.add(node)
            continue
        fresh = [a for a in node.all_input_nodes if a not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return found


def is_view(node: fx.Node, kind: Kind) -> bool:
    """Whether ``node`` looks into the storage of its first argument (an element of a tuple is judged by the tuple's maker)."""
    if node.op != "call_function":
        return False
    return kind(node.args[0] if node.target is operator.getitem else node) == "view"


def storage_root(node: fx.Node, kind: Kind) -> fx.Node:
    """The node whose storage ``node`` looks into."""
    while is_view(node, kind):
        node = node.args[0]
    return node


def default_cost(kind: Kind) -> Cost:
    """Bytes, but parameters are there anyway (free), other inputs often are (half), and views only keep their base (never)."""
    def cost(node: fx.Node) -> float:
        if node.op == "placeholder" and not node.meta.get("mutated"):
            return 0.0 if node.meta.get("static") else nbytes(node) / 2
        return math.inf if is_view(node, kind) else nbytes(node)
    return cost


def default_recompute(kind: Kind) -> Cost:
    """Nothing for views, a fraction of a byte per byte for pointwise operators and gathered parameters, more for those that take many instructions."""
    def price(node: fx.Node) -> float:
        if node.target is operator.getitem:
            return 0.0
        what = kind(node)
        if what in ("pointwise", "gather"):
            name = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
            return (DEAR_RATE if name in _DEAR else CHEAP_RATE) * nbytes(node)
        return 0.0 if what == "view" else math.inf
    return price


def written_again(joint: fx.GraphModule, kind: Kind) -> set[fx.Node]:
    """On a GPU, what contractions of the backward read: the forward wrote it for its own ones, and computing it again means a kernel that
    reads what it is made of and writes it once more. (On a CPU, where memory is what is short, that is accepted.)"""
    backward = backward_nodes(joint)
    read = [a for node in backward if kind(node) == "contraction" for a in node.all_input_nodes if a not in backward]
    return {root for root in (storage_root(a, kind) for a in read) if root.op == "call_function" and _on_gpu(root)}


def _on_gpu(node: fx.Node) -> bool:
    device = getattr(node.meta.get("val"), "device", None)
    return device is not None and device.type == "cuda"


def choose_saved(joint: fx.GraphModule, kind: Kind = prims_kind) -> set[fx.Node]:
    """What to save: the cheapest cut under the default prices, the user's checkpoints and ``config.memory_budget``."""
    from .budget import honour_checkpoints, within

    again, written = default_recompute(kind), written_again(joint, kind)

    def recompute(node: fx.Node) -> float:
        return again(node) + (nbytes(node) if node in written else 0.0)
    prices = honour_checkpoints(joint, kind, default_cost(kind), recompute)
    return within(joint, config.memory_budget, kind, *prices)


def partition(joint: fx.GraphModule, kind: Kind = prims_kind) -> tuple[fx.GraphModule, fx.GraphModule]:
    """``split`` at ``choose_saved``."""
    return split(joint, choose_saved(joint, kind))


@exercise("3.3")
def split(joint: fx.GraphModule, saved: set[fx.Node]) -> tuple[fx.GraphModule, fx.GraphModule]:
    """The forward and the backward graph of ``joint`` when ``saved`` is kept in between.

    Forward: the primals -> ``(*outputs, *saved)``. Backward: ``(*symbols, *saved, *tangents) -> grads``, with everything else it needs
    computed again; ``symbols`` are all primals that are symbolic numbers. Both list ``saved`` in the order of the joint graph. ``meta["outputs"]`` of the forward counts its real outputs.
    """
    # >>> 3.3
    outputs, grads = output_node(joint.graph).args[0]
    order = [n for n in joint.graph.nodes if n in saved]
    given = [n for n in joint.graph.nodes if n.meta.get("tangent")]
    backward = backward_nodes(joint)
    forward_graph, copies = Graph(), {}
    for node in joint.graph.nodes:
        if node not in backward and node.op != "output":
            copies[node] = forward_graph.node_copy(node, copies.__getitem__)
    kept = [_own_copy(forward_graph, copies[n]) if n.meta.get("mutated") else copies[n] for n in order]
    forward_graph.output((*fx.node.map_arg(outputs, copies.__getitem__), *kept))
    drop_dead(forward_graph)
    forward = LazyGraphModule(joint, forward_graph)
    forward.meta["outputs"] = len(outputs)
    return forward, _backward_module(joint, [*symbol_inputs(joint.graph), *order, *given], backward, grads)
    # <<< 3.3


def _own_copy(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """The input is overwritten when the forward has run; the backward needs what it was."""
    clone = graph.call_function(aten.clone.default, (node,))
    clone.meta = {k: v for k, v in node.meta.items() if k in ("val", "stack")}
    return clone


def _backward_module(joint: fx.GraphModule, inputs: list, backward: set, grads: Any) -> fx.GraphModule:
    graph, copies = Graph(), {}
    for node in inputs:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = {k: v for k, v in node.meta.items() if k in ("val", "stack", "static", "tangent", "source")}
    for node in joint.graph.nodes:
        if node in backward and node.op == "call_function":
            _copy_with_inputs(node, graph, copies)
    for grad in grads:
        if isinstance(grad, fx.Node):
            _copy_with_inputs(grad, graph, copies)
    graph.output(tuple(fx.node.map_arg(grads, copies.__getitem__)))
    drop_dead(graph)
    return LazyGraphModule(joint, graph)


def _copy_with_inputs(node: fx.Node, graph: fx.Graph, copies: dict[fx.Node, fx.Node]) -> None:
    """Copy ``node``, and before it what it needs and nobody needed yet: recomputation happens as late as it can."""
    pending = [node]
    while pending:
        top = pending[-1]
        missing = [] if top in copies else [a for a in top.all_input_nodes if a not in copies]
        if missing:
            pending.extend(reversed(missing))
            continue
        pending.pop()
        if top not in copies:
            copies[top] = graph.node_copy(top, copies.__getitem__)
