import math

import pytest
import torch

from minipt2 import prims as p

from ..programs import check, loops


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "amin"])
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_reductions(name, dims):
    fn = getattr(p, name)
    for keepdim in (False, True):
        check(lambda x: fn(x, dims, keepdim), torch.randn(3, 4, 5))
        check(lambda x: fn(x, dims, keepdim), torch.randint(-3, 4, (3, 1, 5)))
    check(lambda x: fn(p.exp(x), dims), torch.randn(3, 4, 5).to(torch.bfloat16))
    check(lambda x: fn(x, dims), torch.randn(5, 4, 3).permute(2, 1, 0))


def test_nan_and_empty():
    check(lambda x: (p.amax(x, (1,)), p.amin(x, (1,))), torch.tensor([[1.0, math.nan], [2.0, -math.inf]]))
    check(lambda x: (p.sum(x, (1,)), p.prod(x, (1,))), torch.randn(3, 0))
    check(lambda x: p.sum(x, (1,)), torch.randn(0, 3))
    check(lambda x: p.sum(x, ()), torch.tensor(3.0))


@pytest.mark.parametrize("name", ["any", "all"])
def test_bool(name):
    check(lambda x: getattr(p, name)(p.gt(x, 0.0), (1,)), torch.randn(6, 2))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name):
    fn = getattr(p, name)
    x = torch.tensor([[1.0, 3.0, 3.0], [math.nan, 0.0, math.nan], [-1.0, -1.0, -1.0]])
    for dim in (0, 1, None):
        check(lambda x: fn(x, dim, False), x)
    check(lambda x: fn(x, 1, True), torch.randint(0, 3, (4, 6)))
    check(lambda x: fn(x, 1, True), torch.randn(4, 1))


@pytest.mark.parametrize("shape,dims", [((3, 8), (1,)), ((2, 3, 4, 5), (0, 2, 3)), ((4, 1), (1,))])
def test_var_mean(shape, dims):
    for correction in (0, 1):
        check(lambda x: p.var_mean(x, dims, correction, True), torch.randn(shape) + 100)
    program = check(lambda x: p.var_mean(p.mul(x, 2.0), dims, 0, False)[1], torch.randn(shape))
    assert len(loops(program)) == 1


def test_statistics_of_channels_last():
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: p.var_mean(x, (0, 2, 3), 0, False), image)


def test_softmax_and_layer_norm():
    def softmax(x):
        wide = lambda v: p.broadcast_in_dim(v, x.shape, (0, 1))
        e = p.exp(p.sub(x, wide(p.amax(x, (1,), True))))
        return p.div(e, wide(p.sum(e, (1,), True)))

    def layer_norm(x, w):
        var, mean = p.var_mean(x, (1,), 0, True)
        wide = lambda v: p.broadcast_in_dim(v, x.shape, (0, 1))
        normed = p.mul(p.sub(x, wide(mean)), wide(p.rsqrt(p.add(var, 1e-5))))
        return p.mul(normed, p.broadcast_in_dim(w, x.shape, (1,))), mean
    check(softmax, torch.randn(6, 7))
    check(layer_norm, torch.randn(6, 7), torch.randn(7))


def test_cumsum_is_a_library_call():
    check(lambda x: p.mul(p.cumsum(p.exp(x), 1), 2.0), torch.randn(3, 4))
