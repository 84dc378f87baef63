"""The order in which fused units run: valid, and late enough that what is made for later does not lie in memory from early on.

A backward graph begins with what the partitioner chose to compute again; all of that is ready at once, and run at once it would be as if it had been
saved. Upstream: ``torch._inductor.memory.reorder_for_peak_memory``.
"""
from __future__ import annotations

import heapq
from collections import defaultdict
from typing import Callable, Mapping

from .graph import Order

Traffic = Mapping[int, tuple[set[str], set[str]]]
"""unit -> the buffers it reads, the buffers it writes."""


def late_order(graph: Order, traffic: Traffic, bytes_of: Callable[[str], int], lasting: Callable[[str], bool]) -> list[int]:
    """Units in an order that respects ``graph``.

    Each stands where its last member stood, or just before the first unit that waits for it where fewer bytes are kept for it then.
    ``bytes_of``: what a buffer takes; ``lasting``: whether it is there until the end whoever has read it.
    """
    units = graph.sorted_units()
    due = _due(graph, units, traffic, bytes_of, lasting)
    waiting = dict.fromkeys(units, 0)
    for u in units:
        for v in graph.after(u):
            waiting[v] += 1
    ready = [(due[u], u) for u in units if not waiting[u]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, u = heapq.heappop(ready)
        order.append(u)
        for v in graph.after(u):
            waiting[v] -= 1
            if not waiting[v]:
                heapq.heappush(ready, (due[v], v))
    return order


def _due(graph: Order, units: list[int], traffic: Traffic, bytes_of: Callable[[str], int], lasting: Callable[[str], bool]) -> dict[int, int]:
    """The place each unit strives for; a unit that makes another wait strives for that one's place at the latest, and comes before it."""
    first = {u: max(graph.members[u]) for u in units}
    after = {u: graph.after(u) for u in units}
    for u in reversed(units):
        first[u] = min([first[u], *(first[v] for v in after[u])])
    held = _held(units, first, traffic, bytes_of, lasting)
    due = dict(first)
    for u in reversed(units):
        if after[u] and sum(map(bytes_of, traffic[u][1])) > held[u]:
            due[u] = min(due[v] for v in after[u])
    return due


def _held(units: list[int], place: Mapping[int, int], traffic: Traffic, bytes_of: Callable[[str], int],
          lasting: Callable[[str], bool]) -> dict[int, int]:
    """The bytes that stay in memory for longer when a unit waits: what it is the last to read, or what those hold that can wait with it."""
    readers: dict[str, list[int]] = defaultdict(list)
    maker: dict[str, int] = {}
    for u in units:
        for name in traffic[u][0]:
            readers[name].append(u)
        if len(traffic[u][1]) == 1:
            maker[next(iter(traffic[u][1]))] = u
    held: dict[int, int] = {}
    for u in units:
        last = [r for r in traffic[u][0] if not lasting(r) and all(place[x] <= place[u] for x in readers[r])]
        held[u] = sum(min(bytes_of(r), held[maker[r]]) if len(readers[r]) == 1 and maker.get(r) in held else bytes_of(r) for r in last)
    return held
