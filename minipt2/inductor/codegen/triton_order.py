"""Which kernels run from the last program to the first: those that read a large buffer which the step before them left in the cache.

A step that goes through a buffer larger than the device's cache leaves its end there. One that follows from the beginning finds nothing of it, and
pushes out what it would find later; one that begins at the end reads that part from the cache. So in a normalisation over a batch::

    statistics    reads x    ->     leaves the end of x
    results       reads x    <-     begins there

Upstream has no counterpart.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Sequence

from ..hardware import Hw
from ..ir import Extern
from ..scheduler.affine import Index
from ..scheduler.kernels import Kernel, Schedule
from ..scheduler.memory import storage_bytes
from ..scheduler.nodes import walk
from ..scheduler.templates import Template
from .c_openmp_plan import Plan
from .triton_blocks import Blocks


def in_order(schedule: Schedule, plans: Sequence[Plan], blocks: Sequence[Blocks], hw: Hw) -> list[Blocks]:
    """``blocks`` of ``plans``, the loop kernels of ``schedule`` in order, with ``back`` where a kernel should begin at the end."""
    if schedule.program.symbols:
        return list(blocks)
    large = {name: n for name, layout in schedule.layouts.items() if (n := storage_bytes(layout)) > hw.cache // 2}
    loops, found = iter(zip(plans, blocks)), []
    left: dict[str, tuple[bool, int]] = {}
    """Of a large buffer: whether it was last gone through backwards, and the bytes moved until then."""
    moved = 0
    for step in schedule.steps:
        back = False
        if isinstance(step, Kernel) and not isinstance(step, Template):
            plan, chosen = next(loops)
            walked = _walked(plan, chosen)
            near = [(large[name], name) for name in step.reads() if name in left and name in walked and moved - left[name][1] <= hw.cache // 2]
            back = bool(near) and not left[max(near)[1]][0]
            found.append(replace(chosen, back=back))
        elif isinstance(step, Extern) and step.target == "alloc":
            continue
        touched = (step.reads() | step.writes()) & large.keys()
        moved += sum(large[name] for name in touched)
        left.update({name: (back, moved) for name in touched})
    return found


def _walked(plan: Plan, blocks: Blocks) -> set[str]:
    """Buffers that the programs of a kernel go through in the order of memory."""
    if plan.inner:
        if plan.column and blocks.split == 1 or blocks.split > 1 and not plan.column:
            return set()
        slowest = plan.inner[0][0] if plan.column else plan.outer[0][0] if plan.outer else ""
    else:
        slowest = plan.outer[0][0] if plan.outer else ""
    buffers = {p.name: p.buffer for p in plan.params}
    reached: dict[str, list[Any]] = {}
    for i in walk(plan.instrs):
        if i.op in ("load", "store"):
            reached.setdefault(buffers[i.args[0]], []).append(i.args[1])
    return {name for name, indices in reached.items() if all(_slowest(index, slowest) for index in indices)}


def _slowest(index: Index, v: str) -> bool:
    """Whether ``v`` takes the longest steps, ahead."""
    return index.is_affine() and index.stride(v) > 0 and index.stride(v) == max(index.terms.values())
