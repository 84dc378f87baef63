import random

import torch

import minipt2
from minipt2 import prims as P
from minipt2.course.checks import same
from minipt2.course.programs import schedule_of
from minipt2.inductor.arena import ALIGN


def program(seed):
    def fn(x, w):
        rng, values = random.Random(seed), [x]
        for _ in range(rng.randint(3, 14)):
            a, b = rng.choice(values), rng.choice(values)
            values.append(rng.choice([lambda: P.mm(a, w), lambda: P.add(a, b), lambda: P.exp(P.permute(a, [1, 0])), lambda: P.flip(a, [0]),
                                      lambda: P.mul(a, P.broadcast_in_dim(P.sum(b, [1]), a.shape, [0]))])())
        return tuple(rng.sample(values[1:], k=min(2, len(values) - 1)))
    return fn


SQUARE = torch.zeros(16, 16), torch.zeros(16, 16)


def lives(s):
    first, last = {}, {}
    for k, step in enumerate(s.steps):
        for name in step.reads() | step.writes():
            first.setdefault(name, k)
            last[name] = k
    return first, last


def test_lives_that_overlap_are_apart():
    """On forty random schedules; only a result written in place shares with the operand that ends there."""
    for seed in range(40):
        s = schedule_of(program(seed), *SQUARE)
        first, last = lives(s)
        for a, (at, n) in s.plan.items():
            same(at % ALIGN == 0 and at + n <= s.arena_bytes, True, where=f"slot of {a} aligned and inside")
            for b, (bt, m) in s.plan.items():
                apart = at + n <= bt or bt + m <= at
                together = first[a] <= last[b] and first[b] <= last[a]
                assert a == b or apart or not together or s.inplace.get(b) == a or s.inplace.get(a) == b, f"{a} and {b} overlap (program {seed})"


def test_a_chain_needs_two_slots():
    """However long it is: storage is used again."""
    def fn(x, w):
        for _ in range(12):
            x = P.mm(P.exp(x), w)
        return x
    s = schedule_of(fn, *SQUARE)
    assert s.arena_bytes <= 2 * 16 * 16 * 4, f"{s.arena_bytes} bytes for a chain"


def test_in_place():
    """An elementwise result takes over the storage of the operand that ends there."""
    def fn(x, w):
        return P.mm(P.exp(P.mm(x, w)), w)
    s = schedule_of(fn, *SQUARE)
    assert s.inplace or s.arena_bytes <= 16 * 16 * 4, (s.inplace, s.arena_bytes)


def test_computes_the_same():
    """The whole compiler on your plan."""
    def fn(x, w):
        keep = []
        for _ in range(4):
            y = (x @ w).tanh()
            x = (y - y.mean(-1, keepdim=True)) @ w + x
            keep.append(y)
        return x, keep[0] + keep[-1]
    torch.manual_seed(0)
    x, w = torch.randn(16, 16), torch.randn(16, 16) / 4
    compiled = minipt2.compile(fn)
    for _ in range(2):
        same(list(compiled(x, w)), list(fn(x, w)), rtol=1e-4, atol=1e-5)
