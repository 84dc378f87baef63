"""Integer expressions as polynomials: dicts from monomials to coefficients, where comparing and adding is dict arithmetic.

A monomial is a sorted tuple of atoms' numbers (``()`` is the constant one); an atom is a symbol or anything that is no sum, product
or power of a number: ``FloorDiv``, ``Mod``, ``Max``, an opaque function. Two expressions of sizes are equal as polynomials exactly if
their expanded forms are. Used to decide facts (``facts``), where sympy's own machinery would take most of a compilation.
"""
from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Mapping

import sympy

Expr = sympy.Expr
Poly = Mapping[tuple[int, ...], int]

_atoms: list[Expr] = []
_numbers: dict[Expr, int] = {}


def atom(number: int) -> Expr:
    """The expression that an atom's number stands for."""
    return _atoms[number]


def number_of(e: Expr) -> int:
    """The number of an atom; the same one in the whole process."""
    known = _numbers.get(e)
    if known is None:
        known = _numbers[e] = len(_atoms)
        _atoms.append(e)
    return known


@lru_cache(maxsize=65536)
def poly(e: Expr) -> Poly:
    """``e`` expanded. Must not be written to."""
    if e.is_Integer:
        return {(): int(e)} if e else {}
    if e.is_Add:
        out: dict[tuple[int, ...], int] = {}
        for arg in e.args:
            accumulate(out, poly(arg), 1)
        return out
    if e.is_Mul:
        product: Poly = {(): 1}
        for arg in e.args:
            product = multiply(product, poly(arg))
        return product
    if e.is_Pow and e.exp.is_Integer and 0 < e.exp <= 8:
        product = base = poly(e.base)
        for _ in range(int(e.exp) - 1):
            product = multiply(product, base)
        return product
    return {(number_of(e),): 1}


def accumulate(out: dict, p: Poly, factor: int = 1) -> None:
    """Add ``factor * p`` to ``out`` in place."""
    for mono, c in p.items():
        total = out.get(mono, 0) + c * factor
        if total:
            out[mono] = total
        else:
            out.pop(mono, None)


def add(p: Poly, q: Poly, factor: int = 1) -> Poly:
    """``p + factor * q``"""
    out = dict(p)
    accumulate(out, q, factor)
    return out


def multiply(p: Poly, q: Poly) -> Poly:
    out: dict[tuple[int, ...], int] = {}
    for m, c in p.items():
        for n, d in q.items():
            mono = tuple(sorted(m + n)) if m and n else m or n
            total = out.get(mono, 0) + c * d
            if total:
                out[mono] = total
            else:
                del out[mono]
    return out


def content(p: Poly) -> int:
    """The greatest common divisor of all coefficients; 0 for the zero polynomial."""
    return gcd(*p.values())


def expression(p: Poly) -> Expr:
    """The sympy expression of ``p``."""
    return sympy.Add(*[sympy.Mul(c, *[_atoms[a] for a in mono]) for mono, c in p.items()])


def divide(p: Poly, q: Poly) -> Poly | None:
    """``p / q`` where that is a polynomial with integer coefficients, else None."""
    if len(q) == 1:
        return divide_by_monomial(p, *next(iter(q.items())))
    lead = max(q, key=_rank)
    quotient: Poly = {}
    rest = p
    for _ in range(len(p) + 8):
        if not rest:
            return quotient
        top = max(rest, key=_rank)
        part = divide_by_monomial({top: rest[top]}, lead, q[lead])
        if part is None:
            return None
        quotient = add(quotient, part)
        rest = add(rest, multiply(part, q), -1)
    return None


def reduced(p: Poly, q: Poly) -> tuple[Poly, Poly, Poly]:
    """``p`` and ``q`` without their common factors, and those: a number times a monomial."""
    monos = [*p, *q]
    common = list(monos[0])
    for mono in monos[1:]:
        common = [a for k, a in enumerate(common) if common[:k].count(a) < mono.count(a)]
    factor = {tuple(common): gcd(content(p), content(q))}
    return divide_by_monomial(p, *next(iter(factor.items()))), divide_by_monomial(q, *next(iter(factor.items()))), factor


def _rank(mono: tuple[int, ...]) -> tuple:
    return len(mono), mono


def divide_by_monomial(p: Poly, mono: tuple[int, ...], c: int) -> Poly | None:
    """``p / (c * mono)`` where that is a polynomial with integer coefficients, else None."""
    out = {}
    for m, d in p.items():
        left = _without(m, mono)
        if left is None or d % c:
            return None
        out[left] = d // c
    return out


def _without(mono: tuple[int, ...], divisor: tuple[int, ...]) -> tuple[int, ...] | None:
    if not divisor:
        return mono
    left = list(mono)
    for a in divisor:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)
