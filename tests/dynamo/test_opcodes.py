"""Every opcode of the running CPython has a handler, or is one that decoding turns into others."""
from __future__ import annotations

import dis

from minipt2.dynamo.opcodes import HANDLERS

# Spelled otherwise after ``decode``: directed jumps, fused pairs, parts of calls and of f-strings.
FOLDED = {
    "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "PRECALL", "KW_NAMES", "RETURN_CONST", "BINARY_SLICE", "STORE_SLICE",
    "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST", "SET_FUNCTION_ATTRIBUTE",
}  # fmt: skip
# Never in the code of a function that Python runs: the interpreter's own.
INTERNAL = {"INTERPRETER_EXIT", "RESERVED", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}


def test_no_opcode_is_unaccounted_for():
    names = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    missing = names - set(HANDLERS) - FOLDED - INTERNAL
    assert not {name for name in missing if not name.startswith(("POP_JUMP_FORWARD_IF_", "POP_JUMP_BACKWARD_IF_"))}
