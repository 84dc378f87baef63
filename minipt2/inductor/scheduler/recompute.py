"""Compute a cheap intermediate again in each kernel that reads it, instead of writing it for them.

Layer norm's backward needs ``(x - mean) * rstd`` in a kernel over rows and in one over columns: storing it costs a write and two
reads, recomputing costs two reads of ``x``. Before: A writes t; B, C read t. After: B, C read what A made t from.
Upstream decides this while lowering (``realize_hint``); here it is known who ends up in which kernel.
"""
from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any, Sequence

from ...config import config
from ..ir import Block, Instr
from .fusion import Group, attempt
from .nodes import Node

BYTES_PER_UNIT = 0.5
"""Bytes of memory traffic that take as long as one addition's worth of computation on one element."""
MOST_NODES = 4


def recompute(groups: list[Group], kept: frozenset[str], writers: Counter[str], price: Any) -> list[Group]:
    """Groups with cheap intermediates recomputed where that saves memory traffic. ``writers`` counts who writes each buffer in the
    program; ``price(node)`` is the cost of one element in additions."""
    if not config.fusion:
        return groups
    current = {g.unit: g for g in groups}
    readers: dict[str, set[int]] = defaultdict(set)
    for g in groups:
        for name, accesses in g.touched().items():
            if any(a.mode == "load" for a in accesses):
                readers[name].add(g.unit)
    for unit in [g.unit for g in groups]:
        for node in list(current[unit].nodes):
            name = _single_store(node)
            outside = readers[name] - {unit} if name is not None and name not in kept else set()
            if outside and writers[name] == 1:
                _try_buffer(name, node, current, unit, outside, readers, writers, price)
    return [current[g.unit] for g in groups]


def _single_store(node: Node) -> str | None:
    stores = [a for a in node.accesses if a.mode != "load" and a.buffer]
    return stores[0].buffer if len(stores) == 1 and not node.reduces and stores[0].mode == "store" else None


def _try_buffer(name: str, node: Node, current: dict[int, Group], unit: int, outside: set[int], readers: dict[str, set[int]],
                writers: Counter[str], price: Any) -> None:
    home = current[unit]
    needed = _slice(node, home, writers)
    if needed is None:
        return
    nodes, leaves = needed
    size = _bytes(home, name)
    gain = size  # the write
    changed = {}
    for u in outside:
        reader = current[u]
        touched = reader.touched()
        extra = sum(_bytes(home, leaf) for leaf in leaves if leaf not in touched)
        gain += size - extra - sum(price(n) for n in nodes) * BYTES_PER_UNIT * size / 4
        changed[u] = _with_copies(nodes, reader, f"{name}@{u}")
    if gain <= 0 or any(g is None for g in changed.values()):
        return
    current.update(changed)
    readers[name] -= outside
    for leaf in leaves:
        readers[leaf] |= outside


def _slice(node: Node, home: Group, writers: Counter[str]) -> tuple[list[Node], list[str]] | None:
    """The nodes of ``home`` that ``node`` is computed by, producers first, and the buffers they start from."""
    made = {a.buffer: n for n in home.nodes for a in n.accesses if a.mode == "store"}
    nodes, leaves, todo = [], [], [node]
    while todo:
        n = todo.pop(0)
        nodes.append(n)
        for a in n.accesses:
            if a.mode != "load" or a.buffer in leaves:
                continue
            maker = made.get(a.buffer)
            small = _bytes(home, a.buffer) * 8 <= _bytes(home, n.accesses[-1].buffer)
            if maker is None or small:
                if writers[a.buffer] > (maker is not None):  # overwritten later, or filled in parts
                    return None
                leaves.append(a.buffer)
            elif _single_store(maker) is None or len(nodes) + len(todo) >= MOST_NODES:
                return None
            elif maker not in nodes and maker not in todo:
                todo.append(maker)
    order = {id(n): k for k, n in enumerate(home.nodes)}
    return sorted(nodes, key=lambda n: order[id(n)]), leaves


def _with_copies(nodes: Sequence[Node], reader: Group, suffix: str) -> Group | None:
    """``reader`` with private copies of ``nodes`` before its own; None where their loops don't fit."""
    names = {a.buffer: f"{a.buffer}:{suffix}" for n in nodes for a in n.accesses if a.mode == "store"}
    group = replace(reader, nodes=[_renamed(n, names) for n in reader.nodes], graph=None)
    for n in reversed(nodes):
        fused = attempt(Group.of(_renamed(n, names), fresh=reader.fresh, kept=reader.kept), group, ordered=True)
        if fused is None:
            return None
        group = fused
    return replace(group, unit=reader.unit, graph=reader.graph)


def _renamed(node: Node, names: dict[str, str]) -> Node:
    if not any(a.buffer in names for a in node.accesses):
        return node
    accesses = [a._replace(buffer=names.get(a.buffer, a.buffer)) for a in node.accesses]
    return replace(node, instrs=_rename(node.instrs, names), accesses=accesses)


def _rename(instrs: Sequence[Instr], names: dict[str, str]) -> tuple[Instr, ...]:
    out = []
    for i in instrs:
        if i.op in ("load", "store"):
            i = i._replace(args=(names.get(i.args[0], i.args[0]), *i.args[1:]))
        elif i.op == "masked":
            i = i._replace(args=(i.args[0], Block(_rename(i.args[1].instrs, names), i.args[1].result), i.args[2]))
        out.append(i)
    return tuple(out)


def _bytes(g: Group, name: str) -> float:
    access = next(a for n in g.nodes for a in n.accesses if a.buffer == name)
    total = float(access.bytes)
    for v in access.index.names():
        n = g.domain.sizes.get(v, 1)
        total *= n if isinstance(n, int) else 8192
    return total
