"""The zero-cost exception table: which code units are covered by which handler (``Objects/exception_handling_notes.txt``)."""
from __future__ import annotations

from typing import Iterator, NamedTuple


class Entry(NamedTuple):
    """Offsets in bytes; ``end`` is past the last covered unit."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def read_exception_table(table: bytes) -> list[Entry]:
    numbers = _read_numbers(table)
    return [
        Entry(2 * start, 2 * (start + size), 2 * next(numbers), (dl := next(numbers)) >> 1, bool(dl & 1))
        for start in numbers
        for size in (next(numbers),)
    ]


def _read_numbers(table: bytes) -> Iterator[int]:
    """Big-endian groups of six bits, bit 6 set on all but the last of a number; bit 7 marks the start of an entry."""
    value = 0
    for byte in table:
        value = value << 6 | byte & 63
        if not byte & 64:
            yield value
            value = 0


def write_exception_table(entries: list[Entry]) -> bytes:
    out = bytearray()
    for start, end, target, depth, lasti in entries:
        begin = len(out)
        for value in (start >> 1, (end - start) >> 1, target >> 1, depth << 1 | lasti):
            groups = [value & 63]
            while value := value >> 6:
                groups.append(value & 63 | 64)
            out += bytes(reversed(groups))
        out[begin] |= 128
    return bytes(out)
