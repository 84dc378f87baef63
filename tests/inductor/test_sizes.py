"""Symbolic sizes divided and compared, against numbers; indices with symbolic strides."""
import itertools

import pytest
import sympy

from minipt2.inductor.scheduler.affine import Index, from_sympy, quot, rem, split_point
from minipt2.inductor.sizes import UNKNOWN, below, coefficients, differ, exact, hint, nonnegative, use

s0, s1 = sympy.symbols("s0 s1", integer=True, positive=True)
p0, p1 = sympy.symbols("p0 p1", integer=True, nonnegative=True)
POINTS = list(itertools.product(range(1, 6), repeat=2))


@pytest.mark.parametrize("e", [s0 * s1 - s1, s0 - 2, 3 * s0 * s1 - s0 - s1, s0 - s1, s1 - 1, 2 * s0 - s0 * s1])
def test_nonnegative_is_so_at_every_size(e):
    if nonnegative(e):
        assert all(e.subs({s0: a, s1: b}) >= 0 for a, b in POINTS)
    else:
        assert any(e.subs({s0: a, s1: b}) < 0 for a, b in POINTS)


def test_exact_quotients():
    assert exact(64 * s0 * s1, 8 * s0) == 8 * s1 and exact(12, 4) == 3 and exact(s0 * s1, s1) == s0
    assert exact(s0 + 1, s0) is None and exact(12, 5) is None and exact(4 * s0, 8) is None


def test_what_differs_and_what_is_below():
    assert differ(0, s0) and differ(3, 4) and not differ(s0, s1) and not differ(s0, 2)
    assert below(s0, 2 * s0) and not below(s0, s0) and not below(s0, s1)


def test_hints_hold_within_their_scope():
    assert hint(s0) == UNKNOWN and hint(7) == 7
    with use({s0: 5}):
        assert hint(3 * s0) == 15 and hint(s1) == UNKNOWN
    assert hint(s0) == UNKNOWN


def test_coefficients_of_loop_variables():
    assert coefficients(4 * s0 * p0 + p1 + s1, (p0, p1)) == (4 * s0, 1)
    assert coefficients(4 * p0 + p1 + 7, (p0, p1)) == (4, 1) and coefficients(p0 * p1, (p0, p1)) is None and coefficients(p1, (p0,)) is None


def test_division_of_an_index_by_a_size():
    index = from_sympy(s1 * p0 + p1)
    sizes = {"p0": s0, "p1": s1}
    assert quot(index, s1, sizes) == Index.var("p0") and rem(index, s1, sizes) == Index.var("p1")
    assert not quot(index, s1, {"p0": s0, "p1": s0}).is_affine()  # s0 may be more than s1


def test_a_merged_loop_is_split_by_a_size():
    assert split_point(quot(Index.var("p0"), s1, {}), {"p0": s0 * s1}) == ("p0", s1)
    assert split_point(quot(Index.var("p0"), s1, {}), {"p0": s0}) is None
