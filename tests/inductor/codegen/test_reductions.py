"""Reductions along rows, columns and everything, split over threads or not, against eager."""
import pytest
import torch

from minipt2 import prims as P
from tests.inductor.execute import check

KINDS = ["sum", "prod", "amax", "amin", "any", "all"]
SHAPES = [((33, 70), [1]), ((33, 70), [0]), ((70,), [0]), ((5, 40, 17), [1]), ((5, 40, 17), [0, 2]), ((600, 3), [1]), ((3000, 24), [0]),
          ((2, 70000), [1]), ((130000,), [0]), ((40000, 6), [0])]


def values(shape, dtype=torch.float32):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + 0.5
    return (x * 10).to(dtype) if not dtype.is_floating_point and dtype is not torch.bool else (x > 0 if dtype is torch.bool else x.to(dtype))


@pytest.mark.parametrize("shape,dims", SHAPES, ids=str)
def test_all_kinds(shape, dims):
    x = values(shape)
    near_one = (x - x.mean()) * 1e-3 + 1
    check(lambda a, b, c: (P.sum(a, dims), P.amax(a, dims), P.amin(a, dims), P.prod(b, dims), P.any(c, dims), P.all(c, dims)),
          x, near_one, x > -2, rtol=2e-5)


@pytest.mark.parametrize("shape,dims", SHAPES, ids=str)
def test_statistics(shape, dims):
    """Mean and variance, also far from zero, where E[x^2] - E[x]^2 would fail."""
    x = values(shape)
    check(lambda a: P.var_mean(a, dims, 1.0, True), x, rtol=1e-4)
    far = x + 1e4
    exact = torch.var_mean(far.double(), dims, correction=0)
    s, source = check(lambda a: P.var_mean(a.double(), dims, 0.0, False) if isinstance(a, torch.Tensor) else P.var_mean(a, dims, 0.0, False),
                      far.double(), rtol=1e-9)
    assert exact[0].shape == (s.program.outputs[0].ref.layout or s.layouts[s.program.outputs[0].ref.buffer]).sizes


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_dtypes(dtype):
    x = values((37, 65), dtype)
    if dtype is torch.bool:
        check(lambda a: (P.any(a, [1]), P.all(a, [0]), P.any(a, [0, 1])), x)
    else:
        check(lambda a: (P.amax(a, [1]), P.amin(a, [0]), P.amax(a, [0, 1]), P.sum(a, [1])), x)


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("case", ["plain", "ties", "nan", "inf", "int"])
def test_argmax(dim, case):
    x = values((45, 68))
    if case == "ties":
        x = x.round()
    if case == "nan":
        x[3, 5] = x[3, 9] = x[17, 0] = x[44, 67] = float("nan")
    if case == "inf":
        x[2] = float("-inf")
    if case == "int":
        x = x.to(torch.int64)
    check(lambda a: (P.argmax(a, dim, False), P.argmin(a, dim, False)), x)


def test_nan_reaches_the_maximum():
    for place in (0, 7, 63, 64, 66):
        x = values((3, 67))
        x[1, place] = float("nan")
        check(lambda a: (P.amax(a, [1]), P.amin(a, [1]), P.amax(a, [0]), P.amax(a, [0, 1])), x)


def test_all_negative_and_infinite_rows():
    x = -values((4, 50)).abs() - 1
    x[2] = float("-inf")
    check(lambda a: (P.amax(a, [1]), P.amax(a, [0])), x)


def test_long_sums_lose_no_digits():
    """No worse than three times eager's own error against float64."""
    x = torch.rand(1 << 20)
    for shape, dims in (((1 << 20,), [0]), ((16, 1 << 16), [1]), ((1 << 16, 16), [0]), ((1 << 14, 64), [0])):
        y = x.reshape(shape)
        s, _ = check(lambda a: P.sum(a, dims), y, rtol=1e-6)


def test_empty():
    x = torch.zeros(4, 0)
    check(lambda a: (P.sum(a, [1]), P.prod(a, [1]), P.any(P.ne(a, 0.0), [1]), P.sum(a, [0])), x)
