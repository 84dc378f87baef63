"""Random programs on sizes against Python on every point of small ranges: what is simplified, implied and guarded is true."""
from __future__ import annotations

import itertools
import math
import operator
from typing import Any

import sympy
import torch
from hypothesis import given, settings, strategies as st

from minipt2.shapes import ShapeEnv, call, python, value
from minipt2.shapes.facts import Facts, decide, learn
from minipt2.shapes.readable import ends, readable
from minipt2.shapes.relations import negated

from .test_env import At

TOP = 7
KINDS = ("size", "size", "number")
LOWEST = {"size": 2, "number": -4}
BINARY = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, max, min]
COMPARE = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
ROUNDED = [math.floor, math.ceil, int, round]


def numbers(depth: int) -> st.SearchStrategy:
    """Programs: an int, ("in", k), or (function, program, program …)."""
    leaf = st.one_of(st.integers(-3, 9), st.tuples(st.just("in"), st.integers(0, len(KINDS) - 1)))
    if depth == 0:
        return leaf
    inner = numbers(depth - 1)
    return st.one_of(
        leaf, st.tuples(st.sampled_from(BINARY), inner, inner), st.tuples(st.sampled_from([operator.neg, abs]), inner),
        st.tuples(st.sampled_from(ROUNDED), st.tuples(st.sampled_from([operator.truediv, operator.mul]), inner, st.sampled_from([2, 0.5, 3, 0.75]))),
    )  # fmt: skip


def facts(depth: int) -> st.SearchStrategy:
    return st.tuples(st.sampled_from(COMPARE), numbers(depth), numbers(depth))


def run(program: Any, inputs: list) -> Any:
    """The value of a program for inputs, symbolic or not."""
    if not isinstance(program, tuple):
        return program
    if program[0] == "in":
        return inputs[program[1]]
    args = [run(p, inputs) for p in program[1:]]
    if any(isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)) for a in args):
        return call(program[0], *args)
    return program[0](*args)


def holds(program: Any, point: list) -> bool | None:
    try:
        return bool(run(program, point))
    except ZeroDivisionError:
        return None


def environment(point: list) -> tuple[ShapeEnv, list]:
    env = ShapeEnv()
    make = {"size": lambda n, at: env.symbol(n, at, marked=True, min=2, max=TOP), "number": env.number}
    return env, [make[kind](n, At(f"x{k}")) for k, (kind, n) in enumerate(zip(KINDS, point))]


def space() -> list[list[int]]:
    return [list(p) for p in itertools.product(*[range(LOWEST[k], TOP + 1) for k in KINDS])]


points = st.tuples(*[st.integers(LOWEST[k], TOP) for k in KINDS]).map(list)
SPACE = space()


def passing(env: ShapeEnv, where: list[list[int]] = SPACE) -> list[list[int]]:
    """The points that satisfy every guard."""
    tests = [compile(g.test(lambda s: s.name()), "guard", "eval") for g in env.guards()]
    names = [f"x{k}" for k in range(len(KINDS))]

    def passes(point: list[int]) -> bool:
        try:
            return all(eval(t, {"math": math}, dict(zip(names, point))) for t in tests)
        except ZeroDivisionError:  # a check that can't be made is one that failed
            return False

    return [p for p in where if passes(p)]


@settings(max_examples=80, deadline=None)
@given(numbers(3), points)
def test_arithmetic_agrees_with_python_wherever_the_guards_hold(program, point):
    if holds(program, point) is None:
        return
    env, symbols = environment(point)
    result = run(program, symbols)
    ok = passing(env)
    assert point in ok
    for p in ok:
        known = holds(program, p)
        if known is not None:
            here = result if not hasattr(result, "node") else value(result.node.expr, dict(zip(env.sources, p)))
            assert here == run(program, p)


@settings(max_examples=80, deadline=None)
@given(numbers(2), points)
def test_text_means_the_same_as_the_expression(program, point):
    if holds(program, point) is None:
        return
    env, symbols = environment(point)
    result = run(program, symbols)
    if hasattr(result, "node"):
        e = result.node.expr
        assert eval(python(e), {"math": math}, {s.name: n for s, n in zip(env.sources, point)}) == value(e, dict(zip(env.sources, point)))


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(2), min_size=1, max_size=5), points)
def test_answers_follow_from_the_guards(programs, point):
    """Evaluating facts one after another gives Python's answers, and the guards leave only points with the same answers."""
    env, symbols = environment(point)
    asked = []
    for program in programs:
        truth = holds(program, point)
        if truth is None:
            continue
        assert bool(run(program, symbols)) == truth
        asked.append((program, truth))
    for p in passing(env):
        for program, truth in asked:
            assert holds(program, p) in (truth, None)


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(1), min_size=1, max_size=5), points)
def test_guards_are_no_stronger_than_the_answers(programs, point):
    """Facts without division ask only what they say: every point with the same answers passes."""
    plain = [p for p in programs if not _divides(p)]
    env, symbols = environment(point)
    answers = [bool(run(p, symbols)) for p in plain]
    ok = passing(env)
    for p in SPACE:
        if [holds(q, p) for q in plain] == answers:
            assert p in ok


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(1), min_size=1, max_size=5), points)
def test_no_guard_follows_from_the_others(programs, point):
    env, symbols = environment(point)
    for p in programs:
        if holds(p, point) is not None:
            bool(run(p, symbols))
    guards = env.guards()
    assert len({str(g) for g in guards}) == len(guards)
    for g in guards:
        known = Facts()
        for other in guards:
            if other is not g:
                for part in other.fact.args if isinstance(other.fact, sympy.And) else [other.fact]:
                    learn(known, part)
        assert decide(known, g.fact) is None


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(1), max_size=4), facts(2), points)
def test_implication_agrees_with_every_point(assumed, question, point):
    env, symbols = environment(point)
    for program in assumed:
        if holds(program, point) is not None:
            bool(run(program, symbols))
    if holds(question, point) is None:
        return
    fact = run(question, symbols)
    if isinstance(fact, bool):
        return
    known = env.implied(fact.node.expr)
    assert env.implied(negated(fact.node.expr)) is (None if known is None else not known)
    if known is not None:
        assert all(holds(question, p) in (known, None) for p in passing(env))


@settings(max_examples=80, deadline=None)
@given(st.lists(facts(1), max_size=3), facts(2), points)
def test_short_forms_say_the_same_where_the_guards_hold(assumed, question, point):
    env, symbols = environment(point)
    for program in assumed:
        if holds(program, point) is not None:
            bool(run(program, symbols))
    truth = holds(question, point)
    fact = run(question, symbols) if truth is not None else truth
    if not isinstance(fact, torch.SymBool):
        return
    written = fact.node.expr if truth else negated(fact.node.expr)
    short = readable(env.facts, written)
    for p in passing(env):
        values = dict(zip(env.sources, p))
        try:
            expected = value(written, values)
        except ZeroDivisionError:
            continue
        assert all(value(part, values) for part in ends(short) or (short,)) == expected


SYMBOLS = sympy.symbols("a b c d", integer=True)
factors = st.tuples(*[st.integers(-2, 2)] * len(SYMBOLS), st.integers(-3, 3)).map(lambda cs: sum((c * s for c, s in zip(cs, SYMBOLS)), sympy.Integer(cs[-1])))


@settings(max_examples=60, deadline=None)
@given(st.lists(factors, max_size=8), st.lists(factors, min_size=2, max_size=4), st.sampled_from([sympy.Ge, sympy.Eq, sympy.Ne]))
def test_answers_about_products_of_many_terms_are_right(assumed, product, relation):
    """They multiply out to dozens of terms, of which not every combination with what is known is tried: an answer is right all the same."""
    inside = [dict(zip(SYMBOLS, p)) for p in itertools.product(range(2, 5), repeat=len(SYMBOLS))]
    known = Facts()
    for s in SYMBOLS:
        known.give(s, 2, 4)
    for p in assumed:
        kept = [v for v in inside if value(p, v) >= 0]
        if kept:
            learn(known, sympy.Ge(p, 0, evaluate=False))
            inside = kept
    question = relation(sympy.Mul(*product, evaluate=False), 1, evaluate=False)
    answer = decide(known, question)
    assert answer is None or all(value(question, v) == answer for v in inside)


def test_a_product_of_hundreds_of_terms_is_decided_or_given_up_at_once():
    """Ten facts and 256 terms: combining three facts in every way would ask for the bounds of some ten thousand polynomials."""
    asked = []

    class Counted(Facts):
        def plain_bounds(self, p):
            asked.append(len(p))
            return super().plain_bounds(p)

    s, t = sympy.symbols("s0:16", integer=True), sympy.symbols("t0:10", integer=True)
    product = sympy.expand(sympy.Mul(*[s[2 * k] * s[2 * k + 1] - s[2 * k] * s[(2 * k + 7) % 16] + s[(2 * k + 3) % 16] - 1 for k in range(4)]))
    known = Counted()
    for symbol in (*s, *t):
        known.give(symbol, 2, math.inf)
    terms = [term for term in product.args if term.as_coeff_Mul()[0] > 0]
    for symbol, term in zip(t, terms[::4]):
        learn(known, sympy.Ge(term, symbol, evaluate=False))
    asked.clear()
    assert decide(known, sympy.Ge(product, 0, evaluate=False)) is None
    assert max(asked) > 200 and len(asked) < 500


def _divides(program: Any) -> bool:
    return isinstance(program, tuple) and (program[0] in (operator.floordiv, operator.mod, int, math.floor, math.ceil) or any(map(_divides, program[1:])))
