"""The environment of symbols: creation, questions, recorded facts, guards."""
from __future__ import annotations

import gc
import math
import subprocess
import sys
import weakref

import pytest
import sympy
import torch

from minipt2.prims.meta import contiguous_strides
from minipt2.shapes import LateGuard, ShapeEnv, UnknownSize


class At:
    def __init__(self, name: str):
        self._name = name

    def name(self) -> str:
        return self._name


def texts(env: ShapeEnv) -> list[str]:
    return [str(g).split(" with ")[0] for g in env.guards()]


def test_zero_and_one_stay_numbers_and_equal_sizes_share():
    env = ShapeEnv()
    assert env.symbol(0, At("a")) == 0 and env.symbol(1, At("b")) == 1
    a, b, c = env.symbol(5, At("c")), env.symbol(5, At("d")), env.symbol(6, At("e"))
    assert a.node is b.node and c.node is not a.node
    assert texts(env) == ["s0 >= 2", "s1 >= 2", "d == s0"]


def test_marked_dimensions_do_not_share():
    env = ShapeEnv()
    a, b = env.symbol(5, At("a")), env.symbol(5, At("b"), marked=True, min=3, max=9)
    assert a.node is not b.node
    assert texts(env) == ["s0 >= 2", "3 <= s1 <= 9"]


def test_answers_are_recorded_once():
    env = ShapeEnv()
    a = env.symbol(8, At("a"))
    assert a % 4 == 0 and a % 2 == 0 and not a < 2 and a * 3 > a
    assert texts(env) == ["s0 >= 2", "s0 % 4 == 0"]


def test_a_negative_answer_is_recorded_as_such():
    env = ShapeEnv()
    a, b = env.symbol(8, At("a")), env.symbol(3, At("b"))
    assert not a == b
    assert texts(env)[-1] == "s0 != s1"


def test_a_known_size_is_a_number_everywhere():
    env = ShapeEnv()
    a, b = env.symbol(8, At("a")), env.symbol(3, At("b"))
    c = a * b
    assert int(a) == 8
    assert str(c) == "8 * s1" and texts(env) == ["s1 >= 2", "s0 == 8"]


def test_equal_sizes_become_one():
    env = ShapeEnv()
    a, b = env.symbol(8, At("a"), marked=True), env.symbol(8, At("b"), marked=True)
    assert a == b and env.implied(sympy.Eq(a.node.expr * 2, b.node.expr * 2, evaluate=False))


def test_frozen_refuses_new_facts():
    env = ShapeEnv()
    a = env.symbol(8, At("a"))
    with env.frozen():
        assert a > 1
        with pytest.raises(LateGuard, match="s0 > 3"):
            bool(a > 3)
    assert texts(env) == ["s0 >= 2"]


def test_sizes_that_depend_on_data_need_facts():
    env = ShapeEnv()
    u = env.unbacked()
    with pytest.raises(UnknownSize, match="u0 > 3"):
        bool(u > 3)
    assert (u > 5).node.expect_true() and u > 3 and u >= 0
    assert not env.guards() and len(env.asserted) == 1


def test_meta_tensors_take_symbols():
    env = ShapeEnv()
    b, t = env.symbol(4, At("b")), env.symbol(16, At("t"))
    x = torch.empty((b, t, 64), device="meta")
    assert x.is_contiguous() and str(x.stride(0)) == "64 * s1"
    assert str(torch.cat([x, x], 1).shape[1]) == "2 * s1" and str(torch.arange(t * 2, device="meta").shape[0]) == "2 * s1"
    assert str((b * t * 64 // (b * 8))) == "8 * s1"
    assert texts(env) == ["s0 >= 2", "s1 >= 2"]


def test_facts_read_as_bounds_where_they_are():
    env = ShapeEnv()
    h = env.symbol(224, At("h"))
    size = h
    for _ in range(3):
        size = (size - 1) // 2 + 1
        assert size != 1
    assert str(size) == "(s0 + 7) // 8" and size >= 2
    assert texts(env) == ["s0 >= 9"]


def test_sympy_is_imported_for_programs_whose_sizes_vary_only():
    code = "import sys, minipt2.dynamo, minipt2.fake, minipt2.prims; before = 'sympy' in sys.modules; from minipt2.shapes import ShapeEnv; print(before, 'sympy' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "True"]


def test_environments_are_freed():
    env = ShapeEnv()
    s = env.symbol(8, At("a"))
    contiguous_strides((s, 4, s + 1))
    assert s % 4 == 0
    gone = weakref.ref(env)
    del env, s
    gc.collect()
    assert gone() is None


def test_divisibility_reads_as_such():
    env = ShapeEnv()
    a, b = env.symbol(8, At("a")), env.symbol(9, At("b"))
    assert a == 4 * (a // 4) and b // 4 * 4 != b
    assert texts(env)[2:] == ["s0 % 4 == 0", "s1 % 4 != 0"]


def test_guards_lack_what_both_sides_share():
    env = ShapeEnv()
    a, n = env.symbol(6, At("a")), env.number(6, At("n"))
    assert 4 * n == 4 * a and texts(env)[1:] == ["n0 == s0"]
    env = ShapeEnv()
    a, b = env.symbol(6, At("a")), env.symbol(3, At("b"))
    assert a * b > 2 * b + b and a * 2 + 3 != 3 * b + 3 + a
    assert texts(env) == ["s0 >= 4", "s1 >= 2", "s0 != 3 * s1"]
    env = ShapeEnv()
    a, b = env.symbol(6, At("a")), env.symbol(2, At("b"))
    assert a * b == 3 * b * b and not b + 1 < a - 8
    assert texts(env) == ["2 <= s1 <= 4", "s0 == 3 * s1"]


def test_bounds_of_quotients_and_remainders_read_as_such():
    env = ShapeEnv()
    a, b = env.symbol(7, At("a")), env.symbol(9, At("b"))
    assert (a + 1) // 2 == 4 and (a + 1) // 2 * 3 == 12 and not b % 3 > 0
    assert texts(env) == ["7 <= s0 <= 8", "s1 >= 2", "s1 % 3 == 0"]


def test_infinity_is_larger_than_any_size():
    env = ShapeEnv()
    a, f = env.number(7, At("a")), env.number(0.5, At("f"))
    assert a < math.inf and a != -math.inf and a + 3 > -math.inf and not a == math.inf
    assert texts(env) == [] and f != math.inf
    assert [eval(g.test(lambda s: "x"), {"x": x}) for g in env.guards() for x in (0.5, math.inf)] == [True, False]


def test_questions_of_torch_s_python_kernels():
    """``statically_known_true`` and ``guard_or_false`` record nothing they need not, and data decides nothing."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false, guard_or_true, statically_known_true

    env = ShapeEnv()
    a, u = env.symbol(7, At("a")), env.unbacked()
    assert statically_known_true(a > 1) and not statically_known_true(a > 6) and not statically_known_true(u > 3)
    assert not guard_or_false(u > 3) and guard_or_true(u > 3) and texts(env) == ["s0 >= 2"]
    assert guard_or_false(a > 6) and texts(env) == ["s0 >= 7"]
