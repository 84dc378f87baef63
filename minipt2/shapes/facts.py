"""What is known about sizes, and what follows from it: ranges, equalities, inequalities, divisibility.

In: facts ``p >= 0``, ``p == 0``, ``p != 0`` about polynomials of sizes. Out: whether another one follows (``decide``: True, False or None).
An equality becomes a substitution (a solved atom never occurs again), divisibility too: ``s0 % 8 == 0`` makes ``s0`` eight times a
number of its own, so that everything that follows from it is plain arithmetic. What remains are ranges and a few inequalities, which
are combined as Fourier and Motzkin did. Sound, not complete: an answer is right, None may only mean that nothing was found.
Upstream: ``torch.utils._sympy.value_ranges`` and ``ShapeEnv._maybe_evaluate_static``.
"""
from __future__ import annotations

import math

import sympy

from ..exercise import exercise
from .expr import FloorDiv, Mod
from .functions import relation
from .poly import Poly, accumulate, add, atom, content, divide_by_monomial, expression, multiply, number_of, poly
from .quotients import quotient_in
from .ranges import Range, Ranges
from .relations import alone, cancelling, negative, normal, reduced, signed, single, without_quotient

DEPTH = 3
"""How many inequalities are combined at most to decide another."""
LONG = 16
"""A polynomial of more terms is combined with one at a time: numbers of elements after transposed convolutions have hundreds of terms, and
every one may cancel with some of the known ones."""


class Facts(Ranges):
    """What holds. ``ranges``: of each symbol; a symbol without one is any integer."""

    def __init__(self) -> None:
        super().__init__()
        self.solved: dict[int, Poly] = {}
        self.at_least_zero: list[Poly] = []
        self.not_zero: list[Poly] = []
        self.unknown: set[int] = set()
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
        p = self.without_factors(op, self.image(p))
        answer = self._decided[key] = self._is_zero(p) if op == "==" else self._sign(p)
        return answer

    def bounds(self, p: Poly) -> Range:
        """Least and greatest value of ``p``, as far as ranges tell: every atom is shifted so that it starts at zero."""
        return self.plain_bounds(self.image(p))

    def value(self, p: Poly) -> int | None:
        """The number that ``p`` is known to be."""
        p = self.image(p)
        return p.get((), 0) if not p or len(p) == 1 and () in p else None

    # -- what a caller may tell ------------------------------------------------------------------------------------
    def give(self, symbol: sympy.Symbol, low: float, high: float, unknown: bool = False) -> None:
        """The range of a symbol, both ends included; ``unknown``: it depends on data, and is written in terms of others where it can be."""
        self.ranges[number_of(symbol)] = (low, high)
        if unknown:
            self.unknown.add(number_of(symbol))
        self._changed()

    def sharpened(self, op: str, p: Poly) -> tuple[str, Poly]:
        """The same fact as far as others tell: ``p != 0`` as an inequality where one side is known, bounds of quotients as those of dividends."""
        if op == "!=":
            for q in (p, negative(p)):
                if self.decide(">=", q):
                    op, p = ">=", add(q, {(): 1}, -1)
                    break
        return (op, without_quotient(p)) if op == ">=" else (op, p)

    def assume(self, op: str, p: Poly) -> None:
        """``p op 0`` holds from now on. It must not contradict what is known."""
        if self.decide(op, p) is None:
            p = self.without_factors(op, self.image(p))
            {">=": self._assume_sign, "==": self._assume_zero, "!=": self._assume_not_zero}[op](p)

    def without_factors(self, op: str, p: Poly) -> Poly:
        """``p`` divided by the positive atoms that all its terms share: ``p op 0`` stays what it was. ``a*x - 1 >= 0`` is ``x - 1 >= 0``."""
        strict = op == ">=" and p.get((), 0) == -1
        q = {m: c for m, c in p.items() if m} if strict else p
        shared = [a for a in dict.fromkeys(min(q, key=len, default=())) if self.range_of(a)[0] > 0]
        common = tuple([a for a in shared for _ in range(min(mono.count(a) for mono in q))])
        if not common:
            return p
        q = divide_by_monomial(q, common, 1)
        return add(q, {(): 1}, -1) if strict else q

    # -- substitution ----------------------------------------------------------------------------------------------
    def image(self, p: Poly) -> Poly:
        """``p`` in terms of what is not solved; ``Mod`` written as what ``FloorDiv`` leaves."""
        images = [self._image_of(a) for mono in p for a in mono]
        if not any(image is not None for image in images):
            return p
        out: dict[tuple[int, ...], int] = {}
        for mono, c in p.items():
            product: Poly = {(): c}
            for a in mono:
                image = self._image_of(a)
                product = multiply(product, {(a,): 1} if image is None else image)
            accumulate(out, product)
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

    def known_as(self, e: sympy.Expr) -> Poly:
        """What an expression made of images is."""
        p = poly(e)
        number = alone(p)
        if number is None:
            return self.image(p)
        return self.solved.get(number, p)

    def _rebuilt(self, e: sympy.Expr) -> Poly:
        if isinstance(e, (FloorDiv, Mod)):
            a, b = (self.image(poly(x)) for x in e.args)
            quotient = quotient_in(self, a, b)
            return quotient if isinstance(e, FloorDiv) else add(a, multiply(b, quotient), -1)
        if isinstance(e, (sympy.Max, sympy.Min)):
            return self._extreme(e)
        args = [expression(self.image(poly(x))) if isinstance(x, sympy.Expr) else x for x in e.args]
        return self.known_as(e if list(e.args) == args else e.func(*args))

    def between(self, a: Poly, b: Poly) -> bool:
        """Whether 0 <= a < b."""
        if self.plain_bounds(a)[0] < 0:
            return False
        gap = add(add(b, a, -1), {(): 1}, -1)
        return self.plain_bounds(gap)[0] >= 0 or self._sign(gap) is True

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
        return self.known_as(e.func(*[expression(p) for p in kept], evaluate=False))

    # -- deciding --------------------------------------------------------------------------------------------------
    def _is_zero(self, p: Poly) -> bool | None:
        if not p:
            return True
        constant = p.get((), 0)
        varying = {m: c for m, c in p.items() if m}
        if not varying or constant % content(varying):
            return False
        if signed(p) in self.not_zero:
            return False
        below = self._sign(p)
        if below is False:
            return False
        above = self._sign(negative(p))
        if above is False:
            return False
        return True if below and above else None

    @exercise("8.4")
    def _sign(self, p: Poly, sign: int = 1) -> bool | None:
        """Whether ``sign * p >= 0``."""
        # >>> 8.4
        p = p if sign == 1 else negative(p)
        low, high = self.plain_bounds(p)
        if low >= 0:
            return True
        if high < 0:
            return False
        known = self.at_least_zero + self._of_divisions(p)
        if not known:
            return None
        depth = DEPTH if len(p) <= LONG else 1
        if self._follows(p, known, depth):
            return True
        return False if self._follows(add(negative(p), {(): 1}, -1), known, depth) else None
        # <<< 8.4

    @exercise("8.4")
    def _follows(self, p: Poly, known: list[Poly], depth: int) -> bool:
        """Whether ``p >= 0`` is a sum of known ones and of what ranges say: a shared term is cancelled, the rest decided again."""
        # >>> 8.4
        for f in known:
            for c, d in cancelling(p, f):
                rest = add({m: v * c for m, v in p.items()}, f, -d)
                if self.plain_bounds(rest)[0] >= 0:
                    return True
                if depth > 1 and len(rest) <= len(p) + 1 and self._follows(rest, [g for g in known if g is not f], depth - 1):
                    return True
        return False
        # <<< 8.4

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
        if self.plain_bounds(b)[0] < 1:
            return []
        rest = add(a, multiply(b, q), -1)
        return [rest, add(add(b, {(): 1}, -1), rest, -1)]

    # -- assuming --------------------------------------------------------------------------------------------------
    def _assume_sign(self, p: Poly) -> None:
        if signed(p) in self.not_zero:
            p = add(p, {(): 1}, -1)
        p = reduced(p)
        alone = single(p)
        if alone is None:
            self.at_least_zero.append(p)
            self._changed()
            return
        a, c, d = alone
        low, high = self.range_of(a)
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
            if self.plain_bounds(b)[0] >= 1:
                if math.isfinite(low):
                    self.assume(">=", add(poly(e.args[0]), multiply(b, {(): int(low)} if low else {}), -1))
                if math.isfinite(high):
                    self.assume(">=", add(add(multiply(b, {(): int(high) + 1} if high != -1 else {}), {(): 1}, -1), poly(e.args[0]), -1))

    def _assume_not_zero(self, p: Poly) -> None:
        if self._sign(p):
            self._assume_sign(add(p, {(): 1}, -1))
        elif self._sign(negative(p)):
            self._assume_sign(add(negative(p), {(): 1}, -1))
        else:
            self.not_zero.append(signed(p))
            self._changed()

    def _assume_zero(self, p: Poly) -> None:
        p = self._without_divisions(reduced(p))
        a = self._solvable(p)
        if a is None:
            self.at_least_zero += [p, negative(p)]
            self._changed()
            return
        c = p[(a,)]
        rest = {m: -v * c for m, v in p.items() if m != (a,)}  # c is 1 or -1
        e, (low, high) = atom(a), self.range_of(a)
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
                self.ranges[next(iter(t))[0]] = self.range_of(a)
                relations = self._of_division(t, e)
                self._solve(a, t)
                for f in relations:
                    self.assume(">=", f)
                return self._without_divisions(reduced(self.image(p)))
        return p

    def _solvable(self, p: Poly) -> int | None:
        """An atom that occurs once, with coefficient 1 or -1: what depends on data first, then the youngest of the symbols."""
        found = None
        for mono, c in p.items():
            if len(mono) != 1 or abs(c) != 1:
                continue
            a = mono[0]
            e = atom(a)
            if any(b != a and (a == b or atom(b).free_symbols & e.free_symbols) for m in p for b in m) or sum(a in m for m in p) > 1:
                continue
            if found is None or (a in self.unknown, e.is_Symbol, a) > (found in self.unknown, atom(found).is_Symbol, found):
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
        self.forget()
        self._images.clear()
        self._decided.clear()


@exercise("8.4")
def decide(facts: Facts, fact: sympy.Basic) -> bool | None:
    """Whether ``fact`` follows from ``facts``."""
    # >>> 8.4
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
    # <<< 8.4


def learn(facts: Facts, fact: sympy.Basic) -> None:
    """Take ``fact`` for true: a comparison, or several joined by ``and``; of others nothing is learnt."""
    for part in fact.args if isinstance(fact, sympy.And) else ():
        learn(facts, part)
    normalised = normal(fact) if relation(fact) is not None else None
    if normalised is not None:
        facts.assume(*normalised)
