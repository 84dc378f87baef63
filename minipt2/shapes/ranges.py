"""The least and greatest value that a polynomial of sizes can take, from the ranges of its symbols.

Every atom is shifted so that it starts at zero, and the polynomial expanded again: what then has no negative coefficient is at least its
constant. That is exact for sums, and sees that ``s0 * s1 - s0 - s1 >= 0`` for sizes of at least two, where plain interval arithmetic
gives up. Upstream: ``torch.utils._sympy.value_ranges``.
"""
from __future__ import annotations

import math

import sympy

from .expr import FloorDiv
from .poly import Poly, accumulate, atom, multiply, poly

Range = tuple[float, float]
"""Least and greatest value, infinities included."""
INTEGERS: Range = (-math.inf, math.inf)


class Ranges:
    """``ranges``: of each atom that has one; a symbol without one is any integer. Whoever changes them calls ``forget`` next."""

    def __init__(self) -> None:
        self.ranges: dict[int, Range] = {}
        self._shifts: dict[int, tuple[Poly, bool, float]] = {}
        self._shifted: dict[tuple[int, ...], Poly] = {}
        self._spans: dict[tuple[int, ...], Range] = {}

    def forget(self) -> None:
        """What was derived from ranges that are others now."""
        for derived in (self._shifts, self._shifted, self._spans):
            derived.clear()

    def plain_bounds(self, p: Poly) -> Range:
        if len(p) <= 2:
            simple = self._bounds_of_linear(p)
            if simple is not None:
                return simple
        shifted: dict[tuple[int, ...], int] = {}
        for mono, c in p.items():
            accumulate(shifted, self._expanded(mono), c)
        low = high = shifted.get((), 0)
        for mono, c in shifted.items():
            if mono:
                smallest, top = self._span(mono)
                low += c * (smallest if c > 0 else top)
                high += c * (top if c > 0 else smallest)
        return low, high

    def _expanded(self, mono: tuple[int, ...]) -> Poly:
        """A monomial in atoms that start at zero."""
        product = self._shifted.get(mono)
        if product is None:
            product = {(): 1}
            for a in mono:
                product = multiply(product, self._shift(a)[0])
            self._shifted[mono] = product
        return product

    def _span(self, mono: tuple[int, ...]) -> Range:
        """Least and greatest value of a monomial in shifted atoms."""
        span = self._spans.get(mono)
        if span is None:
            shifts = [self._shift(a) for a in mono]
            span = self._spans[mono] = (0, _product([top for _, _, top in shifts])) if all(low for _, low, _ in shifts) else INTEGERS
        return span

    def _bounds_of_linear(self, p: Poly) -> Range | None:
        low = high = p.get((), 0)
        for mono, c in p.items():
            if not mono:
                continue
            if len(mono) > 1:
                return None
            a, b = self.range_of(mono[0])
            low += c * (a if c > 0 else b)
            high += c * (b if c > 0 else a)
        return low, high

    def _shift(self, a: int) -> tuple[Poly, bool, float]:
        """An atom as start + t with t >= 0 (written as the atom itself), whether it is, and the greatest t."""
        known = self._shifts.get(a)
        if known is None:
            low, high = self.range_of(a)
            if math.isfinite(low):
                known = ({(a,): 1, (): int(low)} if low else {(a,): 1}), True, high - low
            elif math.isfinite(high):
                known = ({(a,): -1, (): int(high)} if high else {(a,): -1}), True, math.inf
            else:
                known = {(a,): 1}, False, math.inf
            self._shifts[a] = known
        return known

    def range_of(self, a: int) -> Range:
        known = self.ranges.get(a)
        if known is not None:
            return known
        e = atom(a)
        if isinstance(e, FloorDiv):
            top, bottom = (self.plain_bounds(poly(x)) for x in e.args)
            return _divided(top, bottom) if bottom[0] >= 1 else INTEGERS
        if isinstance(e, (sympy.Max, sympy.Min)):
            best = max if isinstance(e, sympy.Max) else min
            ends = [self.plain_bounds(poly(arg)) for arg in e.args]
            return best(low for low, _ in ends), best(high for _, high in ends)
        if e.is_Pow and self.plain_bounds(poly(e.base))[0] >= 1 and self.plain_bounds(poly(e.exp))[0] >= 0:
            return 1, math.inf
        return INTEGERS


def _divided(top: Range, bottom: Range) -> Range:
    low = _floor(top[0], bottom[1] if top[0] >= 0 else bottom[0])
    high = _floor(top[1], bottom[0] if top[1] >= 0 else bottom[1])
    return low, high


def _floor(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a // b


def _product(tops: list[float]) -> float:
    return 0 if 0 in tops else math.prod(tops)
