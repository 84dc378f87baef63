import random

import pytest
import sympy

from minipt2.shapes import FloorDiv, Mod, bounds, floordiv, mod, recombine, simplify

SYMBOLS = tuple(sympy.Symbol(f"p{k}", integer=True, nonnegative=True) for k in range(3))
p0, p1, p2 = SYMBOLS
RANGES = {p0: sympy.Integer(8), p1: sympy.Integer(4), p2: sympy.Integer(100)}


def value(e, point):
    if isinstance(e, (FloorDiv, Mod)):
        a, b = (value(x, point) for x in e.args)
        return int(sympy.Integer(int(a / b))) if isinstance(e, FloorDiv) and a < 0 else a // b if isinstance(e, FloorDiv) else a % b
    if e.is_Integer:
        return int(e)
    if e.is_Symbol:
        return point[e]
    args = [value(a, point) for a in e.args]
    result = args[0]
    for a in args[1:]:
        result = result + a if e.is_Add else result * a
    return result


def test_rules():
    assert floordiv(4 * p0 + p1, 4, RANGES) == p0 and mod(4 * p0 + p1, 4, RANGES) == p1
    assert floordiv(p2, 100, RANGES) == 0 and mod(p2, 100, RANGES) == p2
    assert floordiv(8 * p2 + 4 * p1 + 3, 8, RANGES) == p2 + floordiv(p1, 2, RANGES)
    assert mod(6 * p2 + 4, 4) == 2 * Mod(p2, sympy.Integer(2)) and floordiv(6 * p2 + 4, 4) == 1 + p2 + FloorDiv(p2, sympy.Integer(2))
    assert floordiv(8 * p2 + 2 * p1 + 1, 16, RANGES) == FloorDiv(p2, sympy.Integer(2))
    assert floordiv(floordiv(p2, 5), 4) == FloorDiv(p2, sympy.Integer(20))
    assert mod(mod(p2, 20), 5) == Mod(p2, sympy.Integer(5))
    assert recombine(5 * floordiv(p2, 5) + mod(p2, 5)) == p2
    assert recombine(2 * mod(p2, 5) + 10 * mod(floordiv(p2, 5), 4)) == 2 * Mod(p2, sympy.Integer(20))


def test_negative_part_is_not_split_off():
    """4*p0 + p1 - 2 is non-negative where it is used; p1 - 2 alone is not, and C rounds towards zero."""
    e = 4 * p0 + p1 - 2
    assert floordiv(e, 4, RANGES) == FloorDiv(e, sympy.Integer(4))
    assert floordiv(p1 - 2, 4, RANGES) == 0 and mod(p1 - 2, 4, RANGES) == p1 - 2


def test_symbolic_sizes():
    s = sympy.Symbol("s0", integer=True, positive=True)
    ranges = {p0: sympy.Integer(3), p1: s}
    assert floordiv(p0 * s + p1, s, ranges) == p0 and mod(p0 * s + p1, s, ranges) == p1
    assert floordiv(p2, s) == FloorDiv(p2, s) and bounds(p1, ranges) is None


@pytest.mark.parametrize("seed", range(150))
def test_against_numbers(seed):
    """Random nests of // and % over non-negative sums, simplified under ranges, mean the same at random points."""
    rng = random.Random(seed)

    def build(depth):
        terms = [rng.choice(SYMBOLS) if depth == 0 or rng.random() < 0.4 else
                 rng.choice([FloorDiv, Mod])(build(depth - 1), sympy.Integer(rng.choice([2, 3, 4, 6, 8, 12])))
                 for _ in range(rng.randint(1, 3))]
        return sympy.Add(*[rng.choice([1, 1, 2, 3, 4, 8, 12]) * t for t in terms], rng.randint(0, 9))
    e = build(3)
    simple = simplify(e, RANGES)
    for _ in range(40):
        point = {s: rng.randrange(int(n)) for s, n in RANGES.items()}
        assert value(e, point) == value(simple, point), (e, simple)
        low, high = bounds(e, RANGES)
        assert low <= value(e, point) <= high
