"""Small updates that have nothing in common but their size, put side by side in one loop: an optimiser's step over many parameters.

Upstream: ``torch._inductor.codegen.triton_combo_kernel`` (horizontal fusion) and ``ForeachKernelSchedulerNode``.
"""
from __future__ import annotations

from collections import defaultdict
from math import prod

from ...config import config
from .align import align
from .fusion import MAX_BUFFERS, Group, join
from .nodes import Access

SMALL = 1 << 16
"""Elements up to which starting a loop, on several threads, costs more than walking it; longer ones would only compete for the cache."""

FEW = 16
"""Elements up to which it does not matter either that results wait for others: the step counts of parameters."""


def side_by_side(groups: list[Group], inputs: frozenset[str], removed: set[str]) -> list[Group]:
    """``groups`` with pointwise ones that only write ``inputs`` of the graph, or few numbers, joined where their loops are alike.

    In a valid order. ``removed``: buffers that live within one kernel.

    ``p -= lr * g`` for p of sizes (64,), (8, 8), (64,) and (9,) are two kernels after this, and were four.
    """
    alike: dict[tuple, list[Group]] = defaultdict(list)
    for g in groups:
        if _small_update(g, inputs | removed):
            alike[tuple(g.domain.sizes.values())].append(g)
    gone: dict[int, Group] = {}
    for row in alike.values():
        while row:
            first, *others = row
            row = []
            for other in others:
                joined = _join(first, other, removed)
                if joined is None:
                    row.append(other)
                    continue
                gone[id(first)] = gone[id(other)] = first = joined
    kept = dict.fromkeys(_last(g, gone) for g in groups)
    return sorted(kept, key=lambda g: g.graph.place[g.unit] if g.graph is not None else g.unit)


def _last(g: Group, gone: dict[int, Group]) -> Group:
    while id(g) in gone:
        g = gone[id(g)]
    return g


def _small_update(g: Group, writable: frozenset[str]) -> bool:
    sizes = list(g.domain.sizes.values())
    if g.reduces or g.scatters() or not all(isinstance(n, int) for n in sizes):
        return False
    return 0 < prod(sizes) <= (SMALL if g.written() <= writable else FEW)


def _join(a: Group, b: Group, removed: set[str]) -> Group | None:
    """One group of both, or None: they touch common buffers, would be too large, or do not walk alike."""
    if a.graph is not None and a.graph.place[b.unit] < a.graph.place[a.unit]:
        a, b = b, a
    ta, tb = set(a.touched()), set(b.touched())
    if not ta.isdisjoint(tb) or len((ta | tb) - removed) > MAX_BUFFERS or len(a.nodes) + len(b.nodes) > config.max_fusion_size:
        return None
    if a.graph is not None and a.graph.between(a.unit, b.unit) is None:
        return None
    alignment = align(a.domain, b.domain, _store(a).index, _store(b).index, a.fresh)
    if alignment is None or len(alignment.domain.sizes) != len(a.domain.sizes):
        return None
    joined = join(a, b, alignment)
    if a.graph is not None:
        a.graph.merge(a.unit, b.unit)
    return joined


def _store(g: Group) -> Access:
    return next(access for access in g.accesses() if access.mode == "store")
