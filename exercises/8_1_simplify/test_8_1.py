import itertools
import random

import sympy
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.shapes.expr import FloorDiv, Mod, floordiv, mod

X, Y, Z = (sympy.Symbol(n, integer=True, nonnegative=True) for n in "xyz")
RANGES = {X: sympy.Integer(6), Y: sympy.Integer(4), Z: sympy.Integer(8)}


def python(*expressions):
    """Expressions as a Python function of x, y and z."""
    return eval(f"lambda x, y, z: ({', '.join(map(str, expressions))},)")


def check(e, k, points=list(itertools.product(range(6), range(4), range(8)))):
    """Quotient and remainder, everywhere in the ranges."""
    q, m = floordiv(e, k, RANGES), mod(e, k, RANGES)
    compute, says = python(e, q, m), f"({e}) divided by {k} as {q}, rest {m}"
    for at in points:
        n, found_q, found_m = compute(*at)
        if n >= 0:  # an index is never negative where it is used
            same((found_q, found_m), (n // k, n % k), where=f"{says}, at x, y, z = {at}")
    return q, m


def test_multiples_come_out():
    """And what is below the divisor adds nothing."""
    same(check(8 * X + Z, 8), (X, Z))
    same(check(12 * X, 4), (3 * X, sympy.S.Zero))
    same(check(4 * X + Y, 4), (X, Y))


def test_part_of_a_coefficient():
    """5x is 4x and x."""
    check(5 * X, 4)
    check(7 * X + 3 * Y + 2, 4)


def test_the_last_value_counts():
    """z goes up to 7: below 8, not below 7."""
    same(check(Z, 8), (sympy.S.Zero, Z))
    check(Z, 7)
    check(Y + 1, 4)


def test_negative_parts():
    """63 - x, and what would be negative by itself."""
    check(63 - X, 8)
    check(8 * X + 7 - Z, 8)
    check(8 * X - Z + 40, 8)
    check(4 * X - Y + 3, 4)
    check(4 * X - Z, 4)


def test_five_hundred_expressions():
    """Against integers."""
    rng = random.Random(4)
    for _ in range(500):
        e = sum((rng.choice([1, 2, 3, 4, 5, 6, 8, 12]) * s for s in rng.sample([X, Y, Z], rng.choice([1, 2, 3]))), sympy.Integer(rng.choice([0, 0, 1, 7])))
        if rng.random() < 0.3:
            e = rng.choice([FloorDiv(e, sympy.Integer(2)), Mod(e, sympy.Integer(6))]) + rng.choice([0, X])
        check(sympy.sympify(e), rng.choice([2, 3, 4, 6, 8]))


def test_compiled_reshapes():
    """The whole compiler on your divisions: reshapes that no view can do."""
    def fn(x):
        return x.t().reshape(5, -1) + 1, x.flip(0).reshape(6, 10).t().reshape(-1), torch.roll(x, 3, 1).reshape(20, 3)
    x = torch.randn(5, 12)
    same(list(minipt2.compile(fn)(x)), list(fn(x)))
