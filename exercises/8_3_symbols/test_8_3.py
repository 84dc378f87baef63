import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.source import LocalSource
from minipt2.shapes import ShapeEnv


def source(name):
    return LocalSource(name)


def names(env, s):
    return [src.name() for src in env.sources[s.node.expr]]


def test_zero_and_one_stay_numbers():
    """They decide what a program does."""
    env = ShapeEnv()
    same([env.symbol(0, source("a")), env.symbol(1, source("b"))], [0, 1])
    assert isinstance(env.symbol(2, source("c")), torch.SymInt)


def test_equal_sizes_share():
    """One symbol, with two places to read it from."""
    env = ShapeEnv()
    a, b, c = env.symbol(5, source("a")), env.symbol(5, source("b")), env.symbol(6, source("c"))
    assert a.node.expr == b.node.expr != c.node.expr
    same(names(env, a), ["L['a']", "L['b']"])
    same(bool(a == b), True)
    same(len(env.recorded), 0, where="facts after asking what sharing implies")


def test_marked_sizes_stand_alone():
    """The user said that it varies by itself."""
    env = ShapeEnv()
    a, b, c = env.symbol(5, source("a")), env.symbol(5, source("b"), marked=True), env.symbol(5, source("c"))
    assert a.node.expr == c.node.expr != b.node.expr
    one = env.symbol(1, source("d"), marked=True)
    assert isinstance(one, torch.SymInt)


def test_kept_apart():
    """Two dimensions of one tensor, equal by chance."""
    env = ShapeEnv()
    a = env.symbol(5, source("a"))
    b = env.symbol(5, source("b"), apart=[a])
    assert a.node.expr != b.node.expr
    c = env.symbol(5, source("c"), apart=[b])
    same(str(c.node.expr), str(a.node.expr))


def test_ranges():
    """From 2 on, unless it is marked otherwise."""
    env = ShapeEnv()
    a, b = env.symbol(8, source("a")), env.symbol(8, source("b"), marked=True, min=4, max=16)
    same([env.implied(a.node.expr >= 2), env.implied(a.node.expr >= 3)], [True, None])
    same([env.implied(b.node.expr >= 4), env.implied(b.node.expr <= 16), env.implied(b.node.expr <= 15)], [True, True, None])
    zero = env.symbol(0, source("z"), marked=True)
    same(env.implied(zero.node.expr >= 0), True)


def test_batches():
    """The whole compiler on your symbols: 2, 3, 4, 5 are one program after two compilations, 1 is another."""
    fn = minipt2.compile(lambda x: (x * 2).sum(0), backend="eager")
    for n in (2, 3, 4, 5):
        x = torch.randn(n, 3)
        same(fn(x), (x * 2).sum(0))
    same(minipt2.counters()["graphs"], 2)
    x = torch.randn(1, 3)
    same(fn(x), (x * 2).sum(0))
    same(minipt2.counters()["graphs"], 3)
