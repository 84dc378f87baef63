"""The joint graph with what is saved between forward and backward, over the memory budget."""
from __future__ import annotations

from typing import Any, Callable, Sequence

from torch import fx

from ... import api, trace
from ...aot_autograd.partition import backward_nodes, choose_saved, nbytes
from ...config import config
from ...prims.lazy import LazyGraphModule
from ..text import target_name
from .frame import Figure, Line, Pane, State, escape

BUDGETS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
ROW, WIDTH, BOX = 26, 860, 250
DRAWN = 90
"""Nodes of the largest graph that is drawn; a larger one is listed."""


def captured_joint(fn: Callable[..., Any], args: Sequence[Any]) -> fx.GraphModule:
    """The joint graph of prims of the one graph in ``fn``, as it is before it is cut. Compiles ``fn``; nothing runs backward."""
    found: list[fx.GraphModule] = []
    unsubscribe = trace.subscribe(lambda stage, name, gm: found.append(snapshot(gm)) if name == "decomposed" else None, "aot")
    try:
        api.compile(fn)(*args)
    finally:
        unsubscribe()
    return found[0]


def snapshot(gm: fx.GraphModule) -> fx.GraphModule:
    """A copy of the graph that later passes don't change."""
    graph = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    graph.output(graph.graph_copy(gm.graph, values))
    for old, new in values.items():
        new.meta = dict(old.meta)
    return LazyGraphModule(gm, graph)


def joint_graph(fn: Callable[..., Any], args: Sequence[Any], name: str = "joint") -> Figure:
    """``data["bytes"]`` and ``data["saved"]``: what is kept for the backward at each of ``data["budgets"]``."""
    return of_joint(captured_joint(fn, args), name)


def of_joint(joint: fx.GraphModule, name: str = "joint", budgets: Sequence[float] = BUDGETS) -> Figure:
    """The figure of a joint graph whose output is ``(outputs, grads)``."""
    backward = backward_nodes(joint)
    nodes = [n for n in joint.graph.nodes if n.op != "output"]
    left, right = [n for n in nodes if n not in backward], [n for n in nodes if n in backward]
    states, kept, totals = [], [], []
    for budget in budgets:
        with config.patch(memory_budget=budget):
            saved = choose_saved(joint)
        again = computed_again(joint, saved, backward)
        own = [n for n in saved if not n.meta.get("static")]
        total = int(sum(nbytes(n) for n in own))
        kept.append(sorted(n.name for n in saved))
        totals.append(total)
        label = f"memory budget {budget:g}: {len(own)} tensors, {total:,} bytes saved beside the parameters; {len(again)} operations run again"
        states.append(State(label, {"saved": [n.name for n in saved], "again": [n.name for n in again]}))
    panes: list[Pane | str]
    if len(nodes) <= DRAWN:
        panes = [f'<div class="mp-pane mp-wide"><p class="mp-title">forward on the left, backward on the right, time runs down and back up</p>'
                 f"{_drawing(left, right, states[0])}</div>"]
    else:
        panes = [Pane("forward", [_listed(n) for n in left]), Pane("backward", [_listed(n) for n in right])]
    panes.append("<p class=\"mp-said mp-wide\">Green: kept for the backward. Dashed yellow: computed again there. The red line is the cut.</p>")
    return Figure(name, "The joint graph and its cut.", "What the backward needs of the forward is either kept or computed again. The budget says how "
                  "much may be kept.", panes, states, "range", "memory budget", data={"bytes": totals, "saved": kept, "budgets": list(budgets)})


def computed_again(joint: fx.GraphModule, saved: set[fx.Node], backward: set[fx.Node]) -> list[fx.Node]:
    """Forward operations that the backward graph repeats, given what is saved."""
    pending = [a for n in joint.graph.nodes if n in backward for a in n.all_input_nodes]
    found: dict[fx.Node, None] = {}
    while pending:
        node = pending.pop()
        if node in saved or node in backward or node in found or node.op != "call_function":
            continue
        found[node] = None
        pending += node.all_input_nodes
    return list(found)


def _text(node: fx.Node) -> str:
    val = node.meta.get("val")
    shape = f" {list(val.shape)}" if hasattr(val, "shape") else ""
    what = node.name if node.op in ("placeholder", "get_attr") else target_name(node.target)
    return f"{what}{shape}"


def _listed(node: fx.Node) -> Line:
    return Line(f"{node.name} = {_text(node)}", node.name)


def _drawing(left: list[fx.Node], right: list[fx.Node], first: State) -> str:
    rows = max(len(left), len(right))
    height = rows * ROW + 20
    place = {n: (10, 10 + k * ROW) for k, n in enumerate(left)}
    place.update({n: (WIDTH - BOX - 10, 10 + (rows - 1 - k) * ROW) for k, n in enumerate(right)})
    parts = []
    for node, (x, y) in place.items():
        for a in node.all_input_nodes:
            if a in place:
                parts.append(_edge(place[a], (x, y)))
    for node, (x, y) in place.items():
        classes = " ".join(k for k, names in first.marks.items() if node.name in names)
        parts.append(f'<g data-name="{node.name}" class="{classes}"><rect class="node" x="{x}" y="{y}" width="{BOX}" height="{ROW - 5}" rx="4"/>'
                     f'<text x="{x + 7}" y="{y + 15}">{escape(_text(node)[:36])}</text></g>')
    parts.append(f'<line class="cut" x1="{WIDTH / 2}" y1="0" x2="{WIDTH / 2}" y2="{height}"/>')
    return (f'<svg viewBox="0 0 {WIDTH} {height}" role="img" tabindex="0" aria-label="Joint graph: {len(left)} forward and {len(right)} backward nodes">'
            + "".join(parts) + "</svg>")


def _edge(a: tuple[int, int], b: tuple[int, int]) -> str:
    (ax, ay), (bx, by) = a, b
    half = ROW // 2 - 2
    if ax == bx:  # within a column: a bow on the inner side
        side = ax + BOX if ax < WIDTH / 2 else ax
        bend = side + (30 if ax < WIDTH / 2 else -30)
        return f'<path class="edge" d="M{side} {ay + half} C{bend} {ay + half} {bend} {by + half} {side} {by + half}"/>'
    return f'<path class="edge" d="M{ax + BOX} {ay + half} C{WIDTH / 2} {ay + half} {WIDTH / 2} {by + half} {bx} {by + half}"/>'
