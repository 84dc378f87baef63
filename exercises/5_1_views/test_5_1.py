import itertools
import random

import sympy
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.inductor.ir.body import loop_vars, record
from minipt2.inductor.lowering.views import view_index
from minipt2.inductor.ops import ops


def expressions(old, new):
    """The index into ``old``, symbolically, and the symbols of the index into ``new``."""
    found = []

    def body(index):
        found.extend(view_index(old, new)(index))
        ops.store("out", sympy.S.Zero, ops.constant(0.0, torch.float32))
    record(body, new, (), lambda name: torch.float32)
    return found, loop_vars("p", len(new))


def check(old, new):
    """Every index of the new shape meets the element that reshape puts there."""
    found, symbols = expressions(old, new)
    expected = torch.arange(max(1, torch.Size(old).numel())).view(old) if 0 not in old else torch.empty(old)
    for index in itertools.product(*map(range, new)):
        place = [int(sympy.sympify(e).subs(dict(zip(symbols, index)))) for e in found]
        same(expected[tuple(place)].item(), expected.reshape(new)[index].item(), where=f"{old} as {new}, element {index}")


def test_split_and_merge():
    """One dimension from two, two from one."""
    check((4, 6), (24,))
    check((24,), (2, 3, 4))
    check((4, 6), (6, 4))


def test_sizes_of_one():
    """They come and go, and get index 0."""
    check((4, 1, 6), (1, 4, 6, 1))
    check((1, 6), (2, 1, 3))
    found, _ = expressions((1, 5, 1), (5,))
    same([str(e) for e in found], ["0", "p0", "0"])


def test_what_stays_costs_nothing():
    """A dimension that is in both shapes is passed through."""
    found, _ = expressions((8, 6), (8, 2, 3))
    same(str(found[0]), "p0")
    assert "//" not in str(found[1]) and "%" not in str(found[1]), found[1]


def test_random_reshapes():
    """Two hundred of them, every element."""
    rng = random.Random(1)
    for _ in range(200):
        factors = [rng.choice([1, 2, 3]) for _ in range(4)]

        def grouped():
            shape, rest = [], factors[:]
            rng.shuffle(rest)
            while rest:
                n = 1
                for _ in range(min(len(rest), rng.choice([1, 2]))):
                    n *= rest.pop()
                shape.append(n)
            return tuple(shape)
        check(grouped(), grouped())


def test_no_elements():
    """An empty shape maps nowhere."""
    same(len(view_index((0, 3), (3, 0, 2))([sympy.S.Zero] * 3)), 2)


def test_compiled_reshapes():
    """The whole compiler on your map, where the reshape cannot be a view."""
    def fn(x):
        return (x.t() * 2).reshape(2, 12) + 1, (x + 1).reshape(3, 2, 4).transpose(0, 2).reshape(-1)
    x = torch.randn(4, 6)
    same(list(minipt2.compile(fn)(x)), list(fn(x)))
