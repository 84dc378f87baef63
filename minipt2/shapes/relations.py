"""Comparisons as polynomials: ``p >= 0``, ``p == 0``, ``p != 0``, and what one such comparison says in other words."""
from __future__ import annotations

import math
import operator
from functools import lru_cache
from typing import Iterable, Mapping

import sympy

from .expr import FloorDiv
from .functions import NEGATED, OPAQUE, RELATION_OF, pytype_of, relation, value
from .poly import Poly, add, atom, content, number_of, poly


def negated(fact: sympy.Basic) -> sympy.Basic:
    op = relation(fact)
    if op is None:
        return fact.args[0] if isinstance(fact, sympy.Not) else sympy.Not(fact, evaluate=False)
    return RELATION_OF[NEGATED[op]](fact.lhs, fact.rhs, evaluate=False)


@lru_cache(maxsize=4096)
def normal(fact: sympy.Basic) -> tuple[str, Poly] | None:
    """A comparison of integers as (``>=``, ``==`` or ``!=``, p): ``p op 0``; ``0 == 0`` or ``0 != 0`` for one with infinity. None for others."""
    left, right = sides = [whole(side) for side in fact.args]
    if None in sides:
        return None
    if any(side.is_infinite for side in sides):
        return "==" if fact.func(*[side if side.is_infinite else sympy.S.Zero for side in sides]) else "!=", {}
    op, a, b = relation(fact), poly(left), poly(right)
    if op in ("<", "<="):
        a, b = b, a
    difference = add(a, b, -1)
    if op in ("==", "!="):
        return op, difference
    return ">=", add(difference, {(): 1}, -1) if op in ("<", ">") else difference


def whole(e: sympy.Expr) -> sympy.Expr | None:
    """An integer or infinity, or sums and products of integers computed in floats (exact below 2**53, as sizes are), as an integer; else None."""
    if e.is_Float:
        return sympy.Integer(int(e)) if float(e).is_integer() else None
    if e is sympy.S.NaN:
        return None
    if pytype_of(e) is int:
        return e
    exact = _EXACT.get(e.func)
    args = [whole(a) for a in e.args] if exact is not None else [None]
    return None if None in args else exact(*args)


_EXACT = {OPAQUE[name].symbol: call for name, call in (
    ("float", operator.pos), ("neg", operator.neg), ("add", operator.add), ("sub", operator.sub), ("mul", operator.mul))}


def negative(p: Poly) -> Poly:
    return {m: -c for m, c in p.items()}


def signed(p: Poly) -> Poly:
    """``p`` or ``-p``: the same one for both."""
    return p if p[max(p)] > 0 else negative(p)


def reduced(p: Poly) -> Poly:
    """``p >= 0`` with the common divisor of what varies taken out, the constant rounded down."""
    g = content({m: c for m, c in p.items() if m})
    return p if g <= 1 else {m: c // g for m, c in p.items() if c // g}


def single(p: Poly) -> tuple[int, int, int] | None:
    """(atom, coefficient, constant) of a polynomial that is linear in one atom."""
    varying = [m for m in p if m]
    if len(varying) == 1 and len(varying[0]) == 1:
        return varying[0][0], p[varying[0]], p.get((), 0)
    return None


def quotient_of(p: Poly) -> tuple[Poly, int, int] | None:
    """(x, n, c) of ``x // n + c`` for a number ``n``, else None."""
    varying = [m for m in p if m]
    if len(varying) == 1 and len(varying[0]) == 1 and p[varying[0]] == 1:
        e = atom(varying[0][0])
        if isinstance(e, FloorDiv) and e.args[1].is_Integer and e.args[1] > 0:
            return poly(e.args[0]), int(e.args[1]), p.get((), 0)
    return None


def without_quotient(p: Poly) -> Poly:
    """``p >= 0`` for a bound of ``x // n`` as one of ``x``."""
    while True:
        p = reduced(p)
        for sign in (1, -1):
            inner = quotient_of(p if sign == 1 else {m: -c if m else c for m, c in p.items()})
            if inner is not None:
                x, n, c = inner
                p = add(x, {(): n * c}) if sign == 1 else add({(): n * c + n - 1}, x, -1)
                break
        else:
            return p


def alone(p: Poly) -> int | None:
    """The atom that ``p`` is."""
    mono, c = next(iter(p.items()), ((), 0))
    return mono[0] if len(p) == 1 and len(mono) == 1 and c == 1 else None


def solve(e: sympy.Expr, symbol: sympy.Symbol, number: int, values: Mapping[sympy.Symbol, int]) -> int | float | None:
    """What ``symbol`` is if ``e``, linear in it, is ``number``, and other symbols have ``values``; None where that does not tell.

    Of the truth ``symbol != 0`` it is 0 or 1.
    """
    if e == symbol or relation(e) == "!=" and e.args == (symbol, sympy.S.Zero):
        return int(number) if isinstance(number, bool) else number
    p = poly(e)
    a = number_of(symbol)
    terms = {m: c for m, c in p.items() if any(atom(x).has(symbol) for x in m)}
    if any(m.count(a) != 1 or any(x != a and atom(x).has(symbol) for x in m) for m in terms):
        return None
    factor = sum(c * math.prod(value(atom(x), values) for x in m if x != a) for m, c in terms.items())
    rest = sum(c * math.prod(value(atom(x), values) for x in m) for m, c in p.items() if m not in terms)
    return (number - rest) // factor if factor else None


def cancelling(p: Poly, f: Poly) -> Iterable[tuple[int, int]]:
    """Positive factors of ``p`` and ``f`` whose difference lacks a term that both have."""
    seen = set()
    for mono, c in p.items():
        d = f.get(mono, 0)
        if mono and c * d > 0:
            g = math.gcd(c, d)
            pair = (abs(d) // g, abs(c) // g)
            if pair not in seen:
                seen.add(pair)
                yield pair
