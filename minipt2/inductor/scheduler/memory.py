"""Where intermediates live: one arena, slots reused once their buffer is dead, results written over operands that end there.

Upstream: ``torch._inductor.codegen.memory_planning`` and ``scheduler``'s in-place decisions.
"""
from __future__ import annotations

import math
from typing import Any

from ...exercise import exercise
from ..arena import MemoryMap, Slot, rounded
from ..ir import Extern, Input, Layout
from ..sizes import hint, nonnegative, tidy
from .kernels import Kernel, Schedule

_MAY_RETURN_INPUT = frozenset("contiguous reshape flatten to type_as expand_as view_as broadcast_to".split())
_COUNT_FROM_STORAGE = frozenset({"as_strided_scatter", "as_strided_copy"})
"""Their offset counts from the start of the operand's storage, which in the arena is the arena's."""


@exercise("5.5")
def plan_memory(s: Schedule) -> dict[str, Slot]:
    """Slots for the intermediates of ``s``. Buffers alive at the same time never overlap, except a result written in place (``s.inplace``).

    Left out: graph outputs, results of extern calls that allocate themselves, whatever such a call may return a view of or looks for by its place
    in a storage, and what is as large as ``s.alone_from``.
    Where sizes are symbols, slots have numbers for offsets, and ``s.moves`` says what is taken and given back in which order.
    """
    # >>> 5.5
    first, last = _lifetimes(s)
    plannable = _plannable(s)
    candidates = [n for n in first if n in plannable]
    starts: dict[int, list[str]] = {}
    for name in candidates:
        starts.setdefault(first[name], []).append(name)
    arena, plan = _Moves(s.moves) if s.program.symbols else MemoryMap(), {}
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
    # <<< 5.5


class _Moves:
    """Takes down what a ``MemoryMap`` is to do once sizes are known."""

    high = 0

    def __init__(self, moves: list[tuple[str, int, Any]]):
        self.moves = moves

    def take(self, size: Any) -> Slot:
        slot = Slot(sum(kind == "take" for kind, _, _ in self.moves), size)
        self.moves.append(("take", *slot))
        return slot

    def give(self, slot: Slot) -> None:
        self.moves.append(("give", *slot))


def storage_bytes(layout: Layout) -> Any:
    """Bytes from the buffer's start to the end of its last element; an expression where sizes are symbols (of no meaning if one of them is 0)."""
    if 0 in layout.sizes:
        return 0
    extent = tidy(1 + layout.offset + sum((n - 1) * t for n, t in zip(layout.sizes, layout.strides)))
    return (max(extent, 0) if isinstance(extent, int) else extent) * layout.dtype.itemsize


def _lifetimes(s: Schedule) -> tuple[dict[str, int], dict[str, int]]:
    """First and last step that touch each buffer; what is read later than its last write lives until that read."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for k, step in enumerate(s.steps):
        for name in sorted(step.reads() | step.writes()):
            first.setdefault(name, k)
            last[name] = k
    return first, last


def ends(s: Schedule) -> list[int]:
    """For each kernel of ``s``, where what lies in the arena while it runs ends: what it needs besides may begin there."""
    first, last = _lifetimes(s)
    found = [0] * len(s.steps)
    for name, slot in s.plan.items():
        for k in range(first[name], last[name] + 1):
            found[k] = max(found[k], slot.offset + slot.size)
    return [end for end, step in zip(found, s.steps) if isinstance(step, Kernel)]


def _plannable(s: Schedule) -> set[str]:
    outputs = {o.ref.buffer for o in s.program.outputs if o.ref is not None}
    named: set[str] = set()
    for step in s.steps:
        if isinstance(step, Kernel):
            named |= {n for n in step.writes() if not isinstance(s.buffers.get(n), Input)}
        elif step.target == "alloc" or step.out_variant is not None:
            named |= step.writes() - set(step.mutates)
    for step in s.steps:
        if isinstance(step, Extern) and step.target != "alloc":
            if step.out_variant is None:
                named -= step.writes()
            if _may_alias(step) or _name(step) in _COUNT_FROM_STORAGE:
                named -= step.reads()
    given = {b.name for b in (*s.program.inputs, *s.program.constants)}
    return {n for n in named - outputs - given if s.layouts[n].offset or not is_large(s, s.layouts[n])}


def is_large(s: Schedule, layout: Layout) -> bool:
    """Whether a buffer is large enough to be a tensor of its own."""
    return s.alone_from != math.inf and hint(storage_bytes(layout)) >= s.alone_from


def _may_alias(step: Extern) -> bool:
    """Can the call's result share memory with an operand?"""
    schema = getattr(step.target, "_schema", None)
    if schema is None or step.out_variant is not None:
        return False
    return _name(step) in _MAY_RETURN_INPUT or any(r.alias_info is not None for r in schema.returns)


def _name(step: Extern) -> str:
    schema = getattr(step.target, "_schema", None)
    return schema.name.split("::")[-1] if schema is not None else ""


def _donor(s: Schedule, step: Kernel, k: int, name: str, size: Any, plan: dict[str, Slot], last: dict[str, int],
           holders: dict[str, str]) -> str | None:
    """A buffer that dies in this kernel and is read only where ``name`` is written, element by element."""
    for other in step.in_place_pairs().get(name, ()):
        if other in plan and last[other] == k and other not in holders and other not in step.writes() \
                and nonnegative(plan[other].size - (rounded(size) if isinstance(size, int) else size)) and s.layouts[other].dtype == s.layouts[name].dtype:
            return other
    return None
