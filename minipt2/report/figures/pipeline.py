"""A function on its whole way: source, captured graph, prims, loop nests, C; what belongs together lights up together."""
from __future__ import annotations

import inspect
import linecache
from dataclasses import dataclass
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
    prims: list[Prims] = []
    plans: list[Schedule] = []

    def listen(stage: str, what: str, payload: Any) -> None:
        if stage == "graph":
            captured.append(payload)
        elif stage == "prims":
            prims.append(Prims.of(payload))
        elif stage == "scheduler":
            plans.append(payload)
    unsubscribe = trace.subscribe(listen, "graph", "prims", "scheduler")
    try:
        api.compile(fn)(*args)
    finally:
        unsubscribe()
    text, first = inspect.getsourcelines(fn)
    file = fn.__code__.co_filename
    source = [source_line(UserFrame(file, first + k, ""), t.rstrip("\n")) for k, t in enumerate(text)]
    loops, code = nests_and_code(plans[0], prims[0].captured)
    panes = [Pane("source", source), Pane("captured: FX graph", captured_lines(captured[0])), Pane("prims", prims[0].lines), Pane("loop nests", loops),
             Pane("C", code)]
    return Figure(name, "One function, five forms.", "Point at a line, or walk with the arrow keys: everything that came from it, or that it came "
                  "from, lights up.", panes, data={p.title: len(p.lines) for p in panes})


# Links: a place (file:line) is every line's that came from it, "=place" the source line's own; "#n" is captured node n, "~n" what was made of it;
# "^p" is prim p, "@p" the loops that compute it. A line lights its own kind's names in the other panes, and so never its neighbours.
@dataclass
class Prims:
    """Lines of a graph of prims. ``captured``: the captured node that each came from, by name."""

    lines: list[Line]
    captured: dict[str, str]

    @staticmethod
    def of(gm: fx.GraphModule) -> "Prims":
        calls = [n for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
        origin = {n.name: n.meta["captured"] for n in calls if "captured" in n.meta}
        lines = []
        for n in calls:
            places, made_of = _places(n.meta.get("stack") or ()), [origin[n.name]] if n.name in origin else []
            lines.append(Line(node_text(n), links=[*places, f"^{n.name}", *(f"~{c}" for c in made_of)],
                              lights=[*_own(places), f"@{n.name}", *(f"#{c}" for c in made_of)]))
        return Prims(lines, origin)


def place(frame: UserFrame) -> str:
    """The link of what came from a user's line."""
    return f"{Path(frame.file).name}:{frame.line}".replace(" ", "_")


def _places(stack: Iterable[UserFrame]) -> list[str]:
    return unique(place(f) for f in stack)


def _own(places: Iterable[str]) -> list[str]:
    return [f"={p}" for p in places]


def source_line(frame: UserFrame, text: str) -> Line:
    return Line(text, links=[f"={place(frame)}"], lights=[f"={place(frame)}", place(frame)])


def captured_lines(gm: fx.GraphModule) -> list[Line]:
    """A line for each call of a captured graph."""
    lines = []
    for n in gm.graph.nodes:
        if n.op not in ("placeholder", "output"):
            places = _places(n.meta.get("stack") or ())
            lines.append(Line(node_text(n), links=[*places, f"#{n.name}"], lights=[*_own(places), f"~{n.name}"]))
    return lines


def nests_and_code(plan: Schedule, captured: dict[str, str], prefix: str = "") -> tuple[list[Line], list[Line]]:
    """Loop nests before fusion, and the C of each kernel; buffers' links begin with ``prefix``."""
    loops: list[Line] = []
    for b in plan.program.buffers:
        if isinstance(b, Computed):
            loops.append(_made("\n".join([f"{b.name}:", *(f"  {t}" for t in str(b.body).splitlines())]), b.stack, b.origins, captured, [prefix + b.name]))
        elif b.target != "alloc":
            loops.append(_made(f"{b.name}: library call {b.target}", b.stack, b.origins, captured, [prefix + b.name]))
    code: list[Line] = []
    for kernel in plan.kernels:
        _, c = linked_kernel(kernel, plan)
        code.append(_made("\n".join([*(line.text for line in c), ""]), kernel.stack, kernel.origins, captured, [prefix + n for n in kernel.names]))
    return loops, code


def _made(text: str, stack: Iterable[UserFrame], origins: Iterable[str], captured: dict[str, str], buffers: list[str]) -> Line:
    places, origins = _places(stack), list(origins)
    nodes = unique(captured[o] for o in origins if o in captured)
    return Line(text, links=[*places, *(f"@{o}" for o in origins), *(f"~{n}" for n in nodes), *buffers],
                lights=[*_own(places), *(f"^{o}" for o in origins), *(f"#{n}" for n in nodes), *buffers])


def source_lines(frames: Iterable[UserFrame]) -> list[Line]:
    """The user's lines that took part, by file and line."""
    lines: list[Line] = []
    before = None
    for f in sorted({(f.file, f.line): f for f in frames}.values(), key=lambda f: (f.file, f.line)):
        if f.file != before:
            lines.append(Line(f.file))
            before = f.file
        lines.append(source_line(f, f"{f.line:5}  {linecache.getline(f.file, f.line).rstrip()}"))
    return lines
