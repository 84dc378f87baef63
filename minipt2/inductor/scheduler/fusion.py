"""Fusion: which loop nests may share one, and which pairs save most memory traffic.

``can_fuse(a, b)`` is the law, ``why_not`` says which part of it stands in the way, ``fuse`` is the policy (greedy by bytes saved).
Upstream: ``torch._inductor.scheduler`` (``can_fuse``, ``score_fusion``, ``fuse_nodes``), ``choices.py``.
"""
from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from math import prod
from typing import Any, Iterator

from ...config import config
from ...exercise import exercise
from ..sizes import differ, hint
from .affine import Index
from .align import Alignment, Domain, align
from .graph import Order
from .nodes import Access, Node
from .order import innermost
from .policy import CPU, Policy

NEAR = 64
"""Siblings further apart than this many steps stay apart: fusing them would keep what they make alive for long."""
MAX_BUFFERS = 48
"""Pointers a kernel may take: beyond that registers and TLB entries run out."""


@dataclass(eq=False)
class Group:
    """Nodes that share one loop nest. ``domain`` holds their common variables; ``unit`` is their place in ``graph``."""

    nodes: list[Node]
    domain: Domain
    unit: int = 0
    graph: Order | None = None
    fresh: Iterator[int] = field(default_factory=lambda: itertools.count(1_000_000))
    kept: frozenset[str] = frozenset()
    """Buffers of the program that must be written in any case: outputs, inputs, operands of extern calls."""
    policy: Policy = CPU

    @staticmethod
    def of(node: Node, unit: int = 0, graph: Order | None = None, fresh: Iterator[int] | None = None,
           kept: frozenset[str] = frozenset(), policy: Policy = CPU) -> "Group":
        return Group([node], Domain(dict(node.sizes), node.reduced), unit, graph, fresh or itertools.count(1_000_000), kept, policy)

    def accesses(self) -> list[Access]:
        return [a for n in self.nodes for a in n.accesses]

    def touched(self) -> dict[str, list[Access]]:
        """Accesses by buffer."""
        out: dict[str, list[Access]] = defaultdict(list)
        for a in self.accesses():
            if a.buffer:
                out[a.buffer].append(a)
        return out

    def written(self) -> set[str]:
        return {a.buffer for n in self.nodes for a in n.accesses if a.mode in ("store", "atomic_add")}

    @property
    def reduces(self) -> bool:
        return bool(self.domain.reduced)

    def scatters(self) -> bool:
        """Does it store where data says, or add to what is there?"""
        return any(a.mode == "atomic_add" or a.mode == "store" and not _plain(a.index, self.domain.sizes) for n in self.nodes for a in n.accesses)


def can_fuse(a: Group, b: Group) -> bool:
    """May ``a`` and ``b`` share a loop nest? Symmetric; see ``why_not`` for the reason."""
    return _try(a, b)[1] == ""


def why_not(a: Group, b: Group) -> str:
    """What stands against fusing ``a`` and ``b``; empty when nothing does."""
    return _try(a, b)[1]


def attempt(a: Group, b: Group, ordered: bool = False) -> Group | None:
    """The fused group, or None; ``ordered``: ``a`` runs first, wherever the two stand."""
    return _try(a, b, ordered)[0]


def _try(a: Group, b: Group, ordered: bool = False) -> tuple[Group | None, str]:
    if a is b:
        return None, "they are one group"
    if not ordered and a.graph is not None and a.graph.place[b.unit] < a.graph.place[a.unit]:
        a, b = b, a
    if len(a.nodes) + len(b.nodes) > config.max_fusion_size:
        return None, "the fused kernel would be too large"
    ta, tb = a.touched(), b.touched()
    shared = [name for name in ta if name in tb]
    if not shared:
        return None, "they touch no common buffer"
    if len(ta) + len(tb) - len(shared) > MAX_BUFFERS:
        return None, "the fused kernel would touch too many buffers"
    if (a.reduces or b.reduces) and (a.scatters() or b.scatters()):
        return None, "one scatters while the other reduces"
    if a.reduces != b.reduces and _places(b if a.reduces else a) > a.policy.places:
        return None, "one reads windows while the other reduces"
    if not ordered and a.graph is not None and a.graph.between(a.unit, b.unit) is None:
        return None, "a third step must run between them"
    reason = "their loops walk the shared buffers differently"
    for alignment in _alignments(a, b, ta, tb, shared):
        fused = join(a, b, alignment)
        reason = _conflict(fused, len(a.nodes))
        if not reason:
            return fused, ""
    return None, reason


def _places(g: Group) -> int:
    """In how many places at most a node of ``g`` reads one buffer."""
    found = defaultdict(set)
    for k, n in enumerate(g.nodes):
        for a in n.accesses:
            if a.mode == "load":
                found[k, a.buffer].add(a.index)
    return max(map(len, found.values()), default=0)


def _alignments(a: Group, b: Group, ta: dict[str, list[Access]], tb: dict[str, list[Access]], shared: list[str]) -> Iterator[Alignment]:
    """Ways to pair the variables of both, by the buffers that fix most of them first."""
    def volume(name: str) -> float:
        index = ta[name][0].index
        return -float(prod(hint(n) for v, n in a.domain.sizes.items() if index.stride(v)))

    tried = 0
    for name in sorted(shared, key=volume):
        for x, y in itertools.product(_indices(ta[name]), _indices(tb[name])):
            alignment = align(a.domain, b.domain, x, y, a.fresh)
            if alignment is not None:
                yield alignment
                tried += 1
            if tried == 3:
                return


def _indices(accesses: list[Access]) -> list[Index]:
    return list(dict.fromkeys(a.index for a in accesses))[:2]


def join(a: Group, b: Group, alignment: Alignment) -> Group:
    """The nodes of both over the loops that ``alignment`` found; it stands where ``a`` does."""
    sizes = alignment.domain.sizes
    nodes = [n.apply(alignment.a, sizes) for n in a.nodes] + [n.apply(alignment.b, sizes) for n in b.nodes]
    return Group(nodes, alignment.domain, a.unit, a.graph, a.fresh, a.kept, a.policy)


@exercise("5.3")
def _conflict(fused: Group, first: int) -> str:
    """Why the nodes from ``first`` on can't run in the same iteration as those before them."""
    # >>> 5.3
    made: dict[str, set[Index]] = defaultdict(set)
    seen: dict[str, set[Index]] = defaultdict(set)
    for n in fused.nodes[:first]:
        for a in n.accesses:
            (seen if a.mode == "load" else made)[a.buffer].add(a.index)
    reduced, sizes = fused.domain.reduced, fused.domain.sizes
    later = False
    for n in fused.nodes[first:]:
        for a in n.accesses:
            if a.mode == "load" and a.buffer in made:
                if made[a.buffer] != {a.index} or not _plain(a.index, sizes):
                    return f"{a.buffer} is read where it is not written in the same iteration"
                later |= not reduced.isdisjoint(n.sizes) and reduced.isdisjoint(a.index.terms)
            elif a.mode in ("store", "atomic_add"):
                if a.buffer in made and (a.mode != "store" or not _disjoint(made[a.buffer], a.index)):
                    return f"{a.buffer} is written by both"
                if a.buffer in seen and (seen[a.buffer] != {a.index} or not _plain(a.index, sizes)
                                         or not reduced.isdisjoint(a.index.terms)):
                    return f"{a.buffer} is overwritten where it is read in another iteration"
    return _wasteful(fused) if later else ""
    # <<< 5.3


def _plain(index: Index, sizes: dict[str, Any]) -> bool:
    return all(t in sizes for t in index.terms)


def _disjoint(made: set[Index], index: Index) -> bool:
    """Parts of one concatenation: the same walk from other starts."""
    return all(m.terms == index.terms and differ(m.const, index.const) for m in made)


def _wasteful(fused: Group) -> str:
    """A later stage walks the reduced dimensions again: why that is not worth it."""
    sizes, reduced = fused.domain.sizes, fused.domain.reduced
    known = {v: hint(n) for v, n in sizes.items()}
    return fused.policy.rewalk(prod(n for v, n in known.items() if v not in reduced), prod(n for v, n in known.items() if v in reduced),
                               innermost(sizes, fused.accesses()) in reduced)


@exercise("5.4")
def fuse(groups: list[Group]) -> list[Group]:
    """Fuse greedily, the pair that saves most bytes first, until no pair is left; returns groups in a valid order."""
    # >>> 5.4
    if not config.fusion or len(groups) < 2:
        return groups
    by_unit = {g.unit: g for g in groups}
    graph = groups[0].graph
    version = dict.fromkeys(by_unit, 0)
    users: dict[str, set[int]] = defaultdict(set)
    for g in groups:
        for name in g.touched():
            users[name].add(g.unit)
    heap = [c for u in by_unit for c in _candidates(by_unit[u], by_unit, users, version, later_only=True)]
    heapq.heapify(heap)
    while heap:
        _, _, u, v, stamp = heapq.heappop(heap)
        if u not in by_unit or v not in by_unit or stamp != version[u] + version[v]:
            continue  # one of them has changed since
        fused = attempt(by_unit[u], by_unit[v])
        if fused is None:
            continue
        _replace_pair(fused, u, v, by_unit, users, version)
        for c in _candidates(fused, by_unit, users, version, later_only=False):
            heapq.heappush(heap, c)
    place = graph.place if graph is not None else {u: k for k, u in enumerate(by_unit)}
    return sorted(by_unit.values(), key=lambda g: place[g.unit])
    # <<< 5.4


def _replace_pair(fused: Group, u: int, v: int, by_unit: dict[int, Group], users: dict[str, set[int]], version: dict[int, int]) -> None:
    graph = fused.graph
    a, b = sorted((u, v), key=lambda k: graph.place[k]) if graph is not None else (u, v)
    if graph is not None:
        graph.merge(a, b)
    fused.unit = a
    by_unit[a] = fused
    del by_unit[b]
    version[a] += 1 + version.pop(b)
    for name in fused.touched():
        users[name].discard(b)
        users[name].add(a)


def _candidates(g: Group, by_unit: dict[int, Group], users: dict[str, set[int]], version: dict[int, int],
                later_only: bool) -> list[tuple[float, int, int, int, int]]:
    """Pairs of ``g`` with groups that touch its buffers: (-bytes saved, distance, unit, unit, stamp)."""
    saved: dict[int, float] = defaultdict(float)
    mine = g.written()
    place = g.graph.place if g.graph is not None else {u: u for u in by_unit}
    here = place[g.unit]
    for name, accesses in g.touched().items():
        size = _bytes(g, accesses[0])
        others = [u for u in users[name] if u != g.unit]
        if not others:
            continue
        if len(others) > 8 and name not in mine:  # a popular input: only its nearest readers
            others = sorted(others, key=lambda u: abs(place[u] - here))[:4]
        for u in others:
            producer = name in mine or name in by_unit[u].written()
            if producer or abs(place[u] - here) <= NEAR:
                # a buffer that nobody else reads need not be written either
                saved[u] += size * ((3 if len(others) == 1 and name not in g.kept else 2) if producer else 1)
    out = []
    for u, size in saved.items():
        if later_only and place[u] < here:
            continue
        out.append((-size, abs(place[u] - here), g.unit, u, version[g.unit] + version[u]))
    return out


def _bytes(g: Group, access: Access) -> float:
    total = float(access.bytes)
    for v in access.index.names():
        total *= hint(g.domain.sizes.get(v, 1))
    return total
