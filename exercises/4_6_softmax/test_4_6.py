import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.prims.decompositions.softmax import softmax  # noqa: F401


def compiled(fn, *args):
    with torch.no_grad():
        return minipt2.compile(fn)(*args)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_against_double(dim):
    """Over any dimension."""
    x = torch.randn(3, 5, 4)
    same(compiled(lambda x: x.softmax(dim), x), x.double().softmax(dim).float(), rtol=1e-5, atol=1e-6)


def test_large_numbers():
    """What overflows is shifted away."""
    x = torch.tensor([[100.0, 101.0, -1e4], [1e4, 1e4, 1e4]])
    same(compiled(lambda x: x.softmax(-1), x), x.double().softmax(-1).float(), rtol=1e-5, atol=1e-6)


def test_masked_rows():
    """-inf is nothing; a row of it is NaN, as in eager."""
    x = torch.randn(3, 4)
    x[0, 1:3] = x[1] = float("-inf")
    same(compiled(lambda x: x.softmax(-1), x), x.softmax(-1), rtol=1e-5, atol=1e-6)


def test_half_precision():
    """Two thousand small terms: in bfloat16 their sum would stop growing."""
    x = torch.zeros(2, 2048).bfloat16()
    found = compiled(lambda x: x.softmax(-1), x)
    same(str(found.dtype), "torch.bfloat16")
    same(found.float(), torch.full((2, 2048), 1 / 2048), rtol=1e-2, atol=1e-5)


def test_the_dtype_asked_for():
    """dtype= converts first."""
    x = torch.randn(2, 3)
    found = compiled(lambda x: torch.softmax(x, 1, dtype=torch.float64), x)
    same(found, torch.softmax(x, 1, dtype=torch.float64))
    half = x.bfloat16()
    same(compiled(lambda x: torch.softmax(x, 1, dtype=torch.float32), half), torch.softmax(half, 1, dtype=torch.float32), rtol=1e-5, atol=1e-6)


def test_empty():
    """No element."""
    same(tuple(compiled(lambda x: x.softmax(-1), torch.randn(0, 3)).shape), (0, 3))
