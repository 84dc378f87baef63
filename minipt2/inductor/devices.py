"""Graphs with tensors on several devices: a piece for each stretch of work on one of them, copies between.

Before: ``y = relu(x); s = mul(scale, 2); z = mul(y, s); c = _to_copy(z, device="cpu"); w = exp(c)``, ``x`` on a GPU, ``scale`` a number on the CPU.
After: a piece on the CPU ``scale -> s``; eager ``s' = s.to("cuda")``; a piece on the GPU ``(x, s') -> z``; eager ``c``; a piece on the CPU ``c -> w``.

Each piece is compiled as if it were a graph of its own, for C or for Triton: kernels never mix devices, and fusion goes as far as a piece does.
Numbers on a CPU that a GPU's kernel reads (eager passes them along with the launch) are copied first, where they are still one element. What
takes tensors of several devices by itself (copies, indexing by indices on a CPU) runs on eager kernels. Upstream's scheduler keeps one graph
and calls ``torch._inductor.scheduler.Scheduler.codegen_device`` in turn.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Sequence

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from ..prims import Prim, TensorMeta, kind
from ..prims.kinds import pure
from ..prims.lazy import Graph
from .passes.graphs import SYMBOLIC, output_node, placeholders

Device = torch.device | None


@dataclass
class Piece:
    """``code(args: list) -> list`` for the places ``inputs`` of all values, its results go to the places ``outputs``; then ``dead`` ones are let go.

    ``graph`` becomes a recipe once it is compiled; with ``device`` None it stays a graph, for eager kernels."""

    device: Device
    graph: Any
    inputs: list[int]
    outputs: list[int]
    dead: list[int] = field(default_factory=list)


@dataclass
class Pieces:
    """In order. Places of values: the arguments, then what pieces make. ``results``: a place for each result, or (None, what it is)."""

    steps: list[Piece]
    places: int
    results: list[Any]


def devices_of(vals: Any) -> set[torch.device]:
    return {v.device for v in tree_leaves(vals) if hasattr(v, "device")}


# ------------------------------------------------------------------ which device a node is for
def split(gm: fx.GraphModule) -> Pieces:
    """The pieces of ``gm``, which is changed: copies of numbers become nodes."""
    _move_numbers(gm.graph)
    device: dict[fx.Node, Device] = {}
    for n in gm.graph.nodes:
        if n.op == "call_function":
            device[n] = device[n.args[0]] if n.target is operator.getitem and n.args[0] in device else _device(n)
    groups = _in_stretches(device)
    inputs = placeholders(gm.graph)
    place = {n: k for k, n in enumerate(inputs)}
    symbols = [n for n in inputs if isinstance(n.meta.get("val"), SYMBOLIC)]
    results = output_node(gm.graph).args[0]
    wanted = {n for n in results if isinstance(n, fx.Node)}
    steps = []
    for device, nodes in groups:
        inside = set(nodes)
        made = [n for n in nodes if n in wanted or any(u not in inside for u in n.users) if not isinstance(n.meta.get("val"), (tuple, list))]
        needs = list(dict.fromkeys(i for n in nodes for i in n.all_input_nodes if i not in inside and i.op != "get_attr" and i not in symbols))
        for n in made:
            place[n] = len(place)
        steps.append(Piece(device, _graph_of(gm, symbols, needs, nodes, made), [place[n] for n in symbols + needs], [place[n] for n in made]))
    numbers = [r for r in results if isinstance(r, SYMBOLIC)]
    if numbers:
        steps.append(Piece(None, _graph_of(gm, symbols, [], [], numbers), [place[n] for n in symbols], list(range(len(place), len(place) + len(numbers)))))
    computed = iter(steps[-1].outputs if numbers else ())
    given = [next(computed) if isinstance(r, SYMBOLIC) else place[r] if r in place else (None, _constant(gm, r)) for r in results]
    _let_go(steps, {r for r in given if isinstance(r, int)})
    return Pieces(steps, len(place) + len(numbers), given)


def _constant(gm: fx.GraphModule, result: Any) -> Any:
    return operator.attrgetter(result.target)(gm) if isinstance(result, fx.Node) else result


def _device(node: fx.Node) -> Device:
    """Where the kernels of ``node`` run; None: it is for eager kernels, which take tensors of several devices."""
    found = devices_of([node.meta.get("val"), *[n.meta.get("val") for n in node.all_input_nodes if not is_literal(n)]])
    return found.pop() if len(found) == 1 else None


def is_number(node: fx.Node) -> bool:
    """Whether a tensor holds one element, or one element repeated and computed with."""
    val = node.meta.get("val")
    if not hasattr(val, "shape"):
        return False
    if all(isinstance(n, int) and n == 1 for n in val.shape):
        return True
    inputs = [n for n in node.all_input_nodes if hasattr(n.meta.get("val"), "shape")]
    return isinstance(node.target, Prim) and kind(node) in ("view", "pointwise") and bool(inputs) and all(map(is_number, inputs))


def is_literal(node: fx.Node) -> bool:
    """Whether ``node`` is a constant number that loops alone read: it becomes part of their text, wherever it lies."""
    return node.op == "get_attr" and is_number(node) and all(isinstance(u.target, Prim) and kind(u) == "pointwise" for u in node.users)


def _move_numbers(graph: fx.Graph) -> None:
    """Operands on a CPU of prims that run on another device: copied while they are one element, and made again from there."""
    moved: dict[tuple[fx.Node, torch.device], fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.target, Prim):
            continue
        device = next((d for d in devices_of(node.meta["val"]) if d.type != "cpu"), None)
        if device is None:
            continue
        for operand in node.all_input_nodes:
            if devices_of(operand.meta.get("val")) == {torch.device("cpu")} and is_number(operand):
                with graph.inserting_before(node):
                    node.replace_input_with(operand, _moved(graph, operand, device, moved))
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and pure(node):
            graph.erase_node(node)


def _moved(graph: fx.Graph, node: fx.Node, device: torch.device, moved: dict[tuple[fx.Node, torch.device], fx.Node]) -> fx.Node:
    if (node, device) in moved:
        return moved[node, device]
    val = TensorMeta.of(node.meta["val"])
    if any(n != 1 for n in val.shape):
        new = graph.create_node("call_function", node.target, fx.map_arg(node.args, lambda n: _moved(graph, n, device, moved)), dict(node.kwargs))
    else:
        new = graph.create_node("call_function", torch.ops.aten._to_copy.default, (node,), {"device": device})
    new.meta = {**node.meta, "val": TensorMeta(val.shape, val.dtype, device, val.strides)}
    moved[node, device] = new
    return new


# ------------------------------------------------------------------ stretches
def _in_stretches(device: dict[fx.Node, Device]) -> list[tuple[Device, list[fx.Node]]]:
    """Nodes in a valid order with few changes of device; what raises, draws or writes keeps the order it had."""
    order = {n: k for k, n in enumerate(device)}
    rank = {d: 1 if d is None else 0 if d.type == "cpu" else 2 for d in device.values()}
    behind = {n: (rank[device[n]], k) for n, k in order.items()}  # what GPUs wait for comes first
    return min((_greedy(device, first) for first in (order, behind)), key=len)


def _greedy(device: dict[fx.Node, Device], first: dict[fx.Node, Any]) -> list[tuple[Device, list[fx.Node]]]:
    """Stays on a device while something is ready there; then goes where the node is that is ``first``."""
    waits: dict[fx.Node, set[fx.Node]] = {n: {i for i in n.all_input_nodes if i in device} for n in device}
    fixed = [n for n in device if not pure(n)]
    for before, after in zip(fixed, fixed[1:]):
        waits[after].add(before)
    if any(_writes(n) for n in device):
        every = list(device)
        for before, after in zip(every, every[1:]):
            waits[after].add(before)
    groups: list[tuple[Device, list[fx.Node]]] = []
    while waits:
        ready = sorted((n for n, over in waits.items() if not over), key=first.__getitem__)
        here = [n for n in ready if groups and device[n] == groups[-1][0]]
        if not here:
            groups.append((device[ready[0]], []))
            here = [n for n in ready if device[n] == groups[-1][0]]
        groups[-1][1].extend(here)
        for n in here:
            del waits[n]
        done = set(here)
        for over in waits.values():
            over -= done
    return groups


def _writes(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _graph_of(gm: fx.GraphModule, symbols: Sequence[fx.Node], needs: Sequence[fx.Node], nodes: Sequence[fx.Node],
              made: Sequence[Any]) -> fx.GraphModule:
    graph, copies = Graph(), {}
    for node in [*symbols, *needs]:
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta) if node.op == "placeholder" else {"val": node.meta["val"]}
    for node in nodes:
        for constant in (n for n in node.all_input_nodes if n.op == "get_attr" and n not in copies):
            copies[constant] = graph.get_attr(constant.target)
            copies[constant].meta = dict(constant.meta)
        copies[node] = graph.create_node(node.op, node.target, fx.map_arg(node.args, copies.__getitem__), fx.map_arg(node.kwargs, copies.__getitem__))
        copies[node].meta = dict(node.meta)
    graph.output(tuple([copies[n] if isinstance(n, fx.Node) else n for n in made]))
    module = fx.GraphModule(gm, graph)
    module.meta["outputs"] = len(made)
    return module


def _let_go(steps: Sequence[Piece], kept: set[int]) -> None:
    """After which piece each value is needed no more."""
    last: dict[int, Piece] = {}
    for step in steps:
        last.update(dict.fromkeys([*step.inputs, *step.outputs], step))
    for place, step in last.items():
        if place not in kept:
            step.dead.append(place)


# ------------------------------------------------------------------ running
def eager(graph: fx.GraphModule) -> Callable[[list], Iterable[Any]]:
    """A piece on eager kernels, its results with the strides that the next piece relies on."""
    results = output_node(graph.graph).args[0]
    wanted = [n.meta["val"] if isinstance(n, fx.Node) and hasattr(n.meta.get("val"), "stride") else None for n in results]
    symbolic = [n for n in placeholders(graph.graph) if isinstance(n.meta.get("val"), SYMBOLIC)]
    if symbolic:
        from ..shapes import materialize
        materialize(graph)
    strides = [None if v is None or not all(isinstance(s, int) for s in v.stride()) else tuple(v.stride()) for v in wanted]

    def run(args: list) -> list:
        made = graph(*args)
        args.clear()
        return [m if s is None or m.stride() == s else torch.empty_strided(m.shape, s, dtype=m.dtype, device=m.device).copy_(m)
                for m, s in zip(made, strides)]
    return run


def runner(pieces: Pieces, codes: Sequence[Callable[[list], Iterable[Any]]]) -> Callable[[list], list]:
    """All pieces in turn as one function, which owns its argument list and clears it."""
    steps = [(code, p.inputs, p.outputs, p.dead) for code, p in zip(codes, pieces.steps)]

    def run(args: list) -> list:
        values = args + [None] * (pieces.places - len(args))
        args.clear()
        for code, inputs, outputs, dead in steps:
            for place, value in zip(outputs, code([values[i] for i in inputs])):
                values[place] = value
            for place in dead:
                values[place] = None
        return [values[r] if isinstance(r, int) else r[1] for r in pieces.results]
    return run
