"""A function on its whole way: source, captured graph, prims, loop nests, C; what belongs together lights up together."""
from __future__ import annotations

import inspect
import linecache
from pathlib import Path
from typing import Any, Callable, Iterable, Sequence

from torch import fx

from ... import api, trace
from ...errors import UserFrame
from ...inductor.ir import Computed
from ...inductor.scheduler import Schedule
from ..text import node as node_text
from .code import linked_kernel
from .frame import Figure, Line, Pane, unique


def pipeline(fn: Callable[..., Any], args: Sequence[Any], name: str = "pipeline") -> Figure:
    """Panes for the one graph that a call of ``fn`` compiles. ``data``: how many lines each pane has."""
    captured: list[fx.GraphModule] = []
    prims: list[list[Line]] = []
    plans: list[Schedule] = []

    def listen(stage: str, what: str, payload: Any) -> None:
        if stage == "graph":
            captured.append(payload)
        elif stage == "prims":
            prims.append(graph_lines(payload))
        elif stage == "scheduler":
            plans.append(payload)
    unsubscribe = trace.subscribe(listen, "graph", "prims", "scheduler")
    try:
        api.compile(fn)(*args)
    finally:
        unsubscribe()
    text, first = inspect.getsourcelines(fn)
    file = fn.__code__.co_filename
    source = [Line(t.rstrip("\n"), links=[place(UserFrame(file, first + k, ""))]) for k, t in enumerate(text)]
    loops, code = nests_and_code(plans[0])
    panes = [Pane("source", source), Pane("captured: FX graph", graph_lines(captured[0])), Pane("prims", prims[0]), Pane("loop nests", loops),
             Pane("C", code, wide=True)]
    return Figure(name, "One function, five forms.", "Point at a line, or walk with the arrow keys: everything that came from it, or that it came "
                  "from, lights up.", panes, data={p.title: len(p.lines) for p in panes})


def place(frame: UserFrame) -> str:
    """The link of a user's line."""
    return f"{Path(frame.file).name}:{frame.line}".replace(" ", "_")


def graph_lines(gm: fx.GraphModule) -> list[Line]:
    """A line for each call, linked to the user's line it came from and to what is made of it."""
    return [Line(node_text(n), links=unique([*_places(n.meta.get("stack") or ()), f"@{n.name}"])) for n in gm.graph.nodes
            if n.op not in ("placeholder", "output")]


def _places(stack: Iterable[UserFrame]) -> list[str]:
    return [place(f) for f in stack]


def nests_and_code(plan: Schedule, prefix: str = "") -> tuple[list[Line], list[Line]]:
    """Loop nests before fusion, and the C of all kernels; a kernel's lines carry the links of all that went into it."""
    loops: list[Line] = []
    for b in plan.program.buffers:
        links = _links(b.stack, b.origins) + [f"{prefix}{b.name}"]
        if isinstance(b, Computed):
            loops += [Line(t, links=links) for t in [f"{b.name}:", *(f"  {t}" for t in str(b.body).splitlines())]]
        elif b.target != "alloc":
            loops.append(Line(f"{b.name}: library call {b.target}", links=links))
    code: list[Line] = []
    for k, kernel in enumerate(plan.kernels):
        links = _links(kernel.stack, kernel.origins) + [f"{prefix}{n}" for n in kernel.names]
        _, c = linked_kernel(kernel, plan, f"{prefix}k{k}")
        code += [Line(line.text, links=links) for line in c] + [Line("")]
    return loops, code


def _links(stack: Iterable[UserFrame], origins: Iterable[str]) -> list[str]:
    return unique([*_places(stack), *(f"@{o}" for o in origins)])


def source_lines(places: Iterable[UserFrame]) -> list[Line]:
    """The user's lines that took part, by file and line."""
    frames = sorted({(f.file, f.line): f for f in places}.values(), key=lambda f: (f.file, f.line))
    lines, before = [], None
    for f in frames:
        if f.file != before:
            lines.append(Line(f.file))
            before = f.file
        lines.append(Line(f"{f.line:5}  {linecache.getline(f.file, f.line).rstrip()}", links=[place(f)]))
    return lines
