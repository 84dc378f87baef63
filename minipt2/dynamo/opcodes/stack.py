"""Moving values on the stack, constants, and instructions that do nothing here."""
from __future__ import annotations

from .registry import op


@op("NOP", "RESUME", "CACHE", "EXTENDED_ARG", "END_FOR", "COPY_FREE_VARS")
def nop(tx, instr) -> None:
    pass


@op("MAKE_CELL")
def make_cell(tx, instr) -> None:
    """Cells are made before the first instruction; in the middle of a frame only 3.12's inlined comprehensions do it."""
    from ..variables.functions import CellVariable

    if instr.arg not in tx.cells:
        tx.cells[instr.arg] = CellVariable(tx.locals.pop(instr.arg, None))


@op("POP_TOP")
def pop_top(tx, instr) -> None:
    tx.pop()


@op("PUSH_NULL")
def push_null(tx, instr) -> None:
    from ..translator import NULL

    tx.push(NULL)


@op("COPY")
def copy(tx, instr) -> None:
    tx.push(tx.stack[-instr.arg])


@op("SWAP")
def swap(tx, instr) -> None:
    stack, n = tx.stack, instr.arg
    stack[-1], stack[-n] = stack[-n], stack[-1]


@op("LOAD_CONST")
def load_const(tx, instr) -> None:
    """Constants of the code object: code objects and frozen sets included."""
    from types import CodeType

    value = instr.arg
    tx.push(tx.constant(value) if isinstance(value, CodeType) or type(value) in _PLAIN else tx.wrap_constant(value))


_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), type(Ellipsis)})


@op("LOAD_ASSERTION_ERROR")
def load_assertion_error(tx, instr) -> None:
    tx.push(tx.wrap_constant(AssertionError))
