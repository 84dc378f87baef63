import itertools
import math

import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.course.programs import generated
from minipt2.inductor.codegen.c_openmp_ops import literal

ODD = [0.0, -0.0, 1.0, -1.0, 2.5, math.inf, -math.inf, math.nan, 1e-40, 3e38]


def compiled(fn, *args):
    """With the C backend."""
    with torch.no_grad():
        return minipt2.compile(fn)(*args)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_maximum(dtype):
    """All pairs of odd numbers, NaN on either side."""
    x, y = (torch.tensor(v, dtype=dtype) for v in zip(*itertools.product(ODD, ODD)))
    same(compiled(torch.maximum, x, y), torch.maximum(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_relu(dtype):
    """NaN stays NaN, -inf becomes 0."""
    x = torch.tensor(ODD).to(dtype)
    same(compiled(torch.relu, x), torch.relu(x))


CASTS = [torch.bool, torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16])
def test_casts(source):
    """From each to each, for values that both hold."""
    x = torch.tensor([0, 1, 2, 100, 0.5, 1.75, 3]).to(source)
    found = compiled(lambda x: [x.to(t) for t in CASTS], x)
    same(list(found), [x.to(t) for t in CASTS])


def test_literals():
    """Numbers in the text of a kernel."""
    same(literal(True, torch.bool), "1")
    same(literal(3, torch.int32), "3")
    same(literal(-(2 ** 63), torch.int64).replace(" ", ""), "(-9223372036854775807LL-1)")
    same(literal(0.5, torch.float32), "0.5f")
    same(literal(0.5, torch.float64), "0.5")
    same(literal(0.1, torch.float32), repr(torch.tensor(0.1).item()) + "f")
    same(literal(0.1, torch.bfloat16), literal(0.1, torch.float32))
    same(literal(math.inf, torch.float32), "__builtin_inff()")
    assert "nan" in literal(math.nan, torch.float64) and literal(-math.inf, torch.float64).startswith("-")


def test_constants_in_kernels():
    """Odd constants, compiled."""
    x = torch.ones(4)

    def fn(x):
        return x + 0.1, x * float("inf"), torch.full_like(x, float("nan")), torch.where(x > 0, -float("inf"), x), x.double() + 0.1
    same(list(compiled(fn, x)), list(fn(x)))


def test_no_fmax_in_the_text():
    """gcc leaves it scalar."""
    x = torch.randn(64)
    (text,) = generated(lambda: compiled(lambda x: torch.relu(torch.maximum(x, x * 2)), x), ".c")
    kernels = text[text.rindex("#define") if "#define" in text else 0:]
    assert "fmax" not in kernels, kernels
