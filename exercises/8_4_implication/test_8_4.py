import itertools
import random

import sympy
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.source import LocalSource
from minipt2.shapes import ShapeEnv


def environment(*sizes, **ranges):
    env = ShapeEnv()
    symbols = [env.symbol(n, LocalSource(f"n{k}"), marked=True, **ranges).node.expr for k, n in enumerate(sizes)]
    return env, *symbols


def test_ranges():
    """What minimum and maximum say."""
    env, a = environment(8, min=4, max=16)
    same([env.implied(f) for f in (a >= 4, a > 4, a < 4, a <= 16, a > 16, a >= 17)], [True, None, False, True, False, False])
    same(env.implied(4 - a <= 0), True)
    same(env.implied(a - 16 <= 0), True)


def test_unknown_is_no_answer():
    """None, in any combination."""
    env, a, b = environment(8, 9)
    unknown, true = a > 5, a >= 2
    same([env.implied(f) for f in (unknown, sympy.Not(unknown, evaluate=False), sympy.Or(unknown, b > 7), sympy.And(unknown, true))], [None] * 4)
    same(env.implied(sympy.Or(unknown, sympy.true)), True)
    same(env.implied(sympy.And(unknown, a < 0)), False)


def test_learnt_facts():
    """What was recorded decides later questions."""
    env, a, b = environment(8, 12)
    env.evaluate(b >= a + 3)
    same([env.implied(f) for f in (b >= a, b > a, b < a, b >= a + 3, b >= a + 4, b - a >= 3)], [True, True, False, True, None, True])


def test_chains_of_facts():
    """a <= b and b <= c."""
    env, a, b, c = environment(4, 8, 12)
    env.evaluate(b >= a + 2)
    env.evaluate(c >= b + 1)
    same(env.implied(c >= a + 3), True)
    same(env.implied(c < a), False)
    same(env.implied(c >= a + 4), None)


def test_redundant_guards_vanish():
    """What follows is not recorded."""
    env, a, b = environment(8, 12)
    for fact in (b > a, b >= a, b - a > 0, 2 * b > a + b, a >= 2):
        env.evaluate(fact)
    same(len(env.recorded), 1)


def test_never_wrong():
    """A hundred random worlds: what is said to follow holds for all sizes that agree with what was learnt."""
    rng = random.Random(0)
    for _ in range(100):
        env, a, b = environment(rng.randrange(2, 7), rng.randrange(2, 7), min=2, max=6)

        def fact():
            left = rng.choice([a, b, a + b, 2 * a, a - b, 3 * a - b])
            return rng.choice([sympy.Ge, sympy.Lt, sympy.Le, sympy.Gt])(left, rng.choice([a, b, 3, 5, 8]), evaluate=False)
        known = [f if env.evaluate(f) else sympy.Not(f) for f in (fact(), fact())]
        question = fact()
        answer = env.implied(question)
        worlds = [w for w in ({a: x, b: y} for x, y in itertools.product(range(2, 7), repeat=2)) if all(bool(k.subs(w)) for k in known)]
        if answer is not None:
            assert all(bool(question.subs(w)) == answer for w in worlds), f"{known} does not decide {question}, said to be {answer}"


def test_compiled_with_few_guards():
    """The whole compiler on your implications: slices of symbolic length."""
    def fn(x, y):
        n = x.shape[0]
        return x[1:] + x[: n - 1], torch.cat([x, y])[n:]
    compiled = minipt2.compile(fn, dynamic=True, backend="eager")
    for n in (6, 7, 9):
        x, y = torch.randn(n), torch.randn(n + 2)
        same(list(compiled(x, y)), list(fn(x, y)))
    same(minipt2.counters()["graphs"], 1)
