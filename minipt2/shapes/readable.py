"""Facts as a reader would write them: what both sides share is gone, and a bound reads as one.

In: a comparison that is true of the sizes at hand, and what else is known. Out: one that says the same, given that.

    4*n0 == 4*s0                ->  n0 == s0
    s0*s1 == 2*s0               ->  s1 == 2              (s0 is at least 2)
    s0 == 8*(s0 // 8)           ->  s0 % 8 == 0
    s0 % 3 <= 0                 ->  s0 % 3 == 0
    (s0 + 1) // 2 == 4          ->  s0 >= 7, s0 <= 8     (``ends``)

Called by ``env`` for what becomes a guard. Upstream: ``ShapeGuardPrinter`` prints facts as they were met.
"""
from __future__ import annotations

import sympy

from .expr import FloorDiv, Mod
from .facts import Facts
from .functions import RELATION_OF, python, relation
from .poly import Poly, add, atom, content, expression, poly
from .relations import negative, normal, quotient_of, single

_TURNED = {"==": "==", "!=": "!=", ">=": "<=", ">": "<"}


def readable(facts: Facts, fact: sympy.Basic) -> sympy.Basic:
    """``fact`` in its shortest form; what is no comparison of integers stays."""
    comparison = normal(fact)
    if comparison is None:
        return fact
    rest = _divisible(*comparison)
    if rest is not None:
        return rest
    op, p = facts.sharpened(*comparison)
    if op == ">=" and facts.decide(">=", negative(p)):
        op = "=="  # it cannot be more
    p = facts.without_factors(op, p)
    if op != ">=":
        p = _without_content(p)
    if _is_bound(op, p):
        return _bound(p)
    short = _written(op, p, turned=relation(fact) in ("<", "<="))
    return short if len(python(short)) <= len(python(fact)) else fact


def ends(fact: sympy.Basic) -> tuple[sympy.Basic, sympy.Basic] | None:
    """The two bounds of a size that ``fact``, about a quotient of it, amounts to."""
    comparison = normal(fact)
    if comparison is None or comparison[0] != "==":
        return None
    for p in (comparison[1], negative(comparison[1])):
        inner = quotient_of(p)
        if inner is not None and single(inner[0]) is not None and atom(single(inner[0])[0]).is_Symbol:
            x, n, c = inner  # x // n + c == 0
            dividend = expression(x)
            return sympy.Ge(dividend, -n * c, evaluate=False), sympy.Le(dividend, n - 1 - n * c, evaluate=False)
    return None


def _without_content(p: Poly) -> Poly:
    g = content(p)
    return p if g <= 1 else {m: c // g for m, c in p.items()}


def _is_bound(op: str, p: Poly) -> bool:
    return op == ">=" and single(p) is not None and bool(atom(single(p)[0]).is_Symbol)


def _bound(p: Poly) -> sympy.Basic:
    a, c, d = single(p)
    return sympy.Ge(atom(a), -(d // c), evaluate=False) if c > 0 else sympy.Le(atom(a), d // -c, evaluate=False)


def _divisible(op: str, p: Poly) -> sympy.Basic | None:
    """``a - n * (a // n)`` compared with zero, as ``a % n``."""
    p = _without_content(p)
    for mono in p if op != ">=" else ():
        e = atom(mono[0]) if len(mono) == 1 else None
        if isinstance(e, FloorDiv) and e.args[1].is_Integer and e.args[1] > 1:
            for q in (p, negative(p)):
                if add(q, poly(e.args[0]), -1) == {mono: -int(e.args[1])}:
                    return RELATION_OF[op](Mod(*e.args), sympy.S.Zero, evaluate=False)
    return None


def _written(op: str, p: Poly, turned: bool) -> sympy.Basic:
    """``p op 0`` with every term on the side where it is positive; a side without symbols stands right."""
    if op == ">=" and p.get((), 0) == -1:
        op, p = ">", {m: c for m, c in p.items() if m}
    left = {m: c for m, c in p.items() if c > 0}
    right = {m: -c for m, c in p.items() if c < 0}
    if not any(left) or turned and any(right):
        op, left, right = _TURNED[op], right, left
    return RELATION_OF[op](expression(left), expression(right), evaluate=False)
