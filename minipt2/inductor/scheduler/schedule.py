"""``schedule``: the stages of the scheduler, in order.

dead code -> nodes with affine indices -> dependencies -> fusion -> flat bodies -> memory plan. Upstream: ``torch._inductor.scheduler.Scheduler``.
"""
from __future__ import annotations

import itertools
from collections import defaultdict

import torch

from ... import trace
from ..ir import Buffer, Computed, Extern, Input, Program
from .flat import flatten
from .fusion import Group, fuse
from .graph import Order, dependencies, live_steps
from .kernels import Kernel, Schedule
from .memory import plan_memory
from .nodes import make_node


def schedule(program: Program) -> Schedule:
    """Order and fuse the loop nests of ``program`` and plan its memory."""
    steps = live_steps(program)
    buffers = program.by_name()
    graph = Order(len(steps), dependencies(program, steps))
    fresh = itertools.count()

    def item_bytes(name: str) -> int:
        return buffers[name].layout.dtype.itemsize

    groups = [Group.of(make_node(s, item_bytes, fresh), k, graph, fresh) for k, s in enumerate(steps) if isinstance(s, Computed)]
    fused = {g.unit: g for g in fuse(groups)}
    order = _late_order(graph)
    removed = _removed(program, [fused.get(u) or steps[u] for u in order], buffers)

    def dtype_of(name: str) -> torch.dtype:
        return buffers[name].layout.dtype

    ordered: list[Kernel | Extern] = []
    for u in order:
        g = fused.get(u)
        ordered.append(steps[u] if g is None else Kernel(g, flatten(g.nodes, g.domain, removed, dtype_of)))
    result = Schedule(program, ordered, buffers, removed)
    result.plan = plan_memory(result)
    result.frees = _frees(result)
    trace.artifact("scheduler", program.name, lambda: result)
    return result


def _late_order(graph: Order) -> list[int]:
    """Units in a valid order, each as late as its last member stood: what a kernel makes for later should not live from early on."""
    import heapq
    units = graph.sorted_units()
    waiting = dict.fromkeys(units, 0)
    for u in units:
        for v in graph.after(u):
            waiting[v] += 1
    ready = [(max(graph.members[u]), u) for u in units if not waiting[u]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, u = heapq.heappop(ready)
        order.append(u)
        for v in graph.after(u):
            waiting[v] -= 1
            if not waiting[v]:
                heapq.heappush(ready, (max(graph.members[v]), v))
    return order


def _removed(program: Program, units: list[Group | Extern], buffers: dict[str, Buffer]) -> set[str]:
    """Buffers written and read by one group only, and returned by nobody."""
    kept = {o.ref.buffer for o in program.outputs if o.ref is not None} | {b.name for b in (*program.inputs, *program.constants)}
    users: dict[str, set[int]] = defaultdict(set)
    indices: dict[str, set[object]] = defaultdict(set)
    for k, unit in enumerate(units):
        if isinstance(unit, Extern):
            kept |= unit.writes() | unit.reads()
            continue
        for name, accesses in unit.touched().items():
            users[name].add(k)
            indices[name].update(a.index for a in accesses)
            if any(a.mode == "atomic_add" for a in accesses):
                kept.add(name)
    return {n for n, who in users.items() if len(who) == 1 and n not in kept and len(indices[n]) == 1}


def _frees(s: Schedule) -> list[list[str]]:
    """Names whose last use is each step; outputs, constants and what never existed are not among them."""
    outputs = {o.ref.buffer for o in s.program.outputs if o.ref is not None}
    keep = outputs | {c.name for c in s.program.constants} | s.removed
    last: dict[str, int] = {}
    for k, step in enumerate(s.steps):
        for name in step.reads() | step.writes():
            last[name] = k
    frees: list[list[str]] = [[] for _ in s.steps]
    for name, k in last.items():
        if name not in keep:
            frees[k].append(name)
    return [sorted(names) for names in frees]
