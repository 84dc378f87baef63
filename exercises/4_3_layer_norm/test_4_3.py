import pytest
import torch
from torch.nn import functional as F

import minipt2
from minipt2.course.checks import same
from minipt2.prims.decompositions.normalization import native_layer_norm  # noqa: F401

SHAPES = [((4, 8), 1), ((2, 3, 5), 2), ((2, 3, 4, 4), 3), ((7,), 1)]


def compiled(fn, *args):
    """With the C backend: what the rule says is what is generated."""
    with torch.no_grad():
        return minipt2.compile(fn)(*args)


@pytest.mark.parametrize("shape, k", SHAPES)
def test_against_double(shape, k):
    """Result, mean and reciprocal deviation."""
    torch.manual_seed(0)
    x, w, b = torch.randn(shape), torch.randn(shape[-k:]), torch.randn(shape[-k:])
    found = compiled(lambda x, w, b: torch.native_layer_norm(x, shape[-k:], w, b, 1e-5), x, w, b)
    wanted = torch.native_layer_norm(x.double(), shape[-k:], w.double(), b.double(), 1e-5)
    same([t.double() for t in found], list(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight, bias", [(False, False), (True, False)])
def test_without_weight_or_bias(weight, bias):
    """Both are optional."""
    x, w = torch.randn(3, 6), torch.randn(6)
    fn = lambda x, w: F.layer_norm(x, (6,), w if weight else None)  # noqa: E731
    same(compiled(fn, x, w), fn(x, w), rtol=1e-4, atol=1e-5)


def test_far_from_zero():
    """An offset of ten thousand changes nothing but the mean."""
    torch.manual_seed(0)
    x = torch.randn(4, 64) + 1e4
    wanted = F.layer_norm(x.double(), (64,)).float()
    same(compiled(lambda x: F.layer_norm(x, (64,)), x), wanted, rtol=1e-2, atol=1e-2)


def test_half_precision():
    """Statistics in float32, the result rounded once: close to the truth, not to bfloat16 arithmetic."""
    torch.manual_seed(0)
    x = (torch.randn(4, 512) * 8 + 100).bfloat16()
    found, wanted = compiled(lambda x: F.layer_norm(x, (512,)), x), F.layer_norm(x.double(), (512,))
    same(str(found.dtype), "torch.bfloat16")
    same(found.double(), wanted, rtol=1e-2, atol=1e-2)


def test_dtypes_of_the_statistics():
    """As eager gives them."""
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        x = torch.randn(2, 8).to(dtype)
        fn = lambda x: torch.native_layer_norm(x, (8,), None, None, 1e-5)  # noqa: E731
        same([str(t.dtype) for t in compiled(fn, x)], [str(t.dtype) for t in fn(x)])


def test_empty():
    """No row: nothing to normalise, shapes as in eager."""
    fn = lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5)  # noqa: E731
    same([tuple(t.shape) for t in compiled(fn, torch.randn(0, 4))], [tuple(t.shape) for t in fn(torch.randn(0, 4))])


def test_its_gradient():
    """The backward uses the statistics that you return."""
    torch.manual_seed(0)
    x, w = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    wanted = torch.autograd.grad(F.layer_norm(x, (8,), w).square().sum(), (x, w))
    found = torch.autograd.grad(minipt2.compile(lambda x, w: F.layer_norm(x, (8,), w))(x, w).square().sum(), (x, w))
    same(list(found), list(wanted), rtol=1e-4, atol=1e-4)
