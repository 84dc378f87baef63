"""Who must run before whom: the dependency graph of a program's steps, kept in order while steps are fused.

Upstream: ``torch._inductor.scheduler``'s ``compute_dependencies``, ``dead_node_elimination`` and ``will_fusion_create_cycle``.
"""
from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any, Mapping, Sequence

from ..ir import Computed, Extern, Program
from .affine import from_sympy
from .nodes import Node


def live_steps(program: Program) -> list[Computed | Extern]:
    """Steps whose results are seen: they reach an output, change an input, draw random numbers or mutate something."""
    needed = {o.ref.buffer for o in program.outputs if o.ref is not None}
    kept_alive = {b.name for b in (*program.inputs, *program.constants)}
    live = []
    for step in reversed(program.buffers):
        effects = isinstance(step, Extern) and (step.random or step.effect or bool(step.mutates))
        if effects or step.writes() & (needed | kept_alive):
            live.append(step)
            needed |= step.reads()
    return live[::-1]


def dependencies(program: Program, steps: Sequence[Computed | Extern], nodes: Mapping[str, Node]) -> list[set[int]]:
    """For each step the steps it must follow: writers of what it reads; earlier readers and writers of what it overwrites.

    ``nodes`` holds what the ``Computed`` have become (inlining changes what they read).
    """
    writers: dict[str, list[int]] = defaultdict(list)
    readers: dict[str, list[int]] = defaultdict(list)
    unordered = _disjoint_targets(program, steps)
    ordered: list[int] = []
    before: list[set[int]] = []
    for k, step in enumerate(steps):
        need: set[int] = set()
        reads, writes = nodes[step.name].reads() if isinstance(step, Computed) else step.reads(), step.writes()
        for name in reads:
            need.update(writers[name])
            readers[name].append(k)
        for name in writes:
            need.update(readers[name])
            need.update(w for w in writers[name] if name not in unordered or isinstance(steps[w], Extern))
            writers[name].append(k)
        if isinstance(step, Extern) and (step.random or step.effect):
            need.update(ordered[-1:])
            ordered.append(k)
        need.discard(k)
        before.append(need)
    return before


def _disjoint_targets(program: Program, steps: Sequence[Computed | Extern]) -> set[str]:
    """Allocated buffers that plain stores fill part by part (a concatenation): their writers need no order."""
    targets = {s.name: s for s in steps if isinstance(s, Extern) and s.target == "alloc"}
    filled: dict[str, Any] = defaultdict(int)
    odd: set[str] = set()
    for step in steps:
        if not isinstance(step, Computed):
            continue
        for name, index, mode in step.body.stores():
            if name in targets:
                filled[name] += prod(step.body.sizes)
                if mode is not None or not all(t.startswith("p") for t in from_sympy(index).names()):
                    odd.add(name)
    return {n for n, total in filled.items() if n not in odd and program.same(total, prod(targets[n].layout.sizes))}


class Order:
    """A valid order of units (groups or extern calls) that stays valid while units are merged.

    ``units`` are hashable; ``after(u)`` are direct successors. Merging looks only at the stretch between the two units.
    """

    def __init__(self, count: int, before: Sequence[set[int]]):
        self.unit = list(range(count))
        self.members: dict[int, list[int]] = {k: [k] for k in range(count)}
        self.succ: list[list[int]] = [[] for _ in range(count)]
        for k, need in enumerate(before):
            for j in need:
                self.succ[j].append(k)
        self.line: list[int | None] = list(range(count))
        self.place: dict[int, int] = {k: k for k in range(count)}

    def after(self, unit: int) -> set[int]:
        return {self.unit[s] for m in self.members[unit] for s in self.succ[m]} - {unit}

    def between(self, a: int, b: int) -> set[int] | None:
        """Descendants of ``a`` that stand before ``b``; None when one of them leads to ``b`` (merging would close a cycle)."""
        end = self.place[b]
        found: set[int] = set()
        todo = [u for u in self.after(a) if u != b and self.place[u] < end]
        while todo:
            u = todo.pop()
            if u in found:
                continue
            found.add(u)
            for v in self.after(u):
                if v == b:
                    return None
                if self.place[v] < end and v not in found:
                    todo.append(v)
        return found

    def merge(self, a: int, b: int) -> None:
        """``b`` becomes part of ``a``; requires ``place[a] < place[b]`` and ``between(a, b) is not None``."""
        later = self.between(a, b)
        assert later is not None, "merging would close a cycle"
        start, end = self.place[a], self.place[b]
        stretch = [u for u in self.line[start + 1:end] if u is not None]
        line: list[int | None] = [u for u in stretch if u not in later] + [a] + [u for u in stretch if u in later]
        line += [None] * (end + 1 - start - len(line))  # a gap, so that nothing after it moves
        self.line[start:end + 1] = line
        self.members[a] += self.members.pop(b)
        for m in self.members[a]:
            self.unit[m] = a
        del self.place[b]
        for k in range(start, end + 1):
            if self.line[k] is not None:
                self.place[self.line[k]] = k

    def sorted_units(self) -> list[int]:
        return [u for u in self.line if u is not None]
