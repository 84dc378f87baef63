"""Random programs of views, elementwise prims, reductions, joins, gathers and matrix products against eager."""
import random

import pytest
import torch

from minipt2 import prims as p

from ..programs import check


def split(n, rng):
    divisors = [d for d in range(2, n + 1) if n % d == 0]
    out = []
    while n > 1 and len(out) < 3:
        d = rng.choice([d for d in divisors if n % d == 0])
        out.append(d)
        n //= d
    return out + ([n] if n > 1 else [])


def numel(x):
    n = 1
    for size in x.shape:
        n *= size
    return n


def view(x, rng):
    shape, rank = tuple(x.shape), len(x.shape)
    kind = rng.choice(["reshape", "reshape", "permute", "slice", "flip", "broadcast"])
    if kind == "reshape":
        new = split(numel(x), rng) + [1] * rng.randint(0, 1)
        rng.shuffle(new)
        return p.reshape(x, tuple(new))
    if kind == "permute":
        return p.permute(x, tuple(rng.sample(range(rank), rank)))
    if kind == "flip" and rank:
        return p.flip(x, (rng.randrange(rank),))
    if kind == "slice" and rank:
        starts = tuple(rng.randrange(max(n, 1)) if rng.random() < 0.3 else 0 for n in shape)
        return p.slice(x, starts, shape, tuple(rng.choice([1, 1, 2]) for _ in shape))
    if numel(x) < 200:
        return p.broadcast_in_dim(x, (2, *shape), tuple(range(1, rank + 1)))
    return x


def step(x, rng):
    rank = len(x.shape)
    kind = rng.choice(["view"] * 5 + ["unary"] * 3 + ["binary", "reduce", "cat", "pad", "copy", "gather", "mm"])
    if kind == "unary":
        return rng.choice([p.exp, p.neg, p.tanh, p.relu])(p.tanh(x))
    if kind == "binary":
        return p.add(x, p.mul(p.tanh(x), 0.5))
    if kind == "reduce" and rank:
        dims = tuple(sorted(rng.sample(range(rank), rng.randint(1, rank))))
        fn = rng.choice([p.amax, p.amin, lambda *a: p.var_mean(a[0], a[1], 0, a[2])[1]])
        return fn(x, dims, rng.random() < 0.5)
    if kind == "cat" and rank and numel(x) < 300:
        return p.cat((x, p.neg(x)), rng.randrange(rank))
    if kind == "pad" and rank:
        return p.pad(x, tuple(rng.choice([0, 1, 0]) for _ in range(rank)), tuple(rng.choice([0, 1, -1 if n > 2 else 0]) for n in x.shape), 0.5)
    if kind == "copy":
        strides, run = [], 1
        for n in reversed(x.shape):
            strides.append(run)
            run *= max(n, 1)
        return p.copy_strided(x, tuple(reversed(strides)))
    if kind == "gather" and rank and x.shape[0] > 0:
        dim = rng.randrange(rank)
        return p.index_select(x, dim, p.iota(x.shape[dim], 0, 1, torch.int64, torch.device("cpu")))
    if kind == "mm" and rank == 2:
        return p.mm(p.tanh(x), p.permute(p.tanh(x), (1, 0)))
    return view(x, rng)


@pytest.mark.parametrize("seed", range(80))
def test_random_programs(seed):
    torch.manual_seed(seed)

    def fn(*inputs):
        rng = random.Random(seed)
        values = list(inputs)
        for _ in range(rng.randint(4, 14)):
            values.append(step(rng.choice(values[-4:]), rng))
        return tuple(rng.sample(values[2:], min(3, len(values) - 2)))
    x = torch.randn(2, 3, 4, 5)
    check(fn, x.to(memory_format=torch.channels_last) if seed % 2 else x, torch.randn(6, 4).t())


@pytest.mark.parametrize("seed", range(30))
def test_random_mutations(seed):
    """Outputs that replace inputs they, or other outputs, still read."""
    def fn(x, y, z):
        rng = random.Random(seed)
        values = [x, y, z]
        for _ in range(6):
            a, b = rng.choice(values), rng.choice(values)
            values.append(rng.choice([lambda: p.add(a, b), lambda: p.flip(a, (0,)), lambda: p.permute(a, (1, 0)), lambda: p.exp(p.tanh(a))])())
        return tuple(rng.sample(values, 4))
    check(fn, torch.randn(4, 4), torch.randn(4, 4).t(), torch.randn(4, 4), mutated={0: 0, 1: 1, 2: 2})
