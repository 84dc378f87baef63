"""Integer expressions of index arithmetic: ``FloorDiv``, ``Mod`` and their simplification under known ranges.

``ranges`` maps a symbol to its exclusive upper bound (0 <= symbol < bound). The dividend of ``FloorDiv`` and ``Mod`` is
non-negative wherever the value is used, so that C's ``/`` and ``%`` mean the same; parts of a sum need not be, which the rules
below respect. Upstream: ``torch.utils._sympy.functions`` and ``torch._inductor.sizevars``.
"""
from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import Any, Mapping

import sympy

from ..exercise import exercise

Expr = sympy.Expr
Ranges = Mapping[sympy.Symbol, Expr]
_NO_RANGES: Ranges = {}


class FloorDiv(sympy.Function):
    """``a // b`` for a >= 0, b > 0."""

    nargs = (2,)
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) // int(b))
        return a if b == 1 else None

    def _sympystr(self, printer: Any) -> str:
        return f"({printer.doprint(self.args[0])})//{printer.doprint(self.args[1])}"


class Mod(sympy.Function):
    """``a % b`` for a >= 0, b > 0."""

    nargs = (2,)
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if a.is_Integer and b.is_Integer:
            return sympy.Integer(int(a) % int(b))
        return sympy.S.Zero if b == 1 else None

    def _sympystr(self, printer: Any) -> str:
        return f"({printer.doprint(self.args[0])})%{printer.doprint(self.args[1])}"


def size(x: Any) -> Expr:
    """A size as an expression: an int, a sympy expression, or a SymInt whose node carries ``expr``."""
    if isinstance(x, sympy.Expr):
        return x
    if isinstance(x, int):
        return sympy.Integer(x)
    return x.node.expr


def floordiv(a: Expr | int, b: Expr | int, ranges: Ranges = _NO_RANGES) -> Expr:
    """``a // b``, with multiples of ``b`` taken out and a remainder known to be smaller than ``b`` dropped."""
    return _divide(size(a), size(b), ranges)[0]


def mod(a: Expr | int, b: Expr | int, ranges: Ranges = _NO_RANGES) -> Expr:
    """``a % b``, with multiples of ``b`` dropped and the ``%`` itself where the rest is known to be smaller."""
    return _divide(size(a), size(b), ranges)[1]


def simplify(e: Expr, ranges: Ranges) -> Expr:
    """``e`` with every ``FloorDiv`` and ``Mod`` rewritten as far as ``ranges`` allow, and split indices put together again."""
    if not _has_division(e):
        return e
    return _simplify(e, _relevant(e, ranges))


def bounds(e: Expr, ranges: Ranges) -> tuple[int, int] | None:
    """Least and greatest value ``e`` can take (inclusive, not always attained); None where sizes are not known numbers."""
    if e.is_Integer:
        return int(e), int(e)
    if e.is_Symbol:
        top = ranges.get(e)
        return (0, int(top) - 1) if top is not None and top.is_Integer else None
    if isinstance(e, (FloorDiv, Mod)):
        return _division_bounds(e, ranges)
    if e.is_Add or e.is_Mul:
        parts = [bounds(arg, ranges) for arg in e.args]
        if any(p is None for p in parts):
            return None
        return _add_bounds(parts) if e.is_Add else _mul_bounds(parts)
    return None


def recombine(e: Expr) -> Expr:
    """``k*(x//k) + x%k`` back to ``x``, also nested and scaled: what splitting and merging the same dimension leaves."""
    while e.is_Add:
        better = _recombine_once(e)
        if better is None:
            return e
        e = better
    return e


def _add_bounds(parts: list[tuple[int, int]]) -> tuple[int, int]:
    return sum(lo for lo, _ in parts), sum(hi for _, hi in parts)


def _mul_bounds(parts: list[tuple[int, int]]) -> tuple[int, int]:
    lo, hi = parts[0]
    for a, b in parts[1:]:
        corners = (lo * a, lo * b, hi * a, hi * b)
        lo, hi = min(corners), max(corners)
    return lo, hi


def _division_bounds(e: Expr, ranges: Ranges) -> tuple[int, int] | None:
    a, b = e.args
    inner = bounds(a, ranges)
    if not b.is_Integer:
        return None
    k = int(b)
    if isinstance(e, Mod):
        return (0, k - 1 if inner is None else max(0, min(k - 1, inner[1])))
    return None if inner is None else (0, max(0, inner[1] // k))


@lru_cache(maxsize=65536)
def _has_division(e: Expr) -> bool:
    return isinstance(e, (FloorDiv, Mod)) or any(_has_division(a) for a in e.args)


def _relevant(e: Expr, ranges: Ranges) -> tuple[tuple[sympy.Symbol, Expr], ...]:
    """The part of ``ranges`` that can matter to ``e``, as a hashable key."""
    if not ranges:
        return ()
    return tuple((s, size(ranges[s])) for s in sorted(e.free_symbols, key=lambda s: s.name) if s in ranges)


@lru_cache(maxsize=65536)
def _simplify(e: Expr, key: tuple[tuple[sympy.Symbol, Expr], ...]) -> Expr:
    if not _has_division(e):
        return e
    args = [_simplify(a, key) for a in e.args]
    if isinstance(e, FloorDiv):
        return floordiv(*args, dict(key))
    if isinstance(e, Mod):
        return mod(*args, dict(key))
    return recombine(e.func(*args))


def _divide(a: Expr, b: Expr, ranges: Ranges) -> tuple[Expr, Expr]:
    if b == 1:
        return a, sympy.S.Zero
    if a.is_Integer and b.is_Integer:
        quotient, rest = divmod(int(a), int(b))
        return sympy.Integer(quotient), sympy.Integer(rest)
    return _divide_memo(a, b, _relevant(a, ranges))


@lru_cache(maxsize=65536)
@exercise("8.1")
def _divide_memo(a: Expr, b: Expr, key: tuple[tuple[sympy.Symbol, Expr], ...]) -> tuple[Expr, Expr]:
    """Quotient and remainder of ``a`` by ``b``, rewritten as far as the ranges (as pairs: ``key``) allow."""
    # >>> 8.1
    ranges = dict(key)
    if not b.is_Integer:
        return _divide_symbolic(a, b, ranges)
    k = int(b)
    multiples, rest = [], []
    for c, t in _terms(a):
        whole = c if c % k == 0 else c - c % k if c > 0 else 0  # 5*x // 4 == x + x // 4
        if whole:
            multiples.append(whole // k * t)
        if c != whole:
            rest.append((c - whole, t))
    quotient = sympy.Add(*multiples)
    if not rest:
        return quotient, sympy.S.Zero
    r = sympy.Add(*[c * t for c, t in rest])
    limits = bounds(r, ranges)
    # Splitting off multiples is sound only if what stays is non-negative by itself: C rounds towards zero.
    if limits is not None and limits[0] < 0 or limits is None and any(c < 0 for c, _ in rest):
        whole = bounds(a, ranges)
        if whole is not None and whole[1] < k:  # non-negative where it is used
            return sympy.S.Zero, a
        return FloorDiv(a, b), Mod(a, b)
    if limits is not None and limits[1] < k:
        return quotient, r
    q, m = _divide_rest(rest, r, k, ranges)
    return quotient + q, m
    # <<< 8.1


def _divide_rest(rest: list[tuple[int, Expr]], r: Expr, k: int, ranges: Ranges) -> tuple[Expr, Expr]:
    """Quotient and remainder of ``r``, a non-negative sum without multiples of ``k``."""
    if len(rest) == 1 and rest[0][0] == 1 and isinstance(rest[0][1], (FloorDiv, Mod)):
        x, n = rest[0][1].args
        if isinstance(rest[0][1], FloorDiv) and n.is_Integer:
            return FloorDiv(x, n * k), Mod(r, sympy.Integer(k))
        if isinstance(rest[0][1], Mod) and n.is_Integer and int(n) % k == 0:
            inner = mod(x, k, ranges)  # (x % n) % k == x % k; (x % n) // k == (x // k) % (n // k)
            return mod(floordiv(x, k, ranges), int(n) // k, ranges), inner
    ordered = sorted([(c, t) for c, t in rest if t != 1], key=lambda term: -term[0])
    constant = sum(c for c, t in rest if t == 1)
    common = k
    for i, (c, _) in enumerate(ordered, 1):
        common = gcd(common, c)
        if common == 1:
            break
        low = sympy.Add(constant % common, *[c * t for c, t in ordered[i:]])
        limits = bounds(low, ranges)
        if limits is not None and limits[1] < common:  # (g*x + low) // (g*m) == x // m for low < g
            high = sympy.Add(constant // common, *[c // common * t for c, t in ordered[:i]])
            q, m = _divide(high, sympy.Integer(k // common), ranges)
            return q, common * m + low
    return FloorDiv(r, sympy.Integer(k)), Mod(r, sympy.Integer(k))


def _divide_symbolic(a: Expr, b: Expr, ranges: Ranges) -> tuple[Expr, Expr]:
    """Division by a size that is not a known number: exact multiples, and a rest that is one variable of that range."""
    multiples: list[Expr] = []
    rest: list[tuple[int, Expr]] = []
    for c, t in _terms(a):
        if (t / b).as_numer_denom()[1] == 1:
            multiples.append(c * t / b)
        else:
            rest.append((c, t))
    quotient = sympy.Add(*multiples)
    r = sympy.Add(*[c * t for c, t in rest])
    if r == 0:
        return quotient, sympy.S.Zero
    if any(c < 0 for c, _ in rest):
        return FloorDiv(a, b), Mod(a, b)
    if _stays_below(rest, b, ranges):
        return quotient, r
    return quotient + FloorDiv(r, b), Mod(r, b)


def _stays_below(terms: list[tuple[int, Expr]], b: Expr, ranges: Ranges) -> bool:
    """Whether a sum of non-negative terms, each a variable times sizes, is less than ``b`` for all sizes of at least 1."""
    top: Expr = sympy.S.Zero
    for c, t in terms:
        variables = [v for v in t.free_symbols if v in ranges]
        if len(variables) > 1 or variables and t.diff(variables[0]).has(variables[0]):
            return False
        top += c * (t.subs(variables[0], ranges[variables[0]] - 1) if variables else t)
    gap = (b - 1 - top).expand()
    at_least_one = gap.subs({s: s + 1 for s in gap.free_symbols}, simultaneous=True).expand()
    return all(s.is_nonnegative for s in gap.free_symbols) and all(t.as_coeff_Mul()[0] >= 0 for t in sympy.Add.make_args(at_least_one))


@lru_cache(maxsize=65536)
def _terms(e: Expr) -> tuple[tuple[int, Expr], ...]:
    """``e`` as a sum of integer coefficient times term; a number is (n, 1)."""
    out = []
    for arg in sympy.Add.make_args(e.expand() if e.is_Mul else e):
        c, t = arg.as_coeff_Mul()
        out.append((int(c), t))
    return tuple(out)


def _recombine_once(e: Expr) -> Expr | None:
    terms = _terms(e)
    if not any(isinstance(t, Mod) or t.is_Mul and any(isinstance(f, Mod) for f in t.args) for _, t in terms):
        return None
    table = {t: c for c, t in terms}
    for c, t in terms:
        if not isinstance(t, Mod):
            better = _recombine_scaled(e, c, t) if t.is_Mul else None
            if better is not None:
                return better
            continue
        x, k = t.args
        high = floordiv(x, k)
        if table.get(high) == c * k:  # c*k*(x//k) + c*(x%k) == c*x
            return e - c * t - c * k * high + c * x
        if not k.is_Integer:
            better = _recombine_scaled(e, c, t)
            if better is not None:
                return better
            continue
        for other, coefficient in table.items():
            # c*(x%k) + c*k*((x//k)%n) == c*(x % (k*n))
            if isinstance(other, Mod) and coefficient == c * k and other.args[0] == high:
                return e - c * t - coefficient * other + c * Mod(x, k * other.args[1])
    return None


def _recombine_scaled(e: Expr, c: int, t: Expr) -> Expr | None:
    """``m*k*(x//k) + m*(x%k) == m*x`` where ``m*(x%k)`` is the term ``c*t`` and ``k`` or ``m`` is a size; None where that makes ``e`` no simpler."""
    for found in sympy.Mul.make_args(t):
        if isinstance(found, Mod):
            x, k = found.args
            m = c * t / found
            better = (e - m * found - m * k * floordiv(x, k) + m * x).expand()
            if _divisions(better) < _divisions(e):
                return better
    return None


def _divisions(e: Expr) -> int:
    return isinstance(e, (FloorDiv, Mod)) + sum(map(_divisions, e.args))
