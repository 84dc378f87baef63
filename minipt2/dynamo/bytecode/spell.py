"""Canonical instructions -> the raw ones of this CPython: the inverse of what ``decode`` split and folded."""
from __future__ import annotations

import dis
from dataclasses import dataclass
from typing import Any, Callable, Optional

from .decode import CACHES, DIALECT, KINDS, TESTS
from .dialect import ARITHMETIC, COMPARISONS
from .instructions import Handler, Instruction, Position
from .pools import ConstantPool, NamePool, Slots


class AssembleError(ValueError):
    """Instructions that no code object can hold."""


@dataclass(slots=True)
class Unit:
    """One raw instruction with its number; ``size`` counts code units with prefixes and caches."""

    opcode: int
    arg: int
    size: int
    position: Optional[Position]
    handler: Optional[Handler]
    target: Optional[Instruction]
    backward: bool
    start_of: Optional[Instruction]
    """The canonical instruction that begins here, so that jumps find it."""


UNNAMED = {canonical: raw for raw, canonical in DIALECT.renames.items()}
COMPARE_MASKS = (2, 10, 8, 7, 4, 12)
"""Of ``< <= == != > >=``: which of unordered (1), less (2), greater (4), equal (8) make the comparison true."""
INVERSE = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}


def spell(instructions: list[Instruction], slots: Slots, names: NamePool, consts: ConstantPool) -> list[Unit]:
    """The raw instructions in order; jump distances are still open."""
    return _Speller(instructions, slots, names, consts).run()


class _Speller:
    def __init__(self, instructions: list[Instruction], slots: Slots, names: NamePool, consts: ConstantPool):
        self.instructions, self.slots, self.names, self.consts = instructions, slots, names, consts
        self.place = {instr: k for k, instr in enumerate(instructions)}
        if len(self.place) != len(instructions):
            raise AssembleError("an instruction stands in the list twice; clone it")
        self.targets = {i.target for i in instructions if i.target} | {i.handler.target for i in instructions if i.handler}
        self.units: list[Unit] = []
        self.instr: Instruction = None  # type: ignore[assignment]
        self.begun: Optional[Instruction] = None
        self.parts = 0

    def run(self) -> list[Unit]:
        k = 0
        while k < len(self.instructions):
            self.begin(self.instructions[k])
            k += self.joined(k) or self.single(k)
        return self.units

    def begin(self, instr: Instruction) -> None:
        self.instr = self.begun = instr
        self.parts = 0

    def emit(self, name: str, arg: int = 0, target: Optional[Instruction] = None, backward: bool = False, last: bool = True) -> None:
        """Append one raw instruction of the canonical one at hand; ``last`` unless more follow from it."""
        opcode = dis.opmap[name]
        position = self.instr.position
        if not last and self.parts < len(self.instr.parts):
            position = self.instr.parts[self.parts]
            self.parts += 1
        prefixes = 0 if arg < 0x100 else 1 if arg < 0x10000 else 2 if arg < 0x1000000 else 3
        if target is not None:
            prefixes = max(prefixes, self.instr.index)
        size = 1 + prefixes + CACHES[opcode]
        self.units.append(Unit(opcode, arg, size, position, self.instr.handler, target, backward, self.begun))
        self.begun = None

    def joined(self, k: int) -> int:
        """Write this instruction and the next as one if they were so before; 0 if not."""
        instr = self.instructions[k]
        if not instr.joined or k + 1 == len(self.instructions):
            return 0
        after = self.instructions[k + 1]
        if after in self.targets or after.handler != instr.handler:
            return 0
        if instr.op == "COMPARE_OP" and DIALECT.compare_bool and after.op in (*TESTS, "TO_BOOL") and not after.flag & 1:
            self.emit("COMPARE_OP", self.comparison(instr) | DIALECT.compare_bool)
            if after.op == "TO_BOOL":
                return 2
            self.begin(after)
            self.parts = 1
            self.test(after, known=True)
            return 2
        ops = tuple("LOAD_FAST" if op == "LOAD_CLOSURE" else op for op in (instr.op, after.op))
        fused = next((name for name, pair in DIALECT.pairs.items() if pair == ops), None)
        number = None if fused is None else self.pair_number(instr, after)
        if fused is None or number is None:
            return 0
        self.emit(fused, number)
        return 2

    def pair_number(self, instr: Instruction, after: Instruction) -> Optional[int]:
        if instr.op == "LOAD_CONST":
            return self.consts(instr.arg, instr.index)
        if instr.op == "BUILD_SLICE":
            return 0 if instr.arg == 2 else None
        first, second = self.slots(instr), self.slots(after)
        return first << 4 | second if first < 16 and second < 16 else None

    def single(self, k: int) -> int:
        instr = self.instructions[k]
        rule = RULES.get(instr.op)
        if rule is not None:
            rule(self, instr)
        elif instr.target is not None:
            self.jump(instr)
        else:
            name, arg = UNNAMED.get((instr.op, None)) or UNNAMED.get((instr.op, instr.arg)) or (instr.op, None)
            if name not in dis.opmap:
                raise AssembleError(f"CPython {DIALECT.version} has no {instr.op}")
            self.emit(name, self.number(name, instr) if arg is None else arg)
        return 1

    def number(self, name: str, instr: Instruction) -> int:
        kind = KINDS[dis.opmap[name]]
        if kind == "int":
            return instr.arg or 0
        if kind == "local":
            return self.slots(instr)
        if kind == "const":
            return self.consts(instr.arg, instr.index)
        if kind == "name":
            return self.names(instr.arg) << DIALECT.name_bits.get(name, 0) | instr.flag
        if kind == "BINARY_OP":
            return ARITHMETIC.index(instr.arg)
        raise AssembleError(f"{instr.op} without a target")

    def comparison(self, instr: Instruction) -> int:
        which = COMPARISONS.index(instr.arg)
        return which << DIALECT.compare_shift | (COMPARE_MASKS[which] if DIALECT.compare_shift else 0)

    def is_backward(self, instr: Instruction) -> bool:
        if instr.target not in self.place:
            raise AssembleError(f"jump to an instruction that isn't in the list: {instr.target}")
        return self.place[instr.target] <= self.place[instr]

    def jump(self, instr: Instruction) -> None:
        backward = self.is_backward(instr)
        if instr.op == "JUMP" or instr.op == "JUMP_NO_INTERRUPT":
            name = "JUMP_FORWARD" if not backward else instr.op.replace("JUMP", "JUMP_BACKWARD")
            self.emit(name, target=instr.target, backward=backward)
        elif instr.op in DIALECT.directed:
            self.emit(instr.op.replace("_IF", "_BACKWARD_IF" if backward else "_FORWARD_IF"), target=instr.target, backward=backward)
        elif backward and instr.op in INVERSE:
            self.jump_over(instr)
        else:
            self.emit(instr.op, target=instr.target, backward=backward)

    def jump_over(self, instr: Instruction) -> None:
        """A conditional jump backward where there is none: skip an unconditional one."""
        skip = Instruction("NOP", position=instr.position, handler=instr.handler)
        self.emit(INVERSE[instr.op], target=skip)
        self.emit("JUMP_BACKWARD", target=instr.target, backward=True)
        self.begun = skip
        self.emit("NOP")

    def test(self, instr: Instruction, known: bool = False) -> None:
        if DIALECT.to_bool and not instr.flag & 1 and not known:
            self.emit("TO_BOOL", last=False)
        if instr.op == "UNARY_NOT":
            self.emit("UNARY_NOT")
        else:
            self.jump(instr)
        if instr.flag & 2:
            self.units[-1].handler = None

    def call(self, instr: Instruction) -> None:
        n, names = (instr.arg, ()) if instr.op == "CALL" else instr.arg
        if names or instr.op == "CALL_KW":
            self.emit("KW_NAMES" if DIALECT.kw_names else "LOAD_CONST", self.consts(names, instr.index), last=False)
        if DIALECT.precall:
            self.emit("PRECALL", n, last=False)
        self.emit("CALL" if instr.op == "CALL" or DIALECT.kw_names else "CALL_KW", n)

    def make_function(self, instr: Instruction) -> None:
        flags = instr.arg or 0
        if not DIALECT.function_attributes:
            return self.emit("MAKE_FUNCTION", flags)
        bits = [bit for bit in (8, 4, 2, 1) if flags & bit]
        self.emit("MAKE_FUNCTION", last=not bits)
        for bit in bits:
            self.emit("SET_FUNCTION_ATTRIBUTE", bit, last=bit == bits[-1])

    def format_value(self, instr: Instruction) -> None:
        if not DIALECT.convert_value:
            return self.emit("FORMAT_VALUE", instr.arg or 0)
        conversion, spec = instr.arg & 3, instr.arg & 4
        if conversion and spec:
            self.emit("SWAP", 2)
        if conversion:
            self.emit("CONVERT_VALUE", conversion, last=False)
        if conversion and spec:
            self.emit("SWAP", 2)
        self.emit("FORMAT_WITH_SPEC" if spec else "FORMAT_SIMPLE")

    def end_for(self, instr: Instruction) -> None:
        for name in DIALECT.end_for:
            self.emit(name, last=name == DIALECT.end_for[-1])

    def load_method(self, instr: Instruction) -> None:
        if "LOAD_ATTR" in DIALECT.name_bits:
            self.emit("LOAD_ATTR", self.names(instr.arg) << 1 | 1)
        else:
            self.emit("LOAD_METHOD", self.names(instr.arg))


RULES: dict[str, Callable[[_Speller, Instruction], Any]] = {
    "CALL": _Speller.call,
    "CALL_KW": _Speller.call,
    "COMPARE_OP": lambda s, i: s.emit("COMPARE_OP", s.comparison(i)),
    "COPY_FREE_VARS": lambda s, i: s.emit("COPY_FREE_VARS", len(s.slots.free)),
    "END_FOR": _Speller.end_for,
    "FORMAT_VALUE": _Speller.format_value,
    "LOAD_CLOSURE": lambda s, i: s.emit("LOAD_FAST" if DIALECT.closure_by_load_fast else "LOAD_CLOSURE", s.slots(i)),
    "LOAD_METHOD": _Speller.load_method,
    "MAKE_FUNCTION": _Speller.make_function,
    "POP_JUMP_IF_FALSE": _Speller.test,
    "POP_JUMP_IF_TRUE": _Speller.test,
    "UNARY_NOT": _Speller.test,
}
"""Canonical instructions that aren't spelled by their own name and number alone."""
