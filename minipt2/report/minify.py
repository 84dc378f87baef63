"""The smallest part of a graph that still shows a fault.

In: a captured graph, its inputs, and a question "is it still wrong?". Out: a graph of few operations with its inputs. Found by bisection: the
shortest beginning that is wrong, then the shortest end of that; what lies before becomes inputs, with the values it had.
Upstream: ``torch._functorch.fx_minifier``, which removes pieces by delta debugging (Zeller and Hildebrandt, 2002).
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch import fx

from ..exercise import exercise


@exercise("9.4")
def minify(gm: fx.GraphModule, xs: Sequence[Any], bad: Callable[[fx.GraphModule], bool]) -> fx.GraphModule:
    """A part of ``gm`` for which ``bad`` holds and of which no shorter beginning or end does.

    xs: arguments of ``gm``. bad(part): whether the fault shows; ``part.meta["inputs"]`` are the arguments to call it with. It is asked at most
    1 + 2·⌈log2(n)⌉ times for n operations. A single operation at fault is found wherever it stands, as long as what contains it is wrong.
    Raises ValueError if ``gm`` itself is not bad.
    """
    # >>> 9.4
    recorded = _Recorder(gm).record(xs)
    calls = [n for n in gm.graph.nodes if n.op in ("call_function", "call_method", "call_module")]
    whole = part = _part(gm, calls, recorded)
    if not bad(whole):
        raise ValueError("the graph does not show the fault, so there is nothing to make smaller")
    low, high = 0, len(calls)  # the first `low` operations are fine, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        candidate = _part(gm, calls[:middle], recorded)
        low, high, part = (low, middle, candidate) if bad(candidate) else (middle, high, part)
    first, last = 0, high  # from `first` on it is wrong, from `last` on there is nothing left
    while last - first > 1:
        middle = (first + last) // 2
        candidate = _part(gm, calls[middle:high], recorded)
        first, last, part = (middle, last, candidate) if bad(candidate) else (first, middle, part)
    return part
    # <<< 9.4


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps every value as it was when it was made."""

    def record(self, xs: Sequence[Any]) -> dict[fx.Node, Any]:
        self.values: dict[fx.Node, Any] = {}
        with torch.no_grad():
            self.run(*xs)
        return self.values

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _part(gm: fx.GraphModule, calls: Sequence[fx.Node], recorded: dict[fx.Node, Any]) -> fx.GraphModule:
    """The operations ``calls`` alone: what they read from outside as inputs, what none of them reads as outputs."""
    inside = set(calls)
    outside = dict.fromkeys(a for n in calls for a in n.all_input_nodes if a not in inside)
    graph, copies = fx.Graph(), {}
    for node in outside:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in calls:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[n] for n in calls if not inside.intersection(n.users)))
    part = fx.GraphModule(gm, graph)
    part.meta["inputs"] = [recorded[node] for node in outside]
    return part
