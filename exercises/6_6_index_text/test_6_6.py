import random

import torch

import minipt2
from minipt2.course.checks import same
from minipt2.inductor.codegen.index import text
from minipt2.inductor.scheduler.affine import Index


def test_sums():
    """Largest coefficient first, 1 not written."""
    same(text(Index(0, {"p1": 1, "p0": 12})), "12*p0 + p1")
    same(text(Index(5, {"p0": 3})), "3*p0 + 5")


def test_zero():
    """An index is never empty."""
    same(text(Index(0, {})), "0")
    same(text(Index(7, {})), "7")


def test_flips():
    """Walking backwards: 63 - i."""
    same(text(Index(63, {"p0": -1})), "-1*p0 + 63")
    same(text(Index(-1, {"p0": 4})), "4*p0 - 1")


def test_names():
    """The caller's names for variables."""
    same(text(Index(1, {"p0": 4, "r0": 1}), {"p0": "i", "r0": "k"}.get), "4*i + k + 1")


def test_equal_indices_print_alike():
    """In whatever order their terms were found."""
    rng = random.Random(0)
    terms = [("p0", 64), ("p1", 8), ("r0", 8), ("r1", 1), ("p2", 1)]
    texts = set()
    for _ in range(20):
        rng.shuffle(terms)
        texts.add(text(Index(3, dict(terms))))
    same(texts, {"64*p0 + 8*p1 + 8*r0 + p2 + r1 + 3"})


def test_is_what_c_computes():
    """Two hundred random indices, evaluated as text."""
    rng = random.Random(1)
    for _ in range(200):
        index = Index(rng.choice([0, 3, -2]), {v: rng.choice([1, 2, 8, -1, -4]) for v in rng.sample(["p0", "p1", "r0"], rng.choice([0, 1, 3]))})
        values = {v: rng.randrange(9) for v in ("p0", "p1", "r0")}
        wanted = index.const + sum(c * values[v] for v, c in index.terms.items())
        same(eval(text(index), dict(values)), wanted, where=text(index))


def test_compiled_indices():
    """The whole compiler on your text: flips, slices, strides, remainders."""
    def fn(x):
        return x.flip(0, 1) + x[:1], x[1:, ::2] * 2, x.t().reshape(3, -1) - 1, x.roll(1, 1)
    x = torch.randn(6, 8)
    same(list(minipt2.compile(fn)(x)), list(fn(x)))
