"""Loop nests before and after fusion, and why two of them may or may not share a loop."""
from __future__ import annotations

import itertools
from typing import Any, Callable, Sequence

from ... import api, trace
from ...config import config
from ...inductor.ir import Computed
from ...inductor.scheduler import Group, Schedule, why_not
from ...inductor.scheduler.graph import Order, dependencies
from ...inductor.scheduler.nodes import make_node
from .frame import Figure, Line, Pane, State

MOST_NESTS = 24
"""Every pair is asked about."""


def schedules(fn: Callable[..., Any], args: Sequence[Any], fusion: bool = True) -> list[Schedule]:
    """The schedule of every graph that a call of ``fn`` compiles."""
    found: list[Schedule] = []
    unsubscribe = trace.subscribe(lambda stage, name, plan: found.append(plan), "scheduler")
    try:
        with config.patch(fusion=fusion):
            api.compile(fn)(*args)
    finally:
        unsubscribe()
    return found


def fusion(fn: Callable[..., Any], args: Sequence[Any], name: str = "fusion") -> Figure:
    """``data``: kernels and bytes moved by them, without and with fusion. ``pairs`` holds the verdict of ``why_not`` on loop nests."""
    apart, fused = schedules(fn, args, fusion=False)[0], schedules(fn, args)[0]
    nests = [b for b in apart.program.buffers if isinstance(b, Computed)][:MOST_NESTS]
    home = {b: k for k, kernel in enumerate(fused.kernels) for b in kernel.names}
    lines = []
    for b in nests:
        lines.append(Line(f"{b.name}  ({', '.join(b.origins[:6])})", b.name, pick=b.name))
        lines += [Line(f"  {t}", b.name) for t in str(b.body).splitlines()]
    states = [State(f"one kernel per loop nest: {len(apart.kernels)} kernels, {apart.bytes_moved():,} bytes read and written", {},
                    {"kernels": str(apart)})]
    states += [State(f"fused: {len(fused.kernels)} kernels, {fused.bytes_moved():,} bytes; kernel {k} is marked",
                     {"now": [b for b, at in home.items() if at == k]}, {"kernels": str(fused)}) for k in range(len(fused.kernels))]
    panes = [Pane("loop nests, as lowered: click two", lines), Pane("steps in order", slot="kernels", wraps=True)]
    return Figure(name, "Loop nests and fusion groups.", "Move the slider to fuse. Pick any two loop nests by their names to ask the scheduler whether "
                  "they may share a loop, and why not.", panes, states, "range", "view", pairs=_verdicts(apart, nests),
                  data={"kernels": [len(apart.kernels), len(fused.kernels)], "bytes": [apart.bytes_moved(), fused.bytes_moved()]})


def _verdicts(plan: Schedule, nests: list[Computed]) -> dict[str, str]:
    """What ``why_not`` says of each pair, before anything is fused."""
    fresh, layouts = itertools.count(), plan.layouts
    steps = list(plan.program.buffers)
    nodes = {b.name: make_node(b, lambda n: layouts[n].dtype.itemsize, fresh) for b in steps if isinstance(b, Computed)}
    graph = Order(len(steps), dependencies(plan.program, steps, nodes))
    groups = {b.name: Group.of(nodes[b.name], k, graph, fresh) for k, b in enumerate(steps) if isinstance(b, Computed)}
    said = {}
    for a, b in itertools.combinations([n.name for n in nests], 2):
        reason = why_not(groups[a], groups[b])
        said[f"{a}|{b}"] = f"{a} and {b} stay apart: {reason}." if reason else f"{a} and {b} may share a loop nest."
    return said

