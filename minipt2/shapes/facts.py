"""What is known about sizes, and what follows from it: ranges, equalities, inequalities, divisibility.

In: facts ``p >= 0``, ``p == 0``, ``p != 0`` about polynomials of sizes. Out: whether another one follows (``decide``: True, False or None).
An equality becomes a substitution (a solved atom never occurs again), divisibility too: ``s0 % 8 == 0`` makes ``s0`` eight times a
number of its own, so that everything that follows from it is plain arithmetic. What remains are ranges and a few inequalities, which
are combined as Fourier and Motzkin did. Sound, not complete: an answer is right, None may only mean that nothing was found.
Upstream: ``torch.utils._sympy.value_ranges`` and ``ShapeEnv._maybe_evaluate_static``.
"""
from __future__ import annotations

import math
from functools import lru_cache
from typing import Iterable

import sympy

from .expr import FloorDiv, Mod
from .functions import NEGATED, RELATION_OF, pytype_of, relation
from .poly import Poly, add, atom, content, divide, expression, multiply, number_of, poly

Range = tuple[float, float]
"""Least and greatest value, infinities included."""
INTEGERS: Range = (-math.inf, math.inf)
DEPTH = 3
"""How many inequalities are combined at most to decide another."""


class Facts:
    """What holds. ``ranges``: of each symbol; a symbol without one is any integer."""

    def __init__(self) -> None:
        self.ranges: dict[int, Range] = {}
        self.solved: dict[int, Poly] = {}
        self.at_least_zero: list[Poly] = []
        self.not_zero: list[Poly] = []
        self.version = 0
        self._images: dict[int, Poly] = {}
        self._decided: dict[tuple, bool | None] = {}
        self._fresh = 0

    # -- what a caller may ask -------------------------------------------------------------------------------------
    def decide(self, op: str, p: Poly) -> bool | None:
        """Whether ``p op 0`` for ``op`` one of ``>=``, ``==``, ``!=``; None when it is not known."""
        if op == "!=":
            answer = self.decide("==", p)
            return None if answer is None else not answer
        key = (op, frozenset(p.items()))
        if key in self._decided:
            return self._decided[key]
        p = self.image(p)
        answer = self._decided[key] = self._is_zero(p) if op == "==" else self._sign(p)
        return answer

    def bounds(self, p: Poly) -> Range:
        """Least and greatest value of ``p``, as far as ranges tell: every atom is shifted so that it starts at zero."""
        return self._bounds(self.image(p))

    def value(self, p: Poly) -> int | None:
        """The number that ``p`` is known to be."""
        p = self.image(p)
        return p.get((), 0) if not p or len(p) == 1 and () in p else None

    # -- what a caller may tell ------------------------------------------------------------------------------------
    def give(self, symbol: sympy.Symbol, low: float, high: float) -> None:
        """The range of a symbol, both ends included."""
        self.ranges[number_of(symbol)] = (low, high)
        self._changed()

    def sharpened(self, op: str, p: Poly) -> tuple[str, Poly]:
        """The same fact as far as others tell: ``p != 0`` as an inequality where one side is known, bounds of quotients as those of dividends."""
        if op == "!=":
            for q in (p, _negative(p)):
                if self.decide(">=", q):
                    op, p = ">=", add(q, {(): 1}, -1)
                    break
        return (op, without_quotient(p)) if op == ">=" else (op, p)

    def assume(self, op: str, p: Poly) -> None:
        """``p op 0`` holds from now on. It must not contradict what is known."""
        if self.decide(op, p) is None:
            p = self.image(p)
            {">=": self._assume_sign, "==": self._assume_zero, "!=": self._assume_not_zero}[op](p)

    # -- substitution ----------------------------------------------------------------------------------------------
    def image(self, p: Poly) -> Poly:
        """``p`` in terms of what is not solved; ``Mod`` written as what ``FloorDiv`` leaves."""
        images = [self._image_of(a) for mono in p for a in mono]
        if not any(image is not None for image in images):
            return p
        out: Poly = {}
        for mono, c in p.items():
            product: Poly = {(): c}
            for a in mono:
                image = self._image_of(a)
                product = multiply(product, {(a,): 1} if image is None else image)
            out = add(out, product)
        return out

    def _image_of(self, a: int) -> Poly | None:
        """None for an atom that stays as it is."""
        if a in self._images:
            return self._images[a]
        e = atom(a)
        if a in self.solved:
            image = self.solved[a]
        elif not e.args:
            image = None
        else:
            image = self._rebuilt(e)
            if image == {(a,): 1}:
                image = None
        self._images[a] = image
        return image

    def _atom(self, e: sympy.Expr) -> Poly:
        """What an expression made of images is."""
        p = poly(e)
        number = _alone(p)
        if number is None:
            return self.image(p)
        return self.solved.get(number, p)

    def _rebuilt(self, e: sympy.Expr) -> Poly:
        if isinstance(e, (FloorDiv, Mod)):
            a, b = (self.image(poly(x)) for x in e.args)
            quotient = self.quotient(a, b)
            return quotient if isinstance(e, FloorDiv) else add(a, multiply(b, quotient), -1)
        if isinstance(e, (sympy.Max, sympy.Min)):
            return self._extreme(e)
        args = [expression(self.image(poly(x))) if isinstance(x, sympy.Expr) else x for x in e.args]
        return self._atom(e if list(e.args) == args else e.func(*args))

    def quotient(self, a: Poly, b: Poly) -> Poly:
        """``a // b`` (rounded down) of images, with what is divisible taken out."""
        exact = divide(a, b)
        if exact is not None:
            return exact
        if len(b) == 1 and b.get((), 1) > 0:
            return self._quotient_by_term(a, b)
        if self._between(a, b):
            return {}
        return self._atom(FloorDiv(expression(a), expression(b)))

    def _quotient_by_term(self, a: Poly, b: Poly) -> Poly:
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
        if not rest or self._between(rest, b):
            return whole
        if not mono:
            low, high = self._bounds(rest)
            if math.isfinite(low) and math.isfinite(high) and low // k == high // k:
                return add(whole, {(): int(low // k)} if low // k else {})
            g = math.gcd(k, *[c for m, c in rest.items() if m])
            if g > 1:  # (g*x + c) // (g*n) == (x + c//g) // n
                rest = {m: c // g for m, c in rest.items() if c // g}
                return add(whole, self.quotient(rest, {(): k // g}))
            inner = quotient_of(rest)
            if inner is not None:  # (x//n + c) // k == (x + n*c) // (n*k)
                x, n, c = inner
                return add(whole, self.quotient(add(x, {(): n * c}), {(): n * k}))
        return add(whole, self._atom(FloorDiv(expression(rest), expression(b))))

    def _between(self, a: Poly, b: Poly) -> bool:
        """Whether 0 <= a < b."""
        if self._bounds(a)[0] < 0:
            return False
        gap = add(add(b, a, -1), {(): 1}, -1)
        return self._bounds(gap)[0] >= 0 or self._sign(gap) is True

    def _extreme(self, e: sympy.Expr) -> Poly:
        sign = 1 if isinstance(e, sympy.Max) else -1
        kept: list[Poly] = []
        for arg in e.args:
            p = self.image(poly(arg))
            if any(self._sign(add(q, p, -1), sign) for q in kept):
                continue
            kept = [q for q in kept if not self._sign(add(p, q, -1), sign)] + [p]
        if len(kept) == 1:
            return kept[0]
        return self._atom(e.func(*[expression(p) for p in kept], evaluate=False))

    # -- deciding --------------------------------------------------------------------------------------------------
    def _is_zero(self, p: Poly) -> bool | None:
        if not p:
            return True
        constant = p.get((), 0)
        varying = {m: c for m, c in p.items() if m}
        if not varying or constant % content(varying):
            return False
        if _signed(p) in self.not_zero:
            return False
        below = self._sign(p)
        if below is False:
            return False
        above = self._sign(_negative(p))
        if above is False:
            return False
        return True if below and above else None

    def _sign(self, p: Poly, sign: int = 1) -> bool | None:
        """Whether ``sign * p >= 0``."""
        p = p if sign == 1 else _negative(p)
        low, high = self._bounds(p)
        if low >= 0:
            return True
        if high < 0:
            return False
        known = self.at_least_zero + self._of_divisions(p)
        if not known:
            return None
        if self._follows(p, known, DEPTH):
            return True
        return False if self._follows(add(_negative(p), {(): 1}, -1), known, DEPTH) else None

    def _follows(self, p: Poly, known: list[Poly], depth: int) -> bool:
        """Whether ``p >= 0`` is a sum of known ones and of what ranges say: a shared term is cancelled, the rest decided again."""
        for f in known:
            for c, d in _cancelling(p, f):
                rest = add({m: v * c for m, v in p.items()}, f, -d)
                if self._bounds(rest)[0] >= 0:
                    return True
                if depth > 1 and len(rest) <= len(p) + 1 and self._follows(rest, [g for g in known if g is not f], depth - 1):
                    return True
        return False

    def _of_divisions(self, p: Poly) -> list[Poly]:
        """``b*q <= a <= b*q + b - 1`` for every ``q = a // b`` in ``p``, for divisors known to be positive."""
        out = []
        for a in {a for mono in p for a in mono}:
            e = atom(a)
            if isinstance(e, FloorDiv):
                out += self._of_division({(a,): 1}, e)
            elif isinstance(e, (sympy.Max, sympy.Min)):
                sign = 1 if isinstance(e, sympy.Max) else -1
                out += [add({(a,): sign}, poly(arg), -sign) for arg in e.args]
        return out

    def _of_division(self, q: Poly, e: FloorDiv) -> list[Poly]:
        a, b = map(poly, e.args)
        if self._bounds(b)[0] < 1:
            return []
        rest = add(a, multiply(b, q), -1)
        return [rest, add(add(b, {(): 1}, -1), rest, -1)]

    # -- ranges ----------------------------------------------------------------------------------------------------
    def _bounds(self, p: Poly) -> Range:
        if len(p) <= 2:
            simple = self._bounds_of_linear(p)
            if simple is not None:
                return simple
        shifts = {a: self._shift(a) for mono in p for a in mono}
        shifted: Poly = {}
        for mono, c in p.items():
            product: Poly = {(): c}
            for a in mono:
                product = multiply(product, shifts[a][0])
            shifted = add(shifted, product)
        low = high = shifted.get((), 0)
        for mono, c in shifted.items():
            if mono:
                smallest, top = (0, _product([shifts[a][2] for a in mono])) if all(shifts[a][1] for a in mono) else INTEGERS
                low += c * (smallest if c > 0 else top)
                high += c * (top if c > 0 else smallest)
        return low, high

    def _bounds_of_linear(self, p: Poly) -> Range | None:
        low = high = p.get((), 0)
        for mono, c in p.items():
            if not mono:
                continue
            if len(mono) > 1:
                return None
            a, b = self._range(mono[0])
            low += c * (a if c > 0 else b)
            high += c * (b if c > 0 else a)
        return low, high

    def _shift(self, a: int) -> tuple[Poly, bool, float]:
        """An atom as start + t with t >= 0 (written as the atom itself), whether it is, and the greatest t."""
        low, high = self._range(a)
        if math.isfinite(low):
            return ({(a,): 1, (): int(low)} if low else {(a,): 1}), True, high - low
        if math.isfinite(high):
            return ({(a,): -1, (): int(high)} if high else {(a,): -1}), True, math.inf
        return {(a,): 1}, False, math.inf

    def _range(self, a: int) -> Range:
        known = self.ranges.get(a)
        if known is not None:
            return known
        e = atom(a)
        if isinstance(e, FloorDiv):
            top, bottom = (self._bounds(poly(x)) for x in e.args)
            return _divided(top, bottom) if bottom[0] >= 1 else INTEGERS
        if isinstance(e, (sympy.Max, sympy.Min)):
            best = max if isinstance(e, sympy.Max) else min
            ends = [self._bounds(poly(arg)) for arg in e.args]
            return best(low for low, _ in ends), best(high for _, high in ends)
        if e.is_Pow and self._bounds(poly(e.base))[0] >= 1 and self._bounds(poly(e.exp))[0] >= 0:
            return 1, math.inf
        return INTEGERS

    # -- assuming --------------------------------------------------------------------------------------------------
    def _assume_sign(self, p: Poly) -> None:
        if _signed(p) in self.not_zero:
            p = add(p, {(): 1}, -1)
        p = _reduced(p)
        alone = single(p)
        if alone is None:
            self.at_least_zero.append(p)
            self._changed()
            return
        a, c, d = alone
        low, high = self._range(a)
        if c > 0:
            low = max(low, math.ceil(-d / c) if abs(d) < 2**50 else -(d // c))
        else:
            high = min(high, d // -c)
        self._narrow(a, low, high)

    def _narrow(self, a: int, low: float, high: float) -> None:
        self.ranges[a] = (low, high)
        e = atom(a)
        if low == high:
            self._solve(a, {(): int(low)} if low else {})
        self._changed()
        if isinstance(e, FloorDiv):  # what it says of the dividend
            b = poly(e.args[1])
            if self._bounds(b)[0] >= 1:
                if math.isfinite(low):
                    self.assume(">=", add(poly(e.args[0]), multiply(b, {(): int(low)} if low else {}), -1))
                if math.isfinite(high):
                    self.assume(">=", add(add(multiply(b, {(): int(high) + 1} if high != -1 else {}), {(): 1}, -1), poly(e.args[0]), -1))

    def _assume_not_zero(self, p: Poly) -> None:
        if self._sign(p):
            self._assume_sign(add(p, {(): 1}, -1))
        elif self._sign(_negative(p)):
            self._assume_sign(add(_negative(p), {(): 1}, -1))
        else:
            self.not_zero.append(_signed(p))
            self._changed()

    def _assume_zero(self, p: Poly) -> None:
        p = self._without_divisions(_reduced(p))
        a = self._solvable(p)
        if a is None:
            self.at_least_zero += [p, _negative(p)]
            self._changed()
            return
        c = p[(a,)]
        rest = {m: -v * c for m, v in p.items() if m != (a,)}  # c is 1 or -1
        e, (low, high) = atom(a), self._range(a)
        self._solve(a, rest)
        if isinstance(e, FloorDiv):
            for f in self._of_division(rest, e):
                self.assume(">=", f)
        for end, sign in ((low, 1), (high, -1)):  # its range is now the others'
            if math.isfinite(end):
                self.assume(">=", add({m: sign * v for m, v in rest.items()}, {(): 1}, -sign * int(end)))

    def _without_divisions(self, p: Poly) -> Poly:
        """Every quotient that shares a symbol with another term as a number of its own."""
        for a in sorted({a for mono in p for a in mono}):
            e = atom(a)
            if isinstance(e, FloorDiv) and any(b != a and atom(b).free_symbols & e.free_symbols for mono in p for b in mono):
                self._fresh += 1
                t = {(number_of(sympy.Dummy(f"q{self._fresh}", integer=True)),): 1}
                self.ranges[next(iter(t))[0]] = self._range(a)
                relations = self._of_division(t, e)
                self._solve(a, t)
                for f in relations:
                    self.assume(">=", f)
                return self._without_divisions(_reduced(self.image(p)))
        return p

    def _solvable(self, p: Poly) -> int | None:
        """An atom that occurs once, with coefficient 1 or -1: the youngest of the symbols, else of the others."""
        found = None
        for mono, c in p.items():
            if len(mono) != 1 or abs(c) != 1:
                continue
            a = mono[0]
            e = atom(a)
            if any(b != a and (a == b or atom(b).free_symbols & e.free_symbols) for m in p for b in m) or sum(a in m for m in p) > 1:
                continue
            if found is None or (e.is_Symbol, a) > (atom(found).is_Symbol, found):
                found = a
        return found

    def _solve(self, a: int, image: Poly) -> None:
        self.solved[a] = image
        self._changed()
        self.solved = {b: image if b == a else self.image(p) for b, p in self.solved.items()}
        self._changed()
        pending, self.at_least_zero = self.at_least_zero, []
        differing, self.not_zero = self.not_zero, []
        for p in pending:
            self.assume(">=", p)
        for p in differing:
            self.assume("!=", p)

    def _changed(self) -> None:
        self.version += 1
        self._images.clear()
        self._decided.clear()


def _negative(p: Poly) -> Poly:
    return {m: -c for m, c in p.items()}


def _signed(p: Poly) -> Poly:
    """``p`` or ``-p``: the same one for both."""
    return p if p[max(p)] > 0 else _negative(p)


def _reduced(p: Poly) -> Poly:
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
        p = _reduced(p)
        for sign in (1, -1):
            inner = quotient_of(p if sign == 1 else {m: -c if m else c for m, c in p.items()})
            if inner is not None:
                x, n, c = inner
                p = add(x, {(): n * c}) if sign == 1 else add({(): n * c + n - 1}, x, -1)
                break
        else:
            return p


def _alone(p: Poly) -> int | None:
    """The atom that ``p`` is."""
    mono, c = next(iter(p.items()), ((), 0))
    return mono[0] if len(p) == 1 and len(mono) == 1 and c == 1 else None


def decide(facts: Facts, fact: sympy.Basic) -> bool | None:
    """Whether ``fact`` follows from ``facts``."""
    if fact is sympy.true or fact is sympy.false:
        return fact is sympy.true
    if isinstance(fact, sympy.Not):
        answer = decide(facts, fact.args[0])
        return None if answer is None else not answer
    if isinstance(fact, (sympy.And, sympy.Or)):
        answers = [decide(facts, part) for part in fact.args]
        strong = isinstance(fact, sympy.Or)
        return strong if strong in answers else None if None in answers else not strong
    normalised = normal(fact)
    return facts.decide(*normalised) if normalised is not None else None


def learn(facts: Facts, fact: sympy.Basic) -> None:
    """Take ``fact``, a comparison, for true."""
    normalised = normal(fact)
    if normalised is not None:
        facts.assume(*normalised)


def negated(fact: sympy.Basic) -> sympy.Basic:
    op = relation(fact)
    if op is None:
        return fact.args[0] if isinstance(fact, sympy.Not) else sympy.Not(fact, evaluate=False)
    return RELATION_OF[NEGATED[op]](fact.lhs, fact.rhs, evaluate=False)


@lru_cache(maxsize=4096)
def normal(fact: sympy.Basic) -> tuple[str, Poly] | None:
    """A comparison of integers as (``>=``, ``==`` or ``!=``, p): ``p op 0``. None for others."""
    if pytype_of(fact.lhs) is not int or pytype_of(fact.rhs) is not int:
        return None
    op, a, b = relation(fact), poly(fact.lhs), poly(fact.rhs)
    if op in ("<", "<="):
        a, b = b, a
    difference = add(a, b, -1)
    if op in ("==", "!="):
        return op, difference
    return ">=", add(difference, {(): 1}, -1) if op in ("<", ">") else difference


def _cancelling(p: Poly, f: Poly) -> Iterable[tuple[int, int]]:
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
