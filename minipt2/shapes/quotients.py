"""Quotients of polynomials of sizes, rounded down, as far as what is known of the sizes takes them apart.

``8*x // 8`` is ``x``, ``(8*x + 3) // 8`` too, ``(x // 2 + 1) // 3`` is ``(x + 2) // 6``. Called by ``facts``, which lends what it knows.
Upstream: ``torch.utils._sympy.functions.FloorDiv``.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .expr import FloorDiv
from .poly import Poly, add, divide, expression
from .relations import quotient_of

if TYPE_CHECKING:
    from .facts import Facts


def quotient_in(facts: "Facts", a: Poly, b: Poly) -> Poly:
    """``a // b`` (rounded down) of images, with what is divisible taken out."""
    exact = divide(a, b)
    if exact is not None:
        return exact
    if len(b) == 1 and b.get((), 1) > 0:
        return _by_term(facts, a, b)
    if facts.between(a, b):
        return {}
    return facts.known_as(FloorDiv(expression(a), expression(b)))


def _by_term(facts: "Facts", a: Poly, b: Poly) -> Poly:
    """``a // b`` for ``b`` a positive number or a monomial: term by term, what is left as one quotient."""
    (mono, k), = b.items()
    whole: Poly = {}
    rest: dict = {}
    for m, c in a.items():
        part = divide({m: c if mono else c - c % k}, b) if mono or c % k != c else None
        if part is None:
            rest[m] = c
        else:
            whole = add(whole, part)
            if not mono and c % k:
                rest[m] = c % k
    if not rest or facts.between(rest, b):
        return whole
    if not mono:
        low, high = facts.plain_bounds(rest)
        if math.isfinite(low) and math.isfinite(high) and low // k == high // k:
            return add(whole, {(): int(low // k)} if low // k else {})
        g = math.gcd(k, *[c for m, c in rest.items() if m])
        if g > 1:  # (g*x + c) // (g*n) == (x + c//g) // n
            rest = {m: c // g for m, c in rest.items() if c // g}
            return add(whole, quotient_in(facts, rest, {(): k // g}))
        inner = quotient_of(rest)
        if inner is not None:  # (x//n + c) // k == (x + n*c) // (n*k)
            x, n, c = inner
            return add(whole, quotient_in(facts, add(x, {(): n * c}), {(): n * k}))
    return add(whole, facts.known_as(FloorDiv(expression(rest), expression(b))))
