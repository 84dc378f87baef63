"""The instruction: one step of the stack machine with its operand, jump, source position and exception handler."""
from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Iterable, NamedTuple, Optional


class Position(NamedTuple):
    """Where in the source an instruction comes from; ``None`` where that is unknown (as ``co_positions`` says it)."""

    line: Optional[int] = None
    end_line: Optional[int] = None
    column: Optional[int] = None
    end_column: Optional[int] = None


NO_POSITION = Position()
"""Belongs to no line at all; unlike ``position=None``, which takes over the preceding instruction's position."""


@dataclass(slots=True)
class Handler:
    """Where an exception goes: cut the stack to ``depth``, push the offset if ``lasti``, push the exception, jump."""

    target: "Instruction"
    depth: int
    lasti: bool = False


@dataclass(eq=False, slots=True)
class Instruction:
    """One canonical instruction; compared by identity, because jumps point at it.

    ``arg`` is a name, a constant, an operator's symbol or a number; ``target`` is set for jumps. ``flag`` holds what some
    opcodes pack beside their operand: ``LOAD_GLOBAL`` 1: pushes a NULL too; ``LOAD_SUPER_ATTR`` 1: method, 2: two-argument
    form; ``POP_JUMP_IF_TRUE/FALSE`` and ``UNARY_NOT`` 1: the operand is known to be a bool, 2: the handler covers taking
    its truth, not the jump (3.13 writes backward jumps so).
    """

    op: str
    arg: Any = None
    target: Optional["Instruction"] = None
    flag: int = 0
    position: Optional[Position] = None
    handler: Optional[Handler] = None
    offset: int = -1
    """Byte offset in the code it was decoded from; -1 for new instructions."""
    joined: bool = False
    """This CPython fused it with the next instruction; assembled so again where the two still stand together."""
    index: int = -1
    """Index of its constant or slot in the code it was decoded from, tried first when assembled; of a jump, how many
    ``EXTENDED_ARG`` it had (a backward jump over 255 units can do with or without one)."""
    parts: tuple = field(default=(), repr=False)
    """Positions of the instructions folded into this one, where they differ from its own."""

    @property
    def line(self) -> Optional[int]:
        return self.position.line if self.position is not None else None

    def __str__(self) -> str:
        operand = f"-> {self.target.op}@{self.target.offset}" if self.target is not None else repr(self.arg)
        return self.op if self.arg is None and self.target is None else f"{self.op} {operand}"


def clone(instructions: Iterable[Instruction]) -> tuple[list[Instruction], dict[Instruction, Instruction]]:
    """Copies whose jumps and handlers point at the copies; returns them and the map from old to new.

    A jump out of the given list keeps its target.
    """
    originals = list(instructions)
    new = {
        old: Instruction(old.op, old.arg, old.target, old.flag, old.position, None, old.offset, old.joined, old.index, old.parts)
        for old in originals
    }
    handlers: dict[int, Handler] = {}
    for old, copy in new.items():
        if old.target is not None:
            copy.target = new.get(old.target, old.target)
        if (h := old.handler) is not None:
            if id(h) not in handlers:
                handlers[id(h)] = Handler(new.get(h.target, h.target), h.depth, h.lasti)
            copy.handler = handlers[id(h)]
    return list(new.values()), new


def listing(instructions: Iterable[Instruction]) -> str:
    """Text with a label per jump target: the same on every CPython for code that compiles alike."""
    instructions = list(instructions)
    wanted = {i.target for i in instructions if i.target} | {i.handler.target for i in instructions if i.handler}
    labels: dict[Instruction, str] = {}
    pending: list[Instruction] = []
    for instr in instructions:
        if instr in wanted:
            pending.append(instr)
        if instr.op != "END_FOR" and pending:  # does nothing, and 3.11 has none
            labels.update(dict.fromkeys([*pending, instr], f"L{len(set(labels.values())) + 1}"))
            pending = []
    return "\n".join(_line(i, labels) for i in instructions if i.op != "END_FOR")


def _line(instr: Instruction, labels: dict[Instruction, str]) -> str:
    if instr.target is not None:
        operand = labels.get(instr.target, "?")
    elif instr.arg is None and instr.op != "LOAD_CONST":
        operand = ""
    else:
        operand = f"<code {instr.arg.co_name}>" if isinstance(instr.arg, CodeType) else repr(instr.arg)
    flag = f" +{instr.flag & 1}" if instr.flag & 1 else ""
    handler = f"  ! {labels.get(instr.handler.target, '?')} depth {instr.handler.depth}" if instr.handler else ""
    label = labels[instr] + ":" if instr in labels else ""
    return f"{label:5} {instr.op:24} {operand}{flag}{handler}".rstrip()
