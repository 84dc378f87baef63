import pytest
import torch

import minipt2
from minipt2.config import config
from minipt2.course.checks import same


def interpreted(fn, *args):
    """Triton's interpreter runs the generated kernels, no GPU needed."""
    with torch.no_grad(), config.patch(triton_interpret=True):
        return minipt2.compile(fn)(*args)


@pytest.mark.parametrize("n", [20, 33])
def test_ragged_rows(n):
    """Rows that fill no whole block."""
    x = torch.randn(3, n)
    fn = lambda x: (x.sum(1), x.amax(1), (x + 5).amin(1))  # noqa: E731
    same(list(interpreted(fn, x)), list(fn(x)), rtol=1e-4, atol=1e-4)


def test_negative_rows():
    """All below zero: a stray 0 would win."""
    x = -torch.rand(3, 21) - 1
    fn = lambda x: (x.amax(1), (-x).amin(1))  # noqa: E731
    same(list(interpreted(fn, x)), list(fn(x)))


def test_nan():
    """One NaN in a row makes its maximum NaN, and no other row's."""
    x = torch.randn(3, 19)
    x[1, 7] = float("nan")
    fn = lambda x: (x.amax(1), x.amin(1))  # noqa: E731
    same(list(interpreted(fn, x)), list(fn(x)))


def test_truth_values_and_integers():
    """any, all, products, integer maxima."""
    k = torch.randint(-4, 4, (3, 18))
    fn = lambda k: ((k > 2).any(1), (k > -9).all(1), k.amax(1), k.sum(1))  # noqa: E731
    same(list(interpreted(fn, k)), list(fn(k)))


def test_softmax_and_norm():
    """The whole compiler on your text, for the other target."""
    x = torch.randn(3, 37) - 4
    fn = lambda x: (x.softmax(-1), torch.nn.functional.layer_norm(x, (37,)))  # noqa: E731
    same(list(interpreted(fn, x)), list(fn(x)), rtol=1e-4, atol=1e-4)
