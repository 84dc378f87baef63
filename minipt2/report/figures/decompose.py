"""What one torch call becomes: ATen operators, then prims; and the census of a whole model."""
from __future__ import annotations

from collections import Counter
from typing import Any, Callable, Mapping, Sequence

from torch import fx

from ... import api, trace
from ..text import node as node_text
from ..text import target_name
from .frame import Figure, Line, Pane, State


def stages(fn: Callable[..., Any], args: Sequence[Any]) -> tuple[list[str], list[str], list[str]]:
    """Calls in the captured graph, in the ATen graph and in the graph of prims of ``fn``, as text (forward only, if nothing needs gradients)."""
    found: dict[str, list[str]] = {"graph": [], "joint": [], "decomposed": []}

    def listen(stage: str, name: str, gm: fx.GraphModule) -> None:
        key = stage if stage == "graph" else name
        if key in found:
            found[key] += [node_text(n) for n in gm.graph.nodes if n.op in ("call_function", "call_method")]
    unsubscribe = trace.subscribe(listen, "graph", "aot")
    try:
        api.compile(fn)(*args)
    finally:
        unsubscribe()
    return found["graph"], found["joint"], found["decomposed"]


def explorer(samples: Mapping[str, tuple[Callable[..., Any], Sequence[Any]]], name: str = "decompose") -> Figure:
    """One state for each of ``samples``: title -> (function, arguments). ``data[title]`` counts the calls in the three graphs."""
    states, data = [], {}
    for title, (fn, args) in samples.items():
        captured, aten, prims = stages(fn, args)
        data[title] = [len(captured), len(aten), len(prims)]
        states.append(State(title, {}, {"torch": "\n".join(captured), "aten": "\n".join(aten), "prims": "\n".join(prims)}))
    panes = [Pane("as captured", slot="torch", wide=True), Pane("ATen, one call of the dispatcher each", slot="aten", wide=True),
             Pane("prims: no broadcasting, no promotion", slot="prims", wide=True)]
    return Figure(name, "From one call to prims.", "Choose an operator and read what it is made of.", panes, states, "select", "operator", data=data)


def census(fn: Callable[..., Any], args: Sequence[Any], name: str = "census") -> Figure:
    """How often each operator is called in the three graphs. ``data``: the counts, by stage."""
    found: dict[str, Counter[str]] = {"torch": Counter(), "aten": Counter(), "prims": Counter()}

    def listen(stage: str, what: str, gm: fx.GraphModule) -> None:
        key = "torch" if stage == "graph" else {"joint": "aten", "decomposed": "prims"}.get(what)
        if key:
            found[key].update(target_name(n.target) for n in gm.graph.nodes if n.op in ("call_function", "call_method"))
    unsubscribe = trace.subscribe(listen, "graph", "aot")
    try:
        api.compile(fn)(*args)
    finally:
        unsubscribe()
    panes = [Pane(f"{key}: {len(count)} kinds, {sum(count.values())} calls", [Line(f"{n:5}  {op}") for op, n in count.most_common()])
             for key, count in found.items()]
    return Figure(name, "A census of operators.", "The same model, three times: the calls its author wrote, the operators that PyTorch's dispatcher "
                  "sees, and what our backend has to know.", panes, data={k: dict(c) for k, c in found.items()})
