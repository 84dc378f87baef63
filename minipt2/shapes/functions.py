"""Expressions of sizes as numbers and as text: what every kind of expression means, in Python.

``value(e, values)`` computes, ``python(e, names)`` writes Python text that does. Integers are sympy's sums, products and powers with
``FloorDiv``, ``Mod``, ``Max`` and ``Min``. Everything about floats is opaque: a function of ``OPAQUE`` that sympy never rewrites, because
floating point sums must be rounded as eager rounds them. Upstream: ``torch.utils._sympy.functions``, ``torch.utils._sympy.printers``.
"""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, Callable, Mapping

import sympy
import torch

from .expr import FloorDiv, Mod

Expr = sympy.Basic


@dataclass(frozen=True)
class Opaque:
    """A function of numbers as sympy carries it, as Python runs it (``call``) and writes it (``text``)."""

    symbol: Any
    call: Callable
    text: str
    pytype: type


def _row(name: str, call: Callable, text: str, pytype: type = float) -> tuple[str, Opaque]:
    return name, Opaque(sympy.Function(f"{pytype.__name__}_{name}", real=True, integer=True if pytype is int else None), call, text, pytype)


_MATH = "sqrt cos cosh sin sinh tan tanh asin acos atan log2 log exp".split()
OPAQUE: dict[str, Opaque] = dict([
    _row("add", operator.add, "({} + {})"), _row("sub", operator.sub, "({} - {})"), _row("mul", operator.mul, "({} * {})"),
    _row("truediv", operator.truediv, "({} / {})"), _row("mod", operator.mod, "({} % {})"), _row("pow", operator.pow, "({} ** {})"),
    _row("floordiv", operator.floordiv, "({} // {})"), _row("neg", operator.neg, "(-{})"), _row("abs", abs, "abs({})"),
    _row("max", max, "max({}, {})"), _row("min", min, "min({}, {})"), _row("float", float, "float({})"), _row("round_to", round, "round({}, {})"),
    *[_row(name, getattr(math, name), f"math.{name}({{}})") for name in _MATH],
    _row("floor", math.floor, "math.floor({})", int), _row("ceil", math.ceil, "math.ceil({})", int), _row("trunc", math.trunc, "int({})", int),
    _row("round", round, "round({})", int), _row("and", operator.and_, "({} & {})", int), _row("or", operator.or_, "({} | {})", int),
    _row("xor", operator.xor, "({} ^ {})", int), _row("truth", int, "int({})", int),
])  # fmt: skip
_BY_SYMBOL = {row.symbol: row for row in OPAQUE.values()}

_RELATIONS: dict[type, tuple[str, Callable]] = {
    sympy.Eq: ("==", operator.eq), sympy.Ne: ("!=", operator.ne), sympy.Lt: ("<", operator.lt), sympy.Le: ("<=", operator.le),
    sympy.Gt: (">", operator.gt), sympy.Ge: (">=", operator.ge),
}  # fmt: skip
RELATION_OF: dict[str, type] = {text: kind for kind, (text, _) in _RELATIONS.items()}
NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def opaque(e: Expr) -> Opaque | None:
    """The row of ``OPAQUE`` that ``e`` is a call of."""
    return _BY_SYMBOL.get(e.func)


def pytype_of(e: Expr) -> type:
    """``bool``, ``int`` or ``float``."""
    row = _BY_SYMBOL.get(e.func)
    if row is not None:
        return row.pytype
    if e.is_Boolean or e.is_Relational:
        return bool
    return float if e.is_Float or e.is_Symbol and not e.is_integer else int


def relation(e: Expr) -> str | None:
    """``==``, ``<`` … of a comparison, None for anything else."""
    row = _RELATIONS.get(e.func)
    return row[0] if row else None


def value(e: Expr, values: Mapping[sympy.Symbol, Any]) -> Any:
    """The number or truth of ``e``. Raises KeyError for a symbol without a value."""
    if e.is_Symbol:
        return values[e]
    if not e.args:
        return _constant(e)
    row = _BY_SYMBOL.get(e.func) or _RELATIONS.get(e.func)
    args = [value(a, values) for a in e.args]
    if row is not None:
        return row.call(*args) if isinstance(row, Opaque) else row[1](*args)
    return _MEANING[e.func](args)


def _constant(e: Expr) -> Any:
    if e is sympy.true or e is sympy.false:
        return e is sympy.true
    return int(e) if e.is_Integer else float(e)


def meaning(e: Expr) -> tuple[Callable, bool]:
    """The function of Python that ``e`` applies to its arguments, and whether it takes two at a time, from the left."""
    row = _BY_SYMBOL.get(e.func)
    if row is not None:
        return row.call, False
    if e.func in _RELATIONS:
        return _RELATIONS[e.func][1], False
    return _FUNCTIONS[e.func]


_FUNCTIONS: dict[type, tuple[Callable, bool]] = {
    sympy.Add: (operator.add, True), sympy.Mul: (operator.mul, True), sympy.Pow: (operator.pow, True), FloorDiv: (operator.floordiv, True),
    Mod: (operator.mod, True), sympy.Max: (torch.sym_max, True), sympy.Min: (torch.sym_min, True), sympy.And: (operator.and_, True),
    sympy.Or: (operator.or_, True), sympy.Not: (operator.not_, False),
}  # fmt: skip
_MEANING: dict[type, Callable[[list], Any]] = {
    sympy.Add: sum, sympy.Mul: math.prod, sympy.Pow: lambda a: a[0] ** a[1], FloorDiv: lambda a: a[0] // a[1], Mod: lambda a: a[0] % a[1],
    sympy.Max: max, sympy.Min: min, sympy.And: all, sympy.Or: any, sympy.Not: lambda a: not a[0],
}  # fmt: skip


def python(e: Expr, names: Callable[[sympy.Symbol], str] = lambda s: s.name) -> str:
    """Python text of ``e``; ``math`` must be in its scope. ``names`` says how symbols read."""
    return _write(e, names, 0)


_LOOSE, _SUM, _DIVISION, _PRODUCT, _POWER = 0, 2, 3, 4, 5
"""How tightly the surroundings bind. A division is put in parentheses inside products."""


def _write(e: Expr, names: Callable, tight: int) -> str:
    if e.is_Symbol:
        return names(e)
    if not e.args:
        constant = _constant(e)
        text = repr(constant) if math.isfinite(constant) else f"float('{constant}')"
        return f"({text})" if constant < 0 and tight > _LOOSE else text
    row = _BY_SYMBOL.get(e.func)
    if row is not None:
        tight = _POWER + 1 if row.text[0] == "(" else _LOOSE
        return row.text.format(*[_write(a, names, tight) for a in e.args])
    text, own = _WRITERS[e.func](e, names)
    return f"({text})" if own < tight else text


def _sum(e: Expr, names: Callable) -> tuple[str, int]:
    out = ""
    for arg in sorted(e.args, key=lambda a: (a.could_extract_minus_sign(), a.is_number, a.sort_key())):
        minus = arg.could_extract_minus_sign()
        text = _write(-arg if minus else arg, names, _PRODUCT if minus and not out else _DIVISION)
        out += f" - {text}" if minus and out else f"-{text}" if minus else f" + {text}" if out else text
    return out, _SUM


def _product_text(e: Expr, names: Callable) -> tuple[str, int]:
    c, _ = e.as_coeff_Mul()
    if c == -1:
        return "-" + _write(-e, names, _PRODUCT), _SUM
    return " * ".join(_write(a, names, _PRODUCT) for a in e.args), _PRODUCT


def _infix(sign: str, own: int) -> Callable:
    return lambda e, names: (f" {sign} ".join([_write(e.args[0], names, own), *[_write(a, names, own + 1) for a in e.args[1:]]]), own)


def _division(sign: str) -> Callable:
    return lambda e, names: (f"{_write(e.args[0], names, _DIVISION)} {sign} {_write(e.args[1], names, _POWER)}", _DIVISION)


def _call(name: str) -> Callable:
    return lambda e, names: (f"{name}({', '.join(_write(a, names, _LOOSE) for a in e.args)})", 9)


_WRITERS: dict[type, Callable] = {
    sympy.Add: _sum, sympy.Mul: _product_text, FloorDiv: _division("//"), Mod: _division("%"), sympy.Max: _call("max"),
    sympy.Min: _call("min"), sympy.And: _infix("and", 1), sympy.Or: _infix("or", 0), sympy.Not: _call("not "),
    sympy.Pow: lambda e, names: (f"{_write(e.base, names, 9)} ** {_write(e.exp, names, 9)}", _POWER),
    **{kind: _infix(sign, 1) for kind, (sign, _) in _RELATIONS.items()},
}  # fmt: skip
