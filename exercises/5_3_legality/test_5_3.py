import torch

import minipt2
from minipt2 import prims as P
from minipt2.course.checks import same
from minipt2.course.programs import groups_of
from minipt2.inductor.scheduler import can_fuse, why_not

A, B, V, TALL = torch.zeros(48, 64), torch.zeros(48, 64), torch.zeros(64), torch.zeros(8192, 64)


def spread(v, like, dims):
    return P.broadcast_in_dim(v, like.shape, dims)


PAIRS = {
    "producer and consumer": (True, lambda u: (h := P.exp(u), P.mul(h, 2.0)), A),
    "siblings": (True, lambda u: (P.exp(u), P.mul(u, 2.0)), A),
    "reshaped": (True, lambda u: (h := P.exp(u), P.mul(P.reshape(h, (32, 96)), 2.0)), A),
    "row sum, then spread over its row": (True, lambda u: (s := P.sum(u, [1]), P.mul(u, spread(s, u, [0]))), A),
    "two reductions of one tensor": (True, lambda u: (P.sum(u, [1]), P.amax(u, [1])), A),
    "sum, then per row": (True, lambda u: (s := P.sum(u, [1]), P.exp(s)), A),
    "element, then its row's sum": (True, lambda u: (h := P.exp(u), P.sum(h, [1])), A),
    "short column, then spread": (True, lambda u: (s := P.sum(u, [0]), P.mul(u, spread(s, u, [1]))), A),
    "sums over different dimensions": (False, lambda u: (P.sum(u, [1]), P.sum(u, [0])), A),
    "sum of a sum": (False, lambda u: (s := P.sum(u, [1]), P.sum(s, [0])), A),
    "different elements": (False, lambda u: (h := P.exp(u), P.mul(P.flip(h, [1]), 2.0)), A),
    "shifted": (False, lambda u: (h := P.exp(u), P.mul(P.slice(h, (0, 1), (48, 64), (1, 1)), 2.0)), A),
    "spread of a vector": (False, lambda v, u: (h := P.exp(v), P.mul(u, spread(h, u, [1]))), V, A),
    "another part of a concatenation": (False, lambda u, v: (c := P.cat([P.exp(u), P.sin(v)], 0), P.mul(P.slice(c, (24, 0), (72, 64), (1, 1)), 2.0)), A, B),
    "tall column, then spread": (False, lambda u: (s := P.sum(u, [0]), P.mul(u, spread(s, u, [1]))), TALL),
}


def test_labelled_pairs():
    """Fifteen pairs of loop nests, each known to be legal or not."""
    for name, (legal, fn, *tensors) in PAIRS.items():
        a, b = groups_of(fn, *tensors)[-2:]
        same(can_fuse(a, b), legal, where=f"{name}: {why_not(a, b) or 'nothing stands against it'}")
        same(can_fuse(b, a), legal, where=f"{name}, the other way round")


def test_reasons():
    """What stands in the way is said."""
    for name, (legal, fn, *tensors) in PAIRS.items():
        same(bool(why_not(*groups_of(fn, *tensors)[-2:])), not legal, where=name)


def test_compiled_concatenation():
    """A part of a value is read while another part is still being made."""
    def fn(x, y):
        c = torch.cat([x.exp(), y.sin()])
        return c, c[24:72] * 2, torch.softmax(c, -1)
    x, y = torch.randn(48, 64), torch.randn(48, 64)
    same(list(minipt2.compile(fn)(x, y)), list(fn(x, y)), rtol=1e-5, atol=1e-6)


def test_in_place_updates():
    """An input is overwritten only where nobody else still reads it."""
    def fn(x):
        y = x.flip(0) * 2
        x.add_(y)
        z = x.t() - 1
        x.mul_(3)
        return y, z + x.t()
    mine, theirs = torch.randn(12, 12), None
    theirs = mine.clone()
    same(list(minipt2.compile(fn)(mine)), list(fn(theirs)))
    same(mine, theirs, where="x afterwards")


def test_compiled_norms():
    """Reductions with what follows them, in one kernel."""
    def fn(x):
        return torch.softmax(x * 2 + 1, -1), torch.nn.functional.layer_norm(x, (64,))
    x = torch.randn(8, 64)
    same(list(minipt2.compile(fn)(x)), list(fn(x)), rtol=1e-4, atol=1e-5)
