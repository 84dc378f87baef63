"""Sizes in loops: ints, or products of symbols where they are not known. Dividing and comparing them, and what they are likely to be.

Two rules keep symbolic sizes right. What decides the *meaning* of code (which loops are one, whether an index stays below a size) is
asked of ``exact``, ``nonnegative`` and ``below``, whose answers hold for every size. What decides its *speed* alone (which loop goes
inside, whether blocks pay) is asked of ``hint``, the sizes of the first call, known inside ``use``.
Upstream: ``torch._inductor.sizevars.SizeVarAllocator``.
"""
from __future__ import annotations

import contextlib
import threading
from functools import lru_cache
from typing import Any, Iterator, Mapping

import sympy

from ..shapes import value
from ..shapes.poly import Poly, add, atom, divide, expression, multiply, poly

UNKNOWN = 8192
"""What a size that depends on data is taken for."""
_scope = threading.local()


@contextlib.contextmanager
def use(hints: Mapping[sympy.Symbol, Any]) -> Iterator[None]:
    """Within, ``hint`` knows these values of symbols."""
    before = getattr(_scope, "hints", None)
    _scope.hints = _Hints(hints)
    try:
        yield
    finally:
        _scope.hints = before


@contextlib.contextmanager
def undecided() -> Iterator[None]:
    """Within, asking for a ``hint`` is an error: what is written there must hold for every size."""
    before = getattr(_scope, "hints", None)
    _scope.hints = _Refusing()
    try:
        yield
    finally:
        _scope.hints = before


class _Refusing(dict):
    def __missing__(self, e: sympy.Expr) -> int:
        raise AssertionError(f"text for any size was about to depend on the likely value of {e}")


class _Hints(dict):
    """Expression -> its value, computed once."""

    def __init__(self, symbols: Mapping[sympy.Symbol, Any]):
        super().__init__()
        self.symbols = symbols

    def __missing__(self, e: sympy.Expr) -> int:
        known = {s: self.symbols.get(s, UNKNOWN) for s in e.free_symbols}
        self[e] = found = max(int(value(e, known)), 0)
        return found


def hint(n: Any) -> int:
    """``n`` if it is a number, else what it was when the code was made."""
    if isinstance(n, int):
        return n
    hints = getattr(_scope, "hints", None)
    return UNKNOWN if hints is None else hints[n]


def number(e: Any) -> Any:
    """A known number as int, anything else as it is."""
    return int(e) if isinstance(e, int) or getattr(e, "is_Integer", False) else e


def tidy(e: Any) -> Any:
    """Sums of products, so that equal ones look alike; a known number as int."""
    return e if type(e) is int else _tidy(e)


@lru_cache(maxsize=65536)
def _tidy(e: sympy.Expr) -> Any:
    return number(expression(poly(e)))


@lru_cache(maxsize=65536)
def exact(a: Any, b: Any) -> Any:
    """``a / b`` where that is whole for every size (an int or an expression), else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    divisor = poly(sympy.sympify(b))
    quotient = divide(poly(sympy.sympify(a)), divisor) if divisor else None
    return None if quotient is None else number(expression(quotient))


@lru_cache(maxsize=65536)
def nonnegative(e: Any) -> bool:
    """Whether ``e`` is at least 0 whenever all sizes in it are at least 1 (where one is 0, no loop over it runs and no index is used)."""
    if isinstance(e, int):
        return e >= 0
    total: Poly = {}
    for mono, c in poly(e).items():
        term: Poly = {(): c}
        for a in mono:
            if not atom(a).is_nonnegative:
                return False
            term = multiply(term, {(a,): 1, (): 1})  # size = 1 + something
        total = add(total, term)
    return all(c >= 0 for c in total.values())


def differ(a: Any, b: Any) -> bool:
    """Whether ``a`` and ``b`` are different numbers for all sizes of at least 1."""
    if isinstance(a, int) and isinstance(b, int):
        return a != b
    return nonnegative(a - b - 1) or nonnegative(b - a - 1)


def below(a: Any, b: Any) -> bool:
    """``a < b``, by ``nonnegative``."""
    return a < b if isinstance(a, int) and isinstance(b, int) else nonnegative(b - a - 1)


@lru_cache(maxsize=65536)
def coefficients(e: sympy.Expr, vars: tuple[sympy.Symbol, ...]) -> tuple[Any, ...] | None:
    """The coefficient (an int, or an expression of sizes) of each loop variable if ``e`` is linear in them, plus sizes and numbers; else None."""
    table: dict[sympy.Symbol, sympy.Expr] = dict.fromkeys(vars, sympy.S.Zero)
    for term in sympy.Add.make_args(e.expand()):
        factors = [f for f in sympy.Mul.make_args(term) if not all(map(is_size, f.free_symbols))]
        if len(factors) > 1 or factors and factors[0] not in table:
            return None
        if factors:
            table[factors[0]] += term / factors[0]
    return tuple(map(number, table.values()))


def is_size(symbol: sympy.Symbol) -> bool:
    """A size or number of the call (``s0``, ``d0``, ``u0``, ``n0``, ``f0``), not a loop variable (``p0``, ``r0``) or an index read from memory (``i0``)."""
    return symbol.name[0] not in "pri"
