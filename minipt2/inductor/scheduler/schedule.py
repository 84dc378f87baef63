"""``schedule``: the stages of the scheduler, in order.

dead code -> nodes with affine indices -> cheap ones inlined -> dependencies -> fusion -> recomputation -> small updates side by side -> templates -> flat bodies -> memory plan. Upstream: ``torch._inductor.scheduler.Scheduler``.
"""
from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any, Collection

from ... import trace
from ...config import config
from ..ir import Buffer, Computed, Extern, Program
from ..sizes import hint, use
from .attention import Attention
from .beside import side_by_side
from .contraction import Contraction
from .flat import flatten
from .fusion import Group, fuse
from .graph import Order, dependencies, live_steps
from .kernels import Kernel, Schedule
from .late import late_order
from .memory import plan_memory, storage_bytes
from .nodes import make_node
from .policy import CPU, Policy
from .recompute import inline_cheap, recompute
from .templates import Choose, Contractor, template


def schedule(program: Program, policy: Policy = CPU, choose: Choose | None = None) -> Schedule:
    """Order and fuse the loop nests of ``program``, as suits the kind of device, and plan its memory. ``choose``: which contractions become templates."""
    with use(program.hints):
        return _schedule(program, policy, choose)


def _schedule(program: Program, policy: Policy, choose: Choose | None) -> Schedule:
    steps = live_steps(program)
    buffers = program.by_name()
    fresh = itertools.count()

    def item_bytes(name: str) -> int:
        return buffers[name].layout.dtype.itemsize

    kept = _kept(program, steps)
    writers = Counter([b.name for b in (*program.inputs, *program.constants)] + [name for s in steps for name in s.writes()])
    nodes = {s.name: make_node(s, item_bytes, fresh, policy.welford) for s in steps if isinstance(s, Computed)}
    if config.fusion:
        nodes = {n.name: n for n in inline_cheap(list(nodes.values()), kept, writers)}
        steps = [s for s in steps if isinstance(s, Extern) or s.name in nodes]
    graph = Order(len(steps), dependencies(program, steps, nodes))
    groups = [Group.of(nodes[s.name], k, graph, fresh, kept, policy) for k, s in enumerate(steps) if isinstance(s, Computed)]
    if config.fusion:
        groups = recompute(fuse(groups), kept, writers)
        groups = side_by_side(groups, frozenset(b.name for b in program.inputs), _removed(kept, groups))
    removed = _removed(kept, groups)
    templates: dict[int, tuple[Contraction | Attention, Any]] = {}
    if choose is not None:
        groups, templates = Contractor(program, steps, graph, fresh, policy, buffers).contract(groups, removed, choose)
        removed = _removed(_kept(program, steps, {c.extern.name for c, _ in templates.values()}), groups)
    ordered = _steps(program, buffers, graph, steps, groups, removed, templates)
    result = Schedule(program, ordered, buffers, removed, alone_from=policy.alone_from)
    result.plan = plan_memory(result)
    result.frees = _frees(result)
    trace.artifact("scheduler", program.name, lambda: result)
    return result


def _steps(program: Program, buffers: dict[str, Buffer], graph: Order, steps: list[Computed | Extern], groups: list[Group], removed: set[str],
           templates: dict[int, tuple[Contraction | Attention, Any]]) -> list[Kernel | Extern]:
    """Groups as kernels and extern calls, in order; what turned out to make nothing is left out."""
    fused = {g.unit: g for g in groups}
    ordered: list[Kernel | Extern] = []
    for u in _order(program, buffers, graph, steps, fused, removed):
        g = fused.get(u)
        if g is not None and u in templates:
            ordered.append(template(g, templates[u][0], removed, templates[u][1]))
        elif g is not None:
            flat = flatten(g.nodes, g.domain, removed)
            ordered += [Kernel(g, flat)] if flat.instrs else []
        elif steps[u].name not in removed:
            ordered.append(steps[u])
    return ordered


def _order(program: Program, buffers: dict[str, Buffer], graph: Order, steps: list[Computed | Extern], fused: dict[int, Group],
           removed: set[str]) -> list[int]:
    stays = {b.name for b in program.inputs if b.static} | {b.name for b in program.constants}
    lasting = stays | {o.ref.buffer for o in program.outputs if o.ref is not None}

    def traffic(u: int) -> tuple[set[str], set[str]]:
        if u not in fused:
            return steps[u].reads() - removed, steps[u].writes() - removed
        reads = {name for name, accesses in fused[u].touched().items() if any(a.mode == "load" for a in accesses)}
        return reads - removed, fused[u].written() - removed
    return late_order(graph, {u: traffic(u) for u in graph.sorted_units()}, lambda name: 0 if name in stays else hint(storage_bytes(buffers[name].layout)),
                      lasting.__contains__)


def _kept(program: Program, steps: list[Computed | Extern], templates: Collection[str] = ()) -> frozenset[str]:
    """Buffers that must lie in memory: graph inputs and outputs, constants, whatever extern calls touch or scatters add to; what becomes
    one of ``templates`` reads its operands there."""
    names = {o.ref.buffer for o in program.outputs if o.ref is not None} | {b.name for b in (*program.inputs, *program.constants)}
    for s in steps:
        if isinstance(s, Extern):
            names |= set() if s.target == "alloc" else s.reads() if s.name in templates else s.reads() | s.writes()
        else:
            names |= {name for name, _, mode in s.body.stores() if mode is not None}
    return frozenset(names)


def _removed(kept: frozenset[str], groups: list[Group]) -> set[str]:
    """Buffers written and read by one group only, at one index."""
    users: dict[str, set[int]] = defaultdict(set)
    indices: dict[str, set[object]] = defaultdict(set)
    for k, group in enumerate(groups):
        for name, accesses in group.touched().items():
            users[name].add(k)
            indices[name].update(a.index for a in accesses)
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
