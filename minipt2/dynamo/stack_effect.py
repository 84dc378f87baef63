"""How many values an instruction takes from the stack and puts on it, for the ones that a graph can break at, and which of them are NULL."""
from __future__ import annotations

from typing import Callable

from .bytecode import Instruction, ops
from .bytecode.decode import DIALECT

_FIXED: dict[str, tuple[int, int]] = {
    "BINARY_OP": (2, 1), "BINARY_SUBSCR": (2, 1), "COMPARE_OP": (2, 1), "IS_OP": (2, 1), "CONTAINS_OP": (2, 1),
    "UNARY_NEGATIVE": (1, 1), "UNARY_POSITIVE": (1, 1), "UNARY_INVERT": (1, 1), "UNARY_NOT": (1, 1), "TO_BOOL": (1, 1),
    "CONVERT_VALUE": (1, 1), "LOAD_ATTR": (1, 1), "LOAD_METHOD": (1, 2), "STORE_ATTR": (2, 0), "DELETE_ATTR": (1, 0),
    "STORE_SUBSCR": (3, 0), "DELETE_SUBSCR": (2, 0), "LIST_TO_TUPLE": (1, 1), "GET_ITER": (1, 1), "GET_LEN": (0, 1),
    "GET_YIELD_FROM_ITER": (1, 1), "IMPORT_NAME": (2, 1), "IMPORT_FROM": (0, 1), "LOAD_CONST": (0, 1), "LOAD_FAST": (0, 1),
    "LOAD_FAST_CHECK": (0, 1), "STORE_FAST": (1, 0), "DELETE_FAST": (0, 0), "LOAD_DEREF": (0, 1), "STORE_DEREF": (1, 0),
    "DELETE_DEREF": (0, 0), "LOAD_CLOSURE": (0, 1), "STORE_GLOBAL": (1, 0), "DELETE_GLOBAL": (0, 0), "LOAD_GLOBAL": (0, 1),
    "POP_TOP": (1, 0), "LOAD_BUILD_CLASS": (0, 1), "LOAD_ASSERTION_ERROR": (0, 1), "BEFORE_WITH": (1, 2), "MATCH_SEQUENCE": (0, 1),
    "MATCH_MAPPING": (0, 1), "MATCH_KEYS": (0, 1), "MATCH_CLASS": (3, 1), "POP_JUMP_IF_TRUE": (1, 0), "POP_JUMP_IF_FALSE": (1, 0),
    "POP_JUMP_IF_NONE": (1, 0), "POP_JUMP_IF_NOT_NONE": (1, 0), "LIST_APPEND": (1, 0), "SET_ADD": (1, 0), "MAP_ADD": (2, 0),
    "LIST_EXTEND": (1, 0), "SET_UPDATE": (1, 0), "DICT_UPDATE": (1, 0), "DICT_MERGE": (1, 0), "JUMP": (0, 0), "NOP": (0, 0),
    "PRINT_EXPR": (1, 0), "SETUP_ANNOTATIONS": (0, 0), "CALL_INTRINSIC_1": (1, 1), "CALL_INTRINSIC_2": (2, 1), "RESUME": (0, 0),
    "LOAD_SUPER_ATTR": (3, 1), "IMPORT_STAR": (1, 0), "PUSH_NULL": (0, 1), "LOAD_LOCALS": (0, 1), "WITH_EXCEPT_START": (0, 1),
    "CHECK_EXC_MATCH": (1, 1),
}  # fmt: skip

_COUNTED: dict[str, Callable[[int], tuple[int, int]]] = {
    "BUILD_TUPLE": lambda n: (n, 1), "BUILD_LIST": lambda n: (n, 1), "BUILD_SET": lambda n: (n, 1), "BUILD_MAP": lambda n: (2 * n, 1),
    "BUILD_CONST_KEY_MAP": lambda n: (n + 1, 1), "BUILD_SLICE": lambda n: (n, 1), "BUILD_STRING": lambda n: (n, 1),
    "CALL": lambda n: (n + 2, 1), "CALL_FUNCTION_EX": lambda n: (3 + (n & 1), 1), "FORMAT_VALUE": lambda n: (2 if n & 4 else 1, 1),
    "UNPACK_SEQUENCE": lambda n: (1, n), "UNPACK_EX": lambda n: (1, (n & 0xFF) + (n >> 8) + 1), "RAISE_VARARGS": lambda n: (n, 0),
    "MAKE_FUNCTION": lambda n: (1 + bin(n or 0).count("1"), 1), "RERAISE": lambda n: (1, 0),
}  # fmt: skip


def effect(instr: Instruction, jump: bool) -> tuple[int, int]:
    """(popped, pushed), when the instruction jumps or falls through."""
    op = instr.op
    if op in _COUNTED:
        return _COUNTED[op](instr.arg)
    if op == "CALL_KW":
        return instr.arg[0] + 2, 1
    if op == "FOR_ITER":
        return (1, 0) if jump else (0, 1)
    if op in ("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"):
        return (0, 0) if jump else (1, 0)
    if op == "SEND":
        return (2, 1) if jump and instr.target.op != "END_SEND" else (1, 1)
    return _FIXED[op]


def split_null(instr: Instruction) -> list[Instruction]:
    """Make an instruction that may push a NULL or not push one that surely does: returns what comes after it."""
    if instr.op == "LOAD_METHOD":
        instr.op = "LOAD_ATTR"
    elif instr.op in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and instr.flag & 1:
        instr.flag &= ~1
    else:
        return []
    return [*ops.push_null(), *(ops.swap(2) if _null_first() else [])]


def _null_first() -> bool:
    return DIALECT.null_first


def stack_after(instr: Instruction, nulls: list[bool], jump: bool) -> list[bool]:
    """Which slots of the stack are NULL after the instruction."""
    popped, pushed = effect(instr, jump)
    below = nulls[: len(nulls) - popped]
    if instr.op == "LOAD_METHOD" or (instr.op in ("LOAD_GLOBAL", "LOAD_SUPER_ATTR") and instr.flag & 1):
        return [*below, *((True, False) if _null_first() else (False, True))]
    return below + [False] * pushed
