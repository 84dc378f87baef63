import pytest
import sympy
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.source import LocalSource
from minipt2.shapes import LateGuard, ShapeEnv, UnknownSize


def environment(*sizes):
    env = ShapeEnv()
    return env, *[env.symbol(n, LocalSource(f"n{k}"), marked=True) for k, n in enumerate(sizes)]


def texts(env):
    return sorted(str(r.fact) for r in env.recorded)


def test_the_answer():
    """For the sizes at hand."""
    env, a, b = environment(8, 3)
    same([bool(a > 4), bool(a < b), bool(a * 2 == 16), bool(a != 8)], [True, False, True, False])


def test_a_yes_is_recorded():
    """The code relies on it."""
    env, a = environment(8)
    bool(a > 4)
    same(len(env.recorded), 1)
    same(env.implied(a.node.expr > 4), True)


def test_a_no_is_recorded_too():
    """As its opposite."""
    env, a = environment(8)
    same(bool(a > 20), False)
    same(len(env.recorded), 1, where="recorded facts")
    same(env.implied(a.node.expr <= 20), True, where="whether a <= 20 is known now")
    for r in env.recorded:
        same(env.hint(r.fact), True, where=f"whether {r.fact} holds for a = 8")


def test_what_follows_costs_nothing():
    """Asked again, or weaker: no new fact."""
    env, a = environment(8)
    for question in (lambda: a > 4, lambda: a > 4, lambda: a > 3, lambda: a + 1 > 4, lambda: a < 2):
        bool(question())
    same(len(env.recorded), 1)


def test_and_or_not():
    """All parts, one part, the opposite."""
    env, a, b = environment(8, 3)
    x, y = a.node.expr, b.node.expr
    same(env.evaluate(sympy.And(x > 5, y < 5)), True)
    same(len(env.recorded), 2, where="facts of an and")
    env, a, b = environment(8, 3)
    x, y = a.node.expr, b.node.expr
    same(env.evaluate(sympy.Or(x > 100, y < 5)), True)
    same(texts(env), [str(env.recorded[0].fact)], where="facts of an or")
    same(env.implied(y < 5), True)


def test_sizes_that_depend_on_data():
    """There is no answer to give."""
    env = ShapeEnv()
    u = env.unbacked()
    with pytest.raises(UnknownSize):
        bool(u > 4)
    bool(env.symbol(8, LocalSource("n"), marked=True) > 4)


def test_too_late():
    """Guards are compiled: only what follows may be asked."""
    env, a = environment(8)
    bool(a > 4)
    with env.frozen():
        same(bool(a > 3), True)
        with pytest.raises(LateGuard):
            bool(a > 6)


def test_compiled_branches():
    """The whole compiler on your questions: one program for long inputs, one for short ones."""
    fn = minipt2.compile(lambda x: x * 2 if x.shape[0] > 5 else x - 1, dynamic=True, backend="eager")
    for n in (8, 9, 20, 3, 4, 8):
        x = torch.randn(n)
        same(fn(x), x * 2 if n > 5 else x - 1)
    same(minipt2.counters()["graphs"], 2)
