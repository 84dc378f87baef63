"""Operators, comparisons and f-strings."""
from __future__ import annotations

from ..variables.builtin import binary_op, format_value, unary_op
from .registry import op

SYMBOLS = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and_", "|": "or_", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
SYMBOLS |= {symbol + "=": "i" + name.rstrip("_") for symbol, name in SYMBOLS.items()}
COMPARISONS = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}


@op("BINARY_OP")
def binary(tx, instr) -> None:
    left, right = tx.popn(2)
    tx.push(binary_op(tx, SYMBOLS[instr.arg], left, right))


@op("BINARY_SUBSCR")
def binary_subscr(tx, instr) -> None:
    owner, key = tx.popn(2)
    tx.push(binary_op(tx, "getitem", owner, key))


@op("COMPARE_OP")
def compare(tx, instr) -> None:
    left, right = tx.popn(2)
    tx.push(binary_op(tx, COMPARISONS[instr.arg], left, right))


@op("IS_OP")
def is_op(tx, instr) -> None:
    left, right = tx.popn(2)
    tx.push(tx.constant(binary_op(tx, "is_", left, right).as_python_constant() != bool(instr.arg)))


@op("CONTAINS_OP")
def contains(tx, instr) -> None:
    item, container = tx.popn(2)
    tx.push(tx.constant(binary_op(tx, "contains", container, item).truth(tx) != bool(instr.arg)))


@op("UNARY_NEGATIVE")
def negative(tx, instr) -> None:
    tx.push(unary_op(tx, "neg", tx.pop()))


@op("UNARY_POSITIVE")
def positive(tx, instr) -> None:
    tx.push(unary_op(tx, "pos", tx.pop()))


@op("UNARY_INVERT")
def invert(tx, instr) -> None:
    tx.push(unary_op(tx, "invert", tx.pop()))


@op("UNARY_NOT")
def not_(tx, instr) -> None:
    tx.push(tx.constant(not tx.pop().truth(tx)))


@op("TO_BOOL")
def to_bool(tx, instr) -> None:
    tx.push(tx.constant(tx.pop().truth(tx)))


CONVERSIONS = (None, "str", "repr", "ascii")


@op("FORMAT_VALUE")
def format_op(tx, instr) -> None:
    spec = tx.pop() if instr.arg & 4 else None
    tx.push(format_value(tx, tx.pop(), CONVERSIONS[instr.arg & 3], spec))


@op("CONVERT_VALUE")
def convert_value(tx, instr) -> None:
    tx.push(format_value(tx, tx.pop(), CONVERSIONS[instr.arg], None))


@op("BUILD_STRING")
def build_string(tx, instr) -> None:
    parts = tx.popn(instr.arg)
    tx.push(tx.constant("".join(part.as_python_constant() for part in parts)))
