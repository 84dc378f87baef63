import torch
from torch import nn

import minipt2
from minipt2.course.checks import same

BASE = 7


def agree(fn, *args):
    """Captured in one graph, and as in Python."""
    same(minipt2.compile(fn, backend="eager", fullgraph=True)(*args), fn(*args))
    same(minipt2.counters().get("graphs", 0) > 0, True, where="whether a graph was captured")


def every(a, b, /, c, d=4, *rest, e, f=6, **more):
    return a * 1 + b * 10 + c * 100 + d * 1000 + e * 3 + f * 5 + sum(rest) * 7 + sum(v * len(k) for k, v in more.items()) * 11


def test_every_kind_of_parameter():
    """Positional, keyword, starred, in every combination that fits."""
    def fn(x):
        return [every(x, 2, 3, e=5), every(x, 2, c=3, e=5, d=1), every(x, 2, 3, 4, 8, 9, e=5, f=1), every(x, 2, 3, e=5, g=2, hh=3),
                every(*[x, 1, 2, 3, 4, 5], **{"e": 1, "zz": 9})]
    agree(fn, torch.ones(2))


def test_positional_only_names_go_to_kwargs():
    """``a`` is no keyword of ``every``: given by name it lands in ``**more``."""
    def fn(x):
        try:
            return every(x, 2, 3, e=5, a=100)
        except TypeError:
            return x - 1
    agree(fn, torch.ones(1))


def test_defaults_belong_to_the_last_parameters():
    """Three parameters, two defaults."""
    def callee(a, b=2, c=3):
        return a * 100 + b * 10 + c
    agree(lambda x: [callee(x), callee(x, 5), callee(x, c=7), callee(x, c=8, b=9)], torch.ones(1))


def test_keyword_only_defaults():
    """Also those without a default in between."""
    def callee(a, *, b=2, c, d=4):
        return a + b * 10 + c * 100 + d * 1000
    agree(lambda x: [callee(x, c=1), callee(x, d=1, c=2), callee(x, b=5, c=3)], torch.ones(1))


def test_calls_that_do_not_fit():
    """The traced program sees the TypeErrors that Python would raise."""
    def callee(a, b, *, c=1):
        return a + b + c

    def fn(x):
        caught = []
        for k, (args, kwargs) in enumerate([((), {}), ((x,), {}), ((x, 1, 2), {}), ((x, 1), {"a": 1}), ((x, 1), {"z": 1}), ((x, 1), {"c": 5})]):
            try:
                x = x + callee(*args, **kwargs)
            except TypeError:
                caught.append(k)
        return x, caught
    agree(fn, torch.ones(1))


def test_closures_and_globals():
    """A nested function sees its cells as they are when it is called."""
    def fn(x):
        k = 1

        def inner(y, plus=BASE):
            return y * k + plus
        first = inner(x)
        k = 10
        return first, inner(x), (lambda *a, **kw: a[0] + kw["z"])(x, z=3)
    agree(fn, torch.ones(1))


def test_submodules_and_recursion():
    """Modules call modules; a function calls itself until its argument says stop."""
    def power(x, n):
        return x if n == 0 else power(x * 2, n - 1)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.randn(2, 3)
    same(minipt2.compile(lambda x: power(net(x), 4), backend="eager", fullgraph=True)(x), power(net(x), 4))
