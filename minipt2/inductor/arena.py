"""Where pieces of memory lie in one arena: taken and given back in the order in which a program uses them.

Run by the scheduler when sizes are known, and by generated code for each tuple of sizes where they are not. Imports nothing.
"""
from __future__ import annotations

import bisect
from typing import NamedTuple

ALIGN = 64


class Slot(NamedTuple):
    """Bytes ``[offset, offset + size)`` of the arena."""

    offset: int
    size: int


def rounded(size: int) -> int:
    return max(ALIGN, (size + ALIGN - 1) // ALIGN * ALIGN)


class MemoryMap:
    """Best fit over free stretches, neighbours joined. ``high``: bytes needed in all."""

    def __init__(self) -> None:
        self.high = 0
        self.free: list[tuple[int, int]] = []  # (offset, size), by offset

    def take(self, size: int) -> Slot:
        size = rounded(size)
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
