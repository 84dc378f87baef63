"""Code object -> canonical instructions: read the units, split what is fused, fold what is spread out."""
from __future__ import annotations

import dis
import functools
import opcode
from types import CodeType
from typing import Iterator

from ...exercise import exercise
from .dialect import ARITHMETIC, COMPARISONS, current
from .exception_table import read_exception_table
from .instructions import Handler, Instruction, Position

DIALECT = current()


def _caches() -> list[int]:
    entries = opcode._inline_cache_entries  # a list by number up to 3.12, a dict by name from 3.13
    if isinstance(entries, dict):
        return [entries.get(name, 0) for name in dis.opname[:256]]
    return list(entries)


CACHES = _caches()
"""Code units of inline cache that follow each opcode."""
EXTENDED_ARG = dis.EXTENDED_ARG
CELL_OPS = frozenset(dis.opname[op] for op in dis.hasfree)
LOCAL_OPS = frozenset(
    name for name in dis.opmap if "_FAST" in name and name not in DIALECT.pairs and not name.startswith("INSTRUMENTED")
) | {"LOAD_CLOSURE"}
BACKWARD = {"JUMP_BACKWARD": "JUMP", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_NO_INTERRUPT", "JUMP_FORWARD": "JUMP"}
TESTS = ("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "UNARY_NOT")


def _kinds() -> list[str]:
    """What the number of each opcode means."""
    kinds = ["int"] * 256
    for name, op in dis.opmap.items():
        if op >= 256 or name.startswith("INSTRUMENTED"):
            continue
        if op in dis.hasconst:
            kinds[op] = "const"
        elif op in dis.hasname:
            kinds[op] = "name"
        elif name in LOCAL_OPS or name in CELL_OPS:
            kinds[op] = "local"
        elif op in dis.hasjrel:
            kinds[op] = "jump"
        elif name in ("COMPARE_OP", "BINARY_OP"):
            kinds[op] = name
        if name in DIALECT.pairs:
            kinds[op] = "pair"
    return kinds


KINDS = _kinds()


def decode(code: CodeType) -> list[Instruction]:
    """The canonical instructions of ``code``, new objects on every call; ``assemble`` turns them back into equal code."""
    instructions, at = _read(code)
    _attach_handlers(instructions, at, code)
    return _fold(instructions)


@functools.lru_cache(maxsize=1024)
def decode_cached(code: CodeType) -> tuple[Instruction, ...]:
    """``decode`` for readers: shared between callers, so never to be changed (``clone`` it first)."""
    return tuple(decode(code))


def local_names(code: CodeType) -> list[str]:
    """Names of the frame's slots in order: variables, cells that aren't variables too, free variables."""
    variables = code.co_varnames
    return [*variables, *(name for name in code.co_cellvars if name not in variables), *code.co_freevars]


@exercise("1.1")
def _units(code: CodeType) -> Iterator[tuple[int, int, int, int]]:
    """(start, offset past the caches, opcode, number) with ``EXTENDED_ARG`` gathered in."""
    # >>> 1.1
    data = code.co_code
    offset = start = extended = 0
    while offset < len(data):
        op, arg = data[offset], data[offset + 1] | extended
        offset += 2
        if op == EXTENDED_ARG:
            extended = arg << 8
            continue
        offset += 2 * CACHES[op]
        yield start, offset, op, arg
        start, extended = offset, 0
    # <<< 1.1


def _read(code: CodeType) -> tuple[list[Instruction], dict[int, Instruction]]:
    """Instructions with operands and jumps resolved, fused pairs split; and each by the byte offset where it starts."""
    slots, names, consts = local_names(code), code.co_names, code.co_consts
    cells, variables = code.co_cellvars, len(code.co_varnames)
    positions = list(code.co_positions())
    instructions: list[Instruction] = []
    at: dict[int, Instruction] = {}
    jumps: list[tuple[Instruction, int]] = []
    position = Position()
    for start, end, op, number in _units(code):
        if positions[start >> 1] != position:
            position = Position._make(positions[start >> 1])
        name, kind = dis.opname[op], KINDS[op]
        instr = Instruction(name, number or None, position=position, offset=start)
        at[start] = instr
        instructions.append(instr)
        if kind == "int":
            if number == 0 and op in HAS_NUMBER:
                instr.arg = 0
            if DIALECT.renames:
                _rename(instr)
        elif kind == "local":
            instr.arg, instr.index = slots[number], number
        elif kind == "const":
            instr.arg, instr.index = consts[number], number
        elif kind == "name":
            bits = DIALECT.name_bits.get(name, 0)
            instr.arg, instr.flag = names[number >> bits], number & ((1 << bits) - 1)
            if name == "LOAD_ATTR" and instr.flag:
                instr.op, instr.flag = "LOAD_METHOD", 0
        elif kind == "jump":
            distance = -number if "BACKWARD" in name else number
            jumps.append((instr, end + 2 * distance))
            instr.arg, instr.index = None, (end - start) // 2 - 1 - CACHES[op]
            instr.op = BACKWARD.get(name) or name.replace("_FORWARD", "").replace("_BACKWARD", "")
        elif kind == "BINARY_OP":
            instr.arg = ARITHMETIC[number]
        elif kind == "COMPARE_OP":
            instr.arg = COMPARISONS[number >> DIALECT.compare_shift]
            if number & DIALECT.compare_bool:
                instr.joined = True
                instructions.append(Instruction("TO_BOOL", position=position, offset=start))
        else:
            instructions.append(_split(instr, number, slots, consts))
        if DIALECT.closure_by_load_fast:
            for i in instructions[-2:]:
                if i.op == "LOAD_FAST" and (i.arg in cells or i.index >= variables):
                    i.op = "LOAD_CLOSURE"
    for instr, offset in jumps:
        instr.target = at[offset]
    return instructions, at


HAS_NUMBER = frozenset(
    op for name, op in dis.opmap.items()
    if op < 256 and (op in dis.hasarg if hasattr(dis, "hasarg") else op >= dis.HAVE_ARGUMENT)
)


def _rename(instr: Instruction) -> None:
    new = DIALECT.renames.get((instr.op, None)) or DIALECT.renames.get((instr.op, instr.arg))
    if new is not None:
        instr.op, instr.arg = new


def _split(instr: Instruction, number: int, slots: list[str], consts: tuple) -> Instruction:
    """Turn ``instr`` into the first of its pair and return the second."""
    instr.op, second = DIALECT.pairs[instr.op]
    instr.joined = True
    follower = Instruction(second, position=instr.position, offset=instr.offset)
    if instr.op == "LOAD_CONST":
        instr.arg, instr.index = consts[number], number
    elif instr.op == "BUILD_SLICE":
        instr.arg = 2
    else:
        instr.index, follower.index = number >> 4, number & 15
        instr.arg, follower.arg = slots[instr.index], slots[follower.index]
    return follower


@exercise("1.1")
def _attach_handlers(instructions: list[Instruction], at: dict[int, Instruction], code: CodeType) -> None:
    """The entries of the exception table as handlers of the instructions that they cover."""
    # >>> 1.1
    entries = read_exception_table(code.co_exceptiontable)
    if not entries:
        return
    k = 0
    handlers = [Handler(at[target], depth, lasti) for _, _, target, depth, lasti in entries]
    for instr in instructions:
        while k < len(entries) and instr.offset >= entries[k][1]:
            k += 1
        if k == len(entries):
            return
        if instr.offset >= entries[k][0]:
            instr.handler = handlers[k]
    # <<< 1.1


@exercise("1.1")
def _fold(instructions: list[Instruction]) -> list[Instruction]:
    """Make one instruction of those that are one step on another CPython; the first object stays, as jumps point to it."""
    # >>> 1.1
    targets = {i.target for i in instructions if i.target is not None}
    out: list[Instruction] = []
    k = 0
    while k < len(instructions):
        instr = instructions[k]
        rule = FOLDS.get(instr.op)
        n = rule(instructions, k) if rule is not None else 1
        if any(i in targets for i in instructions[k + 1 : k + n]):
            n = 1  # a value already known to be a bool jumps past its TO_BOOL
        if n > 1:
            _absorb(instr, instructions[k : k + n])
        elif DIALECT.to_bool and instr.op in TESTS:
            instr.flag = 1
        out.append(instr)
        k += n
    return out
    # <<< 1.1


def _follows(instructions: list[Instruction], k: int, *ops: str) -> bool:
    return [i.op for i in instructions[k + 1 : k + 1 + len(ops)]] == list(ops)


def _fold_test(instructions: list[Instruction], k: int) -> int:
    return 2 if k + 1 < len(instructions) and instructions[k + 1].op in TESTS else 1


def _fold_attributes(instructions: list[Instruction], k: int) -> int:
    n, last = 1, 16
    while k + n < len(instructions) and instructions[k + n].op == "SET_FUNCTION_ATTRIBUTE" and instructions[k + n].arg < last:
        last = instructions[k + n].arg
        n += 1
    return n


def _absorb(first: Instruction, parts: list[Instruction]) -> None:
    last = parts[-1]
    if any(p.position != last.position for p in parts):
        first.parts = tuple(p.position for p in parts[:-1])
    if last.op in ("CALL", "CALL_KW"):
        if first.op in ("KW_NAMES", "LOAD_CONST"):
            first.arg = (last.arg, first.arg)
            first.op = "CALL_KW"
        else:
            first.op, first.arg = "CALL", last.arg
    elif first.op == "TO_BOOL":
        first.op, first.target, first.index = last.op, last.target, last.index
        first.flag = 2 if last.handler != first.handler else 0
    elif first.op == "CONVERT_VALUE":
        first.op = "FORMAT_VALUE"
    elif first.op == "MAKE_FUNCTION":
        first.arg = sum(p.arg for p in parts[1:])
    first.position = last.position


def _folds() -> dict:
    if DIALECT.precall:
        return {
            "KW_NAMES": lambda i, k: 3 if _follows(i, k, "PRECALL", "CALL") else 1,
            "PRECALL": lambda i, k: 2 if _follows(i, k, "CALL") else 1,
        }
    if DIALECT.kw_names:
        return {"KW_NAMES": lambda i, k: 2 if _follows(i, k, "CALL") else 1}
    return {
        "LOAD_CONST": lambda i, k: 2 if _follows(i, k, "CALL_KW") else 1,
        "TO_BOOL": _fold_test,
        "END_FOR": lambda i, k: 2 if _follows(i, k, "POP_TOP") else 1,
        "MAKE_FUNCTION": _fold_attributes,
        "CONVERT_VALUE": lambda i, k: 2 if _follows(i, k, "FORMAT_VALUE") and i[k + 1].arg == 0 else 1,
    }


FOLDS = _folds()
"""First opcode -> how many instructions from there are one."""
