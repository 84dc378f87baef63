"""Ints and floats that vary, wherever a call holds them: in slices, as subscripts, as operands of functions of tensors; random questions about them."""
import operator
import random

import pytest
import torch

import minipt2

from dynamic_cases import run

pytestmark = pytest.mark.usefixtures("fresh")


def test_ends_of_slices_that_vary():
    f = lambda x, s: (x[s] + 1, x[:, s.start:], s.stop, x[s, 0])
    versions = run(f, [(torch.randn(20, 12), slice(n, 2 * n, step)) for step in (None, 2) for n in (3, 4, 5, 6, 7)])
    assert len(versions) <= 4 and not versions.breaks, versions.guards
    assert versions.dynamic[0] == "L['s'].start is dynamic from now on: it was 3, then 4"
    assert len(run(lambda x, s: x[s], [(torch.randn(20), slice(n, n + 5)) for n in (3, 4, 5)], dynamic=True)) == 1


def test_slices_of_other_things_stay_whole():
    f = lambda x, s: [x + k for k in [10, 20, 30, 40][s]]
    assert len(run(f, [(torch.ones(2), slice(0, n)) for n in (1, 2, 3)])) == 3
    g = lambda x, s: x[s.stop or 0]
    assert len(run(g, [(torch.randn(5), slice(None, stop)) for stop in (None, 3, 4, 2)])) == 3


@pytest.mark.parametrize("fn", [torch.add, torch.sub, torch.mul, torch.div, torch.true_divide, torch.floor_divide])
def test_functions_of_tensors_given_numbers_alone(fn):
    f = lambda x, k: (fn(x.shape[0], 2), fn(x.shape[0], k) + x, fn(k, 0.5))
    versions = run(f, [(torch.randn(n), k) for n, k in ((5, 1.5), (6, 2.5), (7, 0.25), (9, 4.5))])
    assert len(versions) == 2 and not versions.breaks, versions.guards
    assert len(run(lambda x: torch.div(x.shape[0], 2, rounding_mode="floor") + x, [(torch.randn(n),) for n in (5, 6, 7, 8)])) == 2


SUBSCRIPTS = {
    "alone": lambda x, k: x[k], "column": lambda x, k: x[:, k], "negative": lambda x, k: x[-k], "all": lambda x, k: x[None, k, ..., 0, None], "two": lambda x, k: x[k, 1:, k - 1],
    "after the rest": lambda x, k: x[..., k, 1:3], "with tensors": lambda x, k: x[k, torch.tensor([0, 2]), :, None], "with a mask": lambda x, k: x[k, torch.ones(4).bool()],
    "between tensors": lambda x, k: x[torch.tensor([0, 2]), k, torch.tensor([1, 1])],
}  # fmt: skip


@pytest.mark.parametrize("way", SUBSCRIPTS)
def test_subscripts_that_vary(way):
    versions = run(SUBSCRIPTS[way], [(torch.randn(7, 4, 5), k) for k in (1, 3, 2)], fullgraph=True)
    assert len(versions) == 2, versions.guards
    assert run(lambda x, k: x[k], [(torch.randn(7, 4), k) for k in (1, 3, -2, 4, -7)], fullgraph=True).guards == [[], ["0 <= n0 <= 6"], ["-7 <= n0 <= -1"]]


def test_what_a_varying_subscript_shows_is_a_view():
    def f(x, k):
        row = x[k]
        row.mul_(2)
        x[k, 1:] += 1
        x[..., k] = 3
        x[k - 1] = x[k]
        return row

    for backend in ("eager", "aot_eager"):
        assert len(run(f, [(torch.randn(5, 6), k) for k in (1, 3, 2, 4)], fullgraph=True, backend=backend)) == 2


def test_a_subscript_out_of_range_is_eager_s_error():
    compiled = minipt2.compile(lambda x, k: x[k], backend="eager")
    for k in (1, 2, 3):
        compiled(torch.randn(4), k)
    with pytest.raises(IndexError):
        compiled(torch.randn(4), 4)
    with pytest.raises(IndexError):
        minipt2.compile(lambda x, k: x[k, k], backend="eager", dynamic=True)(torch.randn(4), 2)


TERMS = [lambda a, n: a, lambda a, n: n, lambda a, n: a + n, lambda a, n: 2 * a - n, lambda a, n: a * n, lambda a, n: n - 3, lambda a, n: 7, lambda a, n: 3 * n]
QUESTIONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@pytest.mark.parametrize("seed", range(8))
def test_a_version_serves_whatever_gets_the_same_answers(seed):
    """Random questions about a size and a number: one version for the first call, and one for each way the answers come out."""
    rng = random.Random(seed)
    asked = [(rng.choice(QUESTIONS), *rng.sample(TERMS, 2)) for _ in range(2)]
    answers = lambda a, n: [bool(ask(left(a, n), right(a, n))) for ask, left, right in asked]

    def f(x, n):
        for k in range(2):
            ask, left, right = asked[k]
            if ask(left(x.shape[0], n), right(x.shape[0], n)):
                x = x + 10**k
        return x * n

    points = [(a, n) for a in range(2, 8) for n in range(-2, 8)]
    rng.shuffle(points)
    versions = run(f, [(torch.randn(a), n) for a, n in points])
    assert len(versions) <= 2 + len({tuple(answers(a, n)) for a, n in points}), versions.guards
