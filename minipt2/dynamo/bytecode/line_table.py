"""The line table: the source position of every code unit (``Objects/locations.md``). Reading it is ``co_positions()``."""
from __future__ import annotations

from typing import Iterable

from .instructions import Position

SHORT, ONE_LINE, NO_COLUMNS, LONG, NONE = 0, 10, 13, 14, 15
"""Forms of an entry; the short one spreads over 0 to 9 and the one-line form over 10 to 12."""


def write_line_table(spans: Iterable[tuple[Position, int]], first_line: int) -> bytes:
    """``spans``: positions and how many code units they cover, in order."""
    out = bytearray()
    line = first_line
    for position, units in spans:
        while units > 0:
            n = min(units, 8)
            line = _entry(out, position, n, line)
            units -= n
    return bytes(out)


def _entry(out: bytearray, position: Position, units: int, previous: int) -> int:
    line, end_line, column, end_column = position
    if line is None:
        _head(out, NONE, units)
        return previous
    delta = line - previous
    if column is None or end_column is None:
        if end_line is None or end_line == line:
            _head(out, NO_COLUMNS, units)
            _signed(out, delta)
            return line
    elif end_line == line:
        if delta == 0 and column < 80 and 0 <= end_column - column < 16:
            _head(out, SHORT + (column >> 3), units)
            out.append((column & 7) << 4 | end_column - column)
            return line
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            _head(out, ONE_LINE + delta, units)
            out += bytes((column, end_column))
            return line
    _head(out, LONG, units)
    _signed(out, delta)
    _unsigned(out, (line if end_line is None else end_line) - line)
    _unsigned(out, 0 if column is None else column + 1)
    _unsigned(out, 0 if end_column is None else end_column + 1)
    return line


def _head(out: bytearray, form: int, units: int) -> None:
    out.append(128 | form << 3 | units - 1)


def _unsigned(out: bytearray, value: int) -> None:
    while value >= 64:
        out.append(value & 63 | 64)
        value >>= 6
    out.append(value)


def _signed(out: bytearray, value: int) -> None:
    _unsigned(out, -value << 1 | 1 if value < 0 else value << 1)
