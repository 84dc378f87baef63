"""Canonical instructions -> code object: spell them for this CPython, lay them out, compute every table."""
from __future__ import annotations

import dis
from types import CodeType
from typing import Any, Iterable, Optional

from .decode import CACHES, DIALECT, EXTENDED_ARG
from .exception_table import Entry, write_exception_table
from .instructions import Handler, Instruction, NO_POSITION, Position
from .line_table import write_line_table
from .pools import ConstantPool, NamePool, Slots
from .spell import AssembleError, Unit, spell
from .stack_size import stack_size

__all__ = ["AssembleError", "assemble"]


def assemble(instructions: Iterable[Instruction], template: CodeType, **changes: Any) -> CodeType:
    """A code object that runs ``instructions``; everything else is ``template``'s unless ``changes`` says otherwise.

    ``changes`` are keywords of ``CodeType.replace`` (``co_name``, ``co_argcount``, ``co_varnames``, ``co_freevars`` …).
    Stack size, exception table, line table, jumps, inline caches and the number of locals are computed. Names and
    constants are added as needed; so are local variables that ``co_varnames`` lacks. Raises ``AssembleError`` for a
    jump out of the list, a loop that this CPython can't spell, and a stack that underflows.
    """
    instructions = list(instructions)
    slots = Slots(instructions, template, changes)
    names = NamePool(changes.get("co_names", template.co_names))
    consts = ConstantPool(changes.get("co_consts", template.co_consts))
    units = spell(instructions, slots, names, consts)
    first = {unit.start_of: k for k, unit in reversed(list(enumerate(units))) if unit.start_of is not None}
    offsets = _lay_out(units, first)
    computed = {
        "co_code": _bytes(units),
        "co_names": tuple(names.items),
        "co_consts": tuple(consts.items),
        "co_varnames": tuple(slots.variables),
        "co_nlocals": len(slots.variables),
        "co_exceptiontable": write_exception_table(_exception_entries(units, offsets, first)),
        "co_linetable": write_line_table(_spans(units), changes.get("co_firstlineno", template.co_firstlineno)),
        "co_stacksize": stack_size(units, first),
    }
    return template.replace(**{**changes, **computed})


def _lay_out(units: list[Unit], first: dict[Instruction, int]) -> list[int]:
    """Settle jump distances; they decide how many ``EXTENDED_ARG`` a jump needs, which moves other jumps: to a fixed point.

    Returns where each unit starts, and the end, in code units.
    """
    jumps = [(k, _position_of(unit.target, first)) for k, unit in enumerate(units) if unit.target is not None]
    while True:
        offsets, at = [], 0
        for unit in units:
            offsets.append(at)
            at += unit.size
        offsets.append(at)
        grown = False
        for k, target in jumps:
            unit = units[k]
            distance = offsets[target] - offsets[k + 1]
            if (distance < 0) != unit.backward:
                raise AssembleError(f"{dis.opname[unit.opcode]} to the wrong side; this CPython has no such jump")
            unit.arg = abs(distance)
            needed = 1 + _prefixes(unit.arg) + CACHES[unit.opcode]
            if needed > unit.size:  # never shrink: a jump that grew and shrank by turns would go on for ever
                unit.size, grown = needed, True
        if not grown:
            return offsets


def _position_of(target: Instruction, first: dict[Instruction, int]) -> int:
    if target not in first:
        raise AssembleError(f"jump to an instruction that isn't in the list: {target}")
    return first[target]


def _prefixes(arg: int) -> int:
    return 0 if arg < 0x100 else 1 if arg < 0x10000 else 2 if arg < 0x1000000 else 3


def _bytes(units: list[Unit]) -> bytes:
    out = bytearray()
    for unit in units:
        for k in range(unit.size - 1 - CACHES[unit.opcode], 0, -1):
            out += bytes((EXTENDED_ARG, unit.arg >> 8 * k & 255))
        out += bytes((unit.opcode, unit.arg & 255))
        out += bytes(2 * CACHES[unit.opcode])
    return bytes(out)


def _exception_entries(units: list[Unit], offsets: list[int], first: dict[Instruction, int]) -> list[Entry]:
    entries: list[Entry] = []
    current: Optional[Handler] = None
    start = 0
    for k, unit in enumerate([*units, None]):
        handler = unit.handler if unit is not None else None
        if handler is current or handler == current:
            continue
        if current is not None:
            target = offsets[_position_of(current.target, first)]
            entries.append(Entry(2 * start, 2 * offsets[k], 2 * target, current.depth, current.lasti))
        current, start = handler, offsets[k]
    return entries


def _spans(units: list[Unit]) -> list[tuple[Position, int]]:
    spans: list[tuple[Position, int]] = []
    position = NO_POSITION
    for unit in units:
        if unit.position is not None:
            position = unit.position
        if DIALECT.merged_locations and spans and spans[-1][0] == position:
            spans[-1] = (position, spans[-1][1] + unit.size)
        else:
            spans.append((position, unit.size))
    return spans
