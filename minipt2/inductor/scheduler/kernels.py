"""What a schedule is made of: fused kernels between extern calls.

Upstream: ``torch._inductor.scheduler.FusedSchedulerNode`` and ``GraphLowering.codegen``.
"""
from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ...errors import UserFrame
from ..ir import Buffer, Extern, Layout, Program
from ..sizes import hint, use
from .flat import Flat
from .fusion import Group


@dataclass(eq=False)
class Kernel:
    """A fused group with its flat body."""

    group: Group
    flat: Flat

    @property
    def names(self) -> list[str]:
        """The ``Computed`` buffers made here."""
        return [n.name for n in self.group.nodes]

    @property
    def origins(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(o for n in self.group.nodes for o in n.buffer.origins))

    @property
    def stack(self) -> tuple[UserFrame, ...]:
        """The innermost user line of each node, without repeats."""
        return tuple(dict.fromkeys(n.buffer.stack[-1] for n in self.group.nodes if n.buffer.stack))

    @cached_property
    def _touched(self) -> tuple[dict[str, set[Any]], dict[str, set[Any]], dict[str, int]]:
        """(indices loaded, stores made) by buffer name, and the place of each buffer's last load."""
        from .nodes import walk
        loads: dict[str, set[Any]] = defaultdict(set)
        stores: dict[str, set[Any]] = defaultdict(set)
        last: dict[str, int] = {}
        for place, i in enumerate(walk(self.flat.instrs)):
            if i.op == "load" or i.op == "store" and i.args[3] is not None:
                loads[i.args[0]].add(i.args[1])
                last[i.args[0]] = place
            if i.op == "store":
                stores[i.args[0]].add((i.args[1], i.args[3], i.id, place))
        return loads, stores, last

    def reads(self) -> set[str]:
        return set(self._touched[0])

    def writes(self) -> set[str]:
        return set(self._touched[1])

    def in_place_pairs(self) -> dict[str, list[str]]:
        """For each buffer written here, the buffers it may be written over: read only at the index of the store, and not after it."""
        loads, stores, last = self._touched
        pairs: dict[str, list[str]] = {}
        for name, made in stores.items():
            if len(made) != 1:
                continue
            (index, mode, ident, place), = made
            if mode is None and self.flat.stage[ident] == self.flat.stages - 1 and index.is_affine():
                pairs[name] = [other for other, at in loads.items() if other != name and at == {index} and last[other] < place]
        return pairs


@dataclass(eq=False)
class Schedule:
    """``steps`` in order. ``frees[k]``: buffers dead after step k (inputs included). ``plan``: slots in an arena of
    ``arena_bytes`` (64-byte aligned) for intermediates. ``removed``: buffers that never leave a kernel. ``inplace``: result -> operand whose slot it takes."""

    program: Program
    steps: list[Kernel | Extern]
    buffers: dict[str, Buffer]
    removed: set[str]
    frees: list[list[str]] = field(default_factory=list)
    plan: dict[str, Any] = field(default_factory=dict)
    arena_bytes: int = 0
    inplace: dict[str, str] = field(default_factory=dict)
    alone_from: float = math.inf
    """Bytes (a guess where sizes are symbols) from which an intermediate is left out of ``plan``: a tensor of its own."""
    moves: list[tuple[str, int, Any]] = field(default_factory=list)
    """With symbolic sizes: ("take" or "give", number of the slot, bytes), in order. Slots of ``plan`` then have their numbers for offsets."""

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        return {name: b.layout for name, b in self.buffers.items()}

    @property
    def kernels(self) -> list[Kernel]:
        return [s for s in self.steps if isinstance(s, Kernel)]

    def bytes_moved(self) -> int:
        """Bytes that kernels read and write, each buffer once a kernel: the figure that fusion lowers."""
        from .memory import storage_bytes
        with use(self.program.hints):
            return sum(hint(storage_bytes(self.layouts[n])) for k in self.kernels for n in (*k.reads(), *k.writes()))

    def __str__(self) -> str:
        lines = []
        for k, step in enumerate(self.steps):
            what = f"kernel of {', '.join(step.names)}" if isinstance(step, Kernel) else f"{step.target} -> {step.name}"
            lines.append(f"{k}: {what}" + (f"  frees {', '.join(self.frees[k])}" if k < len(self.frees) and self.frees[k] else ""))
        return "\n".join(lines)
