"""Integer index expressions: conversion from sympy, division under ranges, splitting, merging loops."""
import random

import sympy

from minipt2.inductor.codegen.index import merge_dims, size_text, text
from minipt2.inductor.scheduler.affine import Index, Quot, Rem, from_sympy, quot, rem, split_point
from minipt2.shapes import FloorDiv, Mod

p0, p1 = (sympy.Symbol(n, integer=True, nonnegative=True) for n in ("p0", "p1"))


def value(index: Index, at: dict[str, int]) -> int:
    total = index.const
    for t, c in index.terms.items():
        inner = at[t] if isinstance(t, str) else value(t.arg, at) // t.k if isinstance(t, Quot) else value(t.arg, at) % t.k
        total += c * inner
    return total


def test_from_sympy():
    assert from_sympy(3 * p0 + p1 * 2 + 7) == Index(7, {"p0": 3, "p1": 2})
    assert from_sympy(sympy.Integer(2) * (p0 + 4)) == Index(8, {"p0": 2})
    mixed = from_sympy(FloorDiv(p0, sympy.Integer(4)) * 8 + Mod(p0, sympy.Integer(4)))
    assert value(mixed, {"p0": 11}) == 19 and not mixed.is_affine()


def test_quotient_and_remainder_are_different_terms():
    """Both are tuples of the same numbers; taken for equal they would merge."""
    both = from_sympy(FloorDiv(p0, sympy.Integer(4)) + Mod(p0, sympy.Integer(4)))
    assert len(both.terms) == 2


def test_division_agrees_with_arithmetic():
    rng = random.Random(0)
    for _ in range(300):
        sizes = {"p0": rng.randint(1, 9), "p1": rng.randint(1, 9)}
        index = Index(rng.randint(0, 20), {"p0": rng.choice([0, 1, 2, 4, 6, 8, 12]), "p1": rng.choice([0, 1, 2, 3, 4, 24])})
        k = rng.choice([2, 3, 4, 6, 8, 12])
        q, r = quot(index, k, sizes), rem(index, k, sizes)
        for a in range(sizes["p0"]):
            for b in range(sizes["p1"]):
                at = {"p0": a, "p1": b}
                assert value(q, at) == value(index, at) // k and value(r, at) == value(index, at) % k


def test_division_of_what_may_be_negative_stays_whole():
    """C rounds towards zero: multiples may not be split off a rest that can be negative."""
    index = Index(0, {"p0": 4, "p1": -1})
    q = quot(index, 4, {"p0": 5, "p1": 3})
    assert list(q.terms) == [Quot(index, 4)] and Rem(index, 4) in rem(index, 4, {"p0": 5, "p1": 3}).terms


def test_split_point_makes_an_index_affine():
    index = from_sympy(FloorDiv(p0, sympy.Integer(16)) * 100 + Mod(p0, sympy.Integer(16)))
    v, inner = split_point(index, {"p0": 64})
    assert (v, inner) == ("p0", 16)
    split = index.subs({"p0": Index(0, {"a": 16, "b": 1})}, {"a": 4, "b": 16})
    assert split == Index(0, {"a": 100, "b": 1})
    assert split_point(index, {"p0": 40}) is None  # 16 does not divide 40


def test_quotient_and_remainder_of_the_same_make_the_whole():
    """Rows and columns of a symbolic image that a loop walks as pixels: no division is left in its index."""
    d0, d1 = (sympy.Symbol(n, integer=True, positive=True) for n in ("d0", "d1"))
    rows, columns = FloorDiv(p0, 4 * d1), Mod(p0, 4 * d1)
    index = from_sympy(128 * d1 * rows + 32 * columns + p1)
    assert index.subs({"p0": Index(3, {"r0": 1}), "p1": Index.var("r1")}, {"r0": 16 * d0 * d1, "r1": 32}) == Index(96, {"r0": 32, "r1": 1})
    other = from_sympy(100 * d1 * rows + 32 * columns)
    assert not other.subs({"p0": Index.var("r0")}, {"r0": 16 * d0 * d1}).is_affine()


def test_merge_dims():
    assert merge_dims((4, 4), [(4, 1)]) == ((16,), [(1,)])
    assert merge_dims((2, 3, 4), [(12, 4, 1), (12, 4, 1)]) == ((24,), [(1,), (1,)])
    assert merge_dims((8, 16), [(16, 1), (1, 8)]) == ((8, 16), [(16, 1), (1, 8)])  # every operand counts, not the first alone
    assert merge_dims((8, 16), [(16, 1), (0, 1)]) == ((8, 16), [(16, 1), (0, 1)])  # a broadcast stays one
    assert merge_dims((8, 16), [(16, 1), (0, 0)]) == ((128,), [(1,), (0,)])
    assert merge_dims((4, 1, 4), [(4, 99, 1)]) == ((16,), [(1,)])  # a stride of a dimension of size 1 means nothing
    assert merge_dims((1, 1), [(5, 7)]) == ((), [()])


def test_text():
    assert text(Index(3, {"p0": 128, "p1": 1})) == "128*p0 + p1 + 3"
    assert text(Index(-3, {"p0": 1})) == "p0 - 3" and text(Index()) == "0"
    assert text(Index(0, {Quot(Index.var("p0"), 4): 8, Rem(Index.var("p0"), 4): 1})) == "8*((p0) / 4) + ((p0) % 4)"


def test_sizes_as_text():
    """A factor that is a sum keeps its brackets: loops over two cropped dimensions at once run that often."""
    s0, s1 = sympy.symbols("s0 s1", integer=True, positive=True)
    for e in (sympy.Mul(s0 - 2, s1, evaluate=False), (s0 - 2) * (s1 + 1), 3 * (s0 - 2) ** 2 * s1, -s0 * s1 + 4, 2 * s0 - 8 * s1):
        assert eval(size_text(e), {"s0": 7, "s1": 5}) == e.subs({s0: 7, s1: 5}), e
