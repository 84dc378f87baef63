"""Where intermediates live: one arena, slots reused once their buffer is dead, results written over operands that end there.

Upstream: ``torch._inductor.codegen.memory_planning`` and ``scheduler``'s in-place decisions.
"""
from __future__ import annotations

import bisect
from typing import NamedTuple

from ..ir import Extern, Input, Layout
from .kernels import Kernel, Schedule

ALIGN = 64
_MAY_RETURN_INPUT = frozenset("contiguous reshape flatten to type_as expand_as view_as broadcast_to".split())


class Slot(NamedTuple):
    """Bytes ``[offset, offset + size)`` of the arena."""

    offset: int
    size: int


def plan_memory(s: Schedule) -> dict[str, Slot]:
    """Slots for the intermediates of ``s``. Buffers alive at the same time never overlap, except a result written in place (``s.inplace``).

    Left out: graph outputs, results of extern calls that allocate themselves, and whatever such a call may return a view of.
    """
    first, last = _lifetimes(s)
    plannable = _plannable(s)
    candidates = [n for n in first if n in plannable]
    starts: dict[int, list[str]] = {}
    for name in candidates:
        starts.setdefault(first[name], []).append(name)
    arena, plan = _Arena(), {}
    holders: dict[str, str] = {}
    for k, step in enumerate(s.steps):
        for name in starts.get(k, ()):
            size = storage_bytes(s.layouts[name])
            donor = _donor(s, step, k, name, size, plan, last, holders) if isinstance(step, Kernel) else None
            if donor is not None:
                plan[name], holders[donor] = plan[donor], name
                s.inplace[name] = donor
            else:
                plan[name] = arena.take(size)
        for name in (n for n in step.reads() | step.writes() if last.get(n) == k and n in plan and n not in holders):
            arena.give(plan[name])
    s.arena_bytes = arena.high
    return plan


def storage_bytes(layout: Layout) -> int:
    """Bytes from the buffer's start to the end of its last element."""
    extent = 1 + int(layout.offset) + sum((int(n) - 1) * int(t) for n, t in zip(layout.sizes, layout.strides))
    return max(0 if any(n == 0 for n in layout.sizes) else extent, 0) * layout.dtype.itemsize


def _lifetimes(s: Schedule) -> tuple[dict[str, int], dict[str, int]]:
    """First and last step that touch each buffer; what is read later than its last write lives until that read."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, step in enumerate(s.steps):
        for name in sorted(step.reads() | step.writes()):
            first.setdefault(name, k)
            last[name] = k
    return first, last


def _plannable(s: Schedule) -> set[str]:
    outputs = {o.ref.buffer for o in s.program.outputs if o.ref is not None}
    named: set[str] = set()
    for step in s.steps:
        if isinstance(step, Kernel):
            named |= {n for n in step.writes() if not isinstance(s.buffers.get(n), Input)}
        elif step.target == "alloc" or step.out_variant is not None:
            named |= step.writes() - set(step.mutates)
    for step in s.steps:
        if isinstance(step, Extern) and step.target != "alloc" and step.out_variant is None:
            named -= step.writes()
            if _may_alias(step):
                named -= step.reads()
    given = {b.name for b in (*s.program.inputs, *s.program.constants)}
    return {n for n in named - outputs - given if _static(s.layouts[n])}


def _static(layout: Layout) -> bool:
    return all(isinstance(n, int) or n.is_Integer for n in (*layout.sizes, *layout.strides, layout.offset))


def _may_alias(step: Extern) -> bool:
    """Can the call's result share memory with an operand?"""
    schema = getattr(step.target, "_schema", None)
    if schema is None:
        return False
    return schema.name.split("::")[-1] in _MAY_RETURN_INPUT or any(r.alias_info is not None for r in schema.returns)


def _donor(s: Schedule, step: Kernel, k: int, name: str, size: int, plan: dict[str, Slot], last: dict[str, int],
           holders: dict[str, str]) -> str | None:
    """A buffer that dies in this kernel and is read only where ``name`` is written, element by element."""
    for other in step.in_place_pairs().get(name, ()):
        if other in plan and last[other] == k and other not in holders and other not in step.writes() \
                and plan[other].size >= _round(size) and s.layouts[other].dtype == s.layouts[name].dtype:
            return other
    return None


def _round(size: int) -> int:
    return max(ALIGN, (size + ALIGN - 1) // ALIGN * ALIGN)


class _Arena:
    """Best fit over free stretches, neighbours joined."""

    def __init__(self) -> None:
        self.high = 0
        self.free: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> Slot:
        size = _round(size)
        fits = [(n, offset) for offset, n in self.free if n >= size]
        if fits:
            n, offset = min(fits)
            self.free.remove((offset, n))
            if n > size:
                bisect.insort(self.free, (offset + size, n - size))
            return Slot(offset, size)
        if self.free and sum(self.free[-1]) == self.high:  # grow the last free stretch
            offset, _ = self.free.pop()
        else:
            offset = self.high
        self.high = offset + size
        return Slot(offset, size)

    def give(self, slot: Slot) -> None:
        at = bisect.bisect(self.free, (slot.offset, 0))
        offset, size = slot
        if at < len(self.free) and self.free[at][0] == offset + size:
            size += self.free.pop(at)[1]
        if at and sum(self.free[at - 1]) == offset:
            start, n = self.free.pop(at - 1)
            offset, size = start, n + size
        bisect.insort(self.free, (offset, size))
