import random

import torch

import minipt2
from minipt2.course.checks import same
from minipt2.prims.meta import view_strides


def theirs(t, shape):
    try:
        return t.view(shape).stride()
    except RuntimeError:
        return None


def agrees(t, *shape):
    same(view_strides(tuple(t.shape), t.stride(), shape), theirs(t, shape), where=f"{tuple(t.shape)}/{t.stride()} as {shape}")


def test_contiguous():
    """Anything goes."""
    t = torch.empty(4, 6)
    for shape in ((24,), (2, 12), (2, 2, 2, 3), (24, 1), (3, 8)):
        agrees(t, *shape)


def test_what_needs_a_copy():
    """A transpose and a slice can be split, not merged."""
    for shape in ((24,), (3, 8), (6, 2, 2), (2, 3, 4)):
        agrees(torch.empty(4, 6).t(), *shape)
    for shape in ((24,), (2, 2, 6), (4, 2, 3), (8, 3)):
        agrees(torch.empty(4, 8)[:, :6], *shape)


def test_sizes_of_one():
    """They come and go, whatever their strides."""
    t = torch.empty(4, 1, 6).transpose(1, 2)
    for shape in ((24,), (1, 24), (4, 6), (1, 4, 1, 6, 1), (2, 12)):
        agrees(t, *shape)
        agrees(torch.empty(1, 24)[:, ::2], *[n for n in (1, 12, 1)])


def test_expanded():
    """Stride 0: a chunk for itself."""
    agrees(torch.empty(1, 6).expand(4, 6), 24)
    agrees(torch.empty(1, 6).expand(4, 6), 2, 2, 6)
    agrees(torch.empty(1, 6).expand(4, 6), 4, 2, 3)


def test_nothing_and_one():
    """Empty tensors and 0-d ones."""
    agrees(torch.empty(0, 3), 0, 3)
    agrees(torch.empty(0, 3), 3, 0, 2)
    agrees(torch.empty(()), 1, 1)
    agrees(torch.empty(1, 1))


def test_against_torch():
    """Three hundred random layouts and shapes."""
    rng = random.Random(2)
    for _ in range(300):
        sizes = [rng.choice([1, 2, 3, 4]) for _ in range(rng.choice([1, 2, 3]))]
        t = torch.empty(sizes)
        if rng.random() < 0.5:
            t = t.permute(rng.sample(range(t.dim()), t.dim()))
        if rng.random() < 0.3:
            t = t[..., ::2]
        rest, shape = t.numel(), []
        while rest > 1:
            n = rng.choice([d for d in range(1, rest + 1) if rest % d == 0])
            shape.append(n)
            rest //= n
        agrees(t, *(shape or [1]))


def test_compiled_views():
    """The whole compiler on your strides."""
    def fn(x):
        y = x.t() * 2
        return y.reshape(-1, 2) + 1, y.unflatten(1, (2, 2)).sum(-1), x.view(2, 2, -1)
    x = torch.randn(4, 6)
    same(list(minipt2.compile(fn)(x)), list(fn(x)), stride=True)
