"""Small programs of prims for exercises' tests: as graphs, as loop nests, as schedules; and what a compiled function generated."""
from __future__ import annotations

import itertools
from typing import Any, Callable

import torch
from torch import fx

from .. import trace
from ..inductor.ir import Computed
from ..inductor.lowering import lower
from ..inductor.scheduler import Group, schedule
from ..inductor.scheduler.graph import Order, dependencies
from ..inductor.scheduler.kernels import Schedule
from ..inductor.scheduler.nodes import make_node
from ..prims.core import Recorder, TensorMeta


def graph_of(fn: Callable[..., Any], *tensors: torch.Tensor) -> fx.GraphModule:
    """The graph of prims that ``fn`` records on inputs like ``tensors``."""
    recorder = Recorder()
    with recorder:
        values = [recorder.bind(recorder.graph.placeholder(f"x{k}"), TensorMeta.of(t)) for k, t in enumerate(tensors)]
        made = fn(*values)
        made = made if isinstance(made, (tuple, list)) else (made,)
        recorder.graph.output(tuple(v.node for v in made))
    return fx.GraphModule({}, recorder.graph)


def groups_of(fn: Callable[..., Any], *tensors: torch.Tensor) -> list[Group]:
    """Every loop nest of ``fn``'s program as a group of its own, before any fusion."""
    program = lower(graph_of(fn, *tensors))
    buffers, fresh = program.by_name(), itertools.count()
    nodes = {b.name: make_node(b, lambda n: buffers[n].layout.dtype.itemsize, fresh) for b in program.buffers if isinstance(b, Computed)}
    graph = Order(len(program.buffers), dependencies(program, program.buffers, nodes))
    return [Group.of(nodes[b.name], k, graph, fresh) for k, b in enumerate(program.buffers) if b.name in nodes]


def schedule_of(fn: Callable[..., Any], *tensors: torch.Tensor) -> Schedule:
    """What the scheduler makes of ``fn``."""
    return schedule(lower(graph_of(fn, *tensors)))


def generated(call: Callable[[], Any], ending: str) -> list[str]:
    """Generated sources (``".c"``, ``".py"``) of everything that ``call`` compiles."""
    texts: list[str] = []
    stop = trace.subscribe(lambda stage, name, text: texts.append(str(text)) if name.endswith(ending) else None, "code")
    try:
        call()
    finally:
        stop()
    return texts
