"""Code that looks at its own frame: ``locals()``, a debugger's breakpoint, ``sys._getframe()``. Such a frame runs as it was written.

A frame that is captured holds only the variables still needed, and goes on in other functions after a break. What it calls is captured as ever.
"""
from __future__ import annotations

import builtins
from types import CodeType
from typing import Any

from ..errors import Unsupported, UserFrame
from .bytecode import Instruction
from .per_code import PerCode
from .stack_effect import effect
from .translator import program_of

_BUILTINS = {"locals": 0, "vars": 0, "dir": 0, "breakpoint": None, "eval": 1, "exec": 1}
"""Name -> with how many arguments it looks at the frame (None: with any)."""
_ATTRIBUTES = frozenset(("_getframe", "currentframe", "set_trace"))
_READS = ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")
_ADVICE = "pass in what the code needs, or move this into a function of its own"


def look_at_itself(code: CodeType, f_globals: dict[str, Any]) -> Unsupported | None:
    """The reason for which a frame of ``code`` must not be rewritten; None if there is none."""
    for name, line in _looks(code):
        if name in _ATTRIBUTES or name not in f_globals or f_globals[name] is vars(builtins)[name]:
            place = UserFrame.at(code.co_filename, line or code.co_firstlineno, code.co_name)
            return Unsupported("MP304", f"{name}() looks at the frame it is called in", _ADVICE, (place,))
    return None


def _find(code: CodeType) -> list[tuple[str, int | None]]:
    if not {*_BUILTINS, *_ATTRIBUTES}.intersection(code.co_names):
        return []
    instructions = program_of(code).instructions
    return [(instr.arg, instr.line) for k, instr in enumerate(instructions) if instr.op in _READS and (
            instr.arg in _ATTRIBUTES or instr.op == "LOAD_GLOBAL" and instr.arg in _BUILTINS and _counts(instructions, k))]


_looks = PerCode(_find)
"""Names by which code may look at its frame, and the line of each."""


def _counts(instructions: tuple[Instruction, ...], at: int) -> bool:
    """Whether the builtin loaded by instruction ``at`` is called with as many arguments as make it look at the frame, as far as can be told."""
    wanted = _BUILTINS[instructions[at].arg]
    above = 0
    for instr in instructions[at + 1 :]:
        if instr.op == "CALL" and instr.arg == above:
            return wanted is None or above == wanted
        if instr.target is not None or instr.op not in _SIMPLE:
            return True
        popped, pushed = effect(instr, False)
        above += pushed - popped + (instr.op == "LOAD_GLOBAL" and instr.flag & 1)  # and the NULL of a call
        if above < 0:  # it goes elsewhere: into a variable, or as an argument
            return True
    return True


_SIMPLE = frozenset(
    "LOAD_CONST LOAD_FAST LOAD_FAST_CHECK LOAD_DEREF LOAD_GLOBAL LOAD_ATTR LOAD_METHOD BINARY_OP BINARY_SUBSCR COMPARE_OP CALL BUILD_TUPLE "
    "BUILD_LIST BUILD_MAP BUILD_STRING FORMAT_VALUE UNARY_NEGATIVE UNARY_NOT IS_OP CONTAINS_OP NOP PUSH_NULL".split()
)
