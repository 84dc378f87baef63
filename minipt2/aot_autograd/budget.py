"""Save less than the cheapest plan would: what a memory budget and the user's own checkpoints mean for the cut.

A budget ``b`` asks for at most ``least + b * (default - least)`` bytes, where ``default`` is what the default prices save and ``least``
what is saved when all that may run twice does. Between them the price of all work is one number: the lower it is, the more is computed
again, and each price gives the cut that is best for it. Layers that are alike change their minds at the same price; there the first
layers get the lower price and the rest the higher one, and where the line runs is found by bisection as the price is.

Upstream: ``torch._functorch.partitioners`` (``choose_saved_values_set``, ``dp_knapsack``), which picks among the values that the default
plan saves, one by one; a price lets values be computed again together. Tagged regions: ``CheckpointPolicy`` of the same file.
"""
from __future__ import annotations

import math
import operator
from typing import Callable

from torch import fx

from ..prims.kinds import draws
from ..shapes.known import likely
from .partition import Cost, Kind, backward_nodes, is_view, min_cut, nbytes, storage_root

AGAIN = frozenset({"pointwise", "view", "reduction", "index", "contraction", "gather"})
"""Kinds that may run twice. Random numbers are drawn once, and of other operators nothing is known."""
BYTES_A_FLOP = 0.1
"""What a floating-point operation of a library kernel costs, in bytes moved: a core's 100 GFLOP/s against its 10 GB/s."""
BYTES_A_BYTE_READ = 0.25
"""The same for a byte that a reduction or a gather reads."""
_STEPS = 8


def maker(node: fx.Node) -> fx.Node:
    """The operator of which ``node`` is the value, or one of several."""
    return node.args[0] if node.target is operator.getitem else node


def flops(node: fx.Node) -> float:
    """Multiplications and additions of a contraction: twice its output's elements times the elements each of them sums."""
    shapes = [likely(a.meta["val"].shape) for a in node.all_input_nodes if hasattr(a.meta.get("val"), "shape")]
    out = likely((node.meta["val"][0] if isinstance(node.meta["val"], (tuple, list)) else node.meta["val"]).shape)
    name = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", "")
    if "convolution" in name:
        weight = shapes[1]
        return 2.0 * math.prod(out) * math.prod(weight[1:])
    if "attention" in name:
        return 4.0 * math.prod(shapes[0]) * shapes[1][-2]
    matrices = [s for s in shapes if len(s) >= 2]
    return 2.0 * math.prod(out) * (matrices[-2][-1] if len(matrices) > 1 else 1)


def work(kind: Kind, default: Cost) -> Cost:
    """The work of running a node again in bytes; infinite for what must not. ``default`` prices pointwise operators and views."""
    def price(node: fx.Node) -> float:
        what = kind(node)
        if what in ("pointwise", "view", "gather") or what not in AGAIN or draws(node):
            return default(node)
        read = BYTES_A_BYTE_READ * sum(nbytes(a) for a in node.all_input_nodes if math.isfinite(nbytes(a)))
        return max(read, BYTES_A_FLOP * flops(node)) if what == "contraction" else read
    return price


def within(joint: fx.GraphModule, budget: float, kind: Kind, cost: Cost, recompute: Cost) -> set[fx.Node]:
    """What to save under ``budget`` (0: as little as can be, 1: what ``cost`` and ``recompute`` choose); see the module's docstring."""
    total = lambda saved: sum(map(cost, saved))  # noqa: E731
    default = min_cut(joint, cost, recompute)
    if budget == 1:
        return default
    effort, place = work(kind, recompute), {n: i for i, n in enumerate(joint.graph.nodes)}

    def cut(low: float, high: float, line: float) -> set[fx.Node]:
        return min_cut(joint, cost, lambda n: effort(n) * (low if place[n] < line else high))

    best = cut(1e-6, 1e-6, 0)
    limit = total(best) + budget * (total(default) - total(best))
    if total(best) >= total(default):
        return default

    def search(try_at: Callable[[float], set[fx.Node]], enough: float, too_far: float) -> tuple[float, float]:
        """Two points next to each other, the first with a cut within the limit (the dearest such is kept)."""
        nonlocal best
        for _ in range(_STEPS):
            middle = (enough + too_far) / 2
            saved = try_at(middle)
            if total(saved) <= limit:
                enough, best = middle, saved
            else:
                too_far = middle
        return enough, too_far

    low, high = search(lambda e: cut(10 ** e, 10 ** e, 0), -6.0, 6.0)
    search(lambda line: cut(10 ** low, 10 ** high, line), float(len(place)), 0.0)
    return best


def honour_checkpoints(joint: fx.GraphModule, kind: Kind, cost: Cost, recompute: Cost) -> tuple[Cost, Cost]:
    """The two prices, such that inside each region that the user checkpointed (``meta["checkpoint"]``) nothing is saved that may run twice.

    What a region hands on is saved when the backward needs it: were it computed again, so would all regions before.
    """
    regions = {n: n.meta["checkpoint"] for n in joint.graph.nodes if n.meta.get("checkpoint") is not None}
    if not regions:
        return cost, recompute
    backward = backward_nodes(joint)
    handed_on = {storage_root(n, kind) for n, region in regions.items()
                 if any(u not in backward and regions.get(u) != region for u in n.users)}
    inside = {n for n in regions if n not in backward and n not in handed_on and kind(maker(n)) in AGAIN and not draws(maker(n))}

    def price(node: fx.Node) -> float:
        if node in inside:
            return 0.0
        return math.inf if node in handed_on and not is_view(node, kind) else recompute(node)
    return (lambda n: math.inf if n in inside else cost(n)), price
