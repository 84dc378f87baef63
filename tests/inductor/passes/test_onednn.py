import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minipt2
from minipt2.config import config
from minipt2.inductor.autotune import cpu
from minipt2.inductor.passes import choose_layouts, fuse_convolutions, onednn
from minipt2.trace import subscribe

from .graphs import inference_graph, run, targets

pytestmark = pytest.mark.skipif(not onednn.available(), reason="torch without oneDNN")


class Conv(nn.Module):
    def __init__(self, after, **kw):
        super().__init__()
        self.conv, self.after = nn.Conv2d(8, 8, 3, padding=1, **kw), after

    def forward(self, x, *others):
        return self.after(self.conv(x), *others)


def fused(module, *inputs, count=1):
    gm, args = inference_graph(module, *inputs)
    before = run(gm, args)
    choose_layouts(gm)
    assert fuse_convolutions(gm) == count
    torch.testing.assert_close(run(gm, args), before, rtol=1e-5, atol=1e-5)
    return gm, targets(gm)


JOINED = [torch.sigmoid, torch.tanh, F.hardswish, F.silu, F.gelu, F.leaky_relu, lambda x: F.leaky_relu(x, 0.3), lambda x: x * torch.sigmoid(x)]
LOOPS = [torch.relu, F.relu6, F.hardsigmoid, lambda x: x.clamp(-1, 2), F.elu, F.softplus, F.mish, lambda x: F.gelu(x, approximate="tanh"), F.logsigmoid]


@pytest.mark.parametrize("activation", JOINED)
def test_activation_joins_the_convolution(activation):
    _, seen = fused(Conv(activation), torch.randn(2, 8, 6, 6) * 3)
    assert seen["_convolution_pointwise"] == 1
    assert not {"relu", "exp", "erf", "minimum", "maximum", "where", "sigmoid", "tanh", "mul", "div"} & set(seen)


@pytest.mark.parametrize("activation", [torch.relu, F.relu6, F.hardsigmoid, lambda x: x.clamp(-1, 2)])
def test_what_onednn_makes_numbers_of_stays_a_loop(activation):
    _, seen = fused(Conv(activation), torch.randn(2, 8, 6, 6) * 3)
    assert seen["_convolution_pointwise"] == 1 and {"relu", "maximum"} & set(seen)


@pytest.mark.parametrize("groups", [1, 8])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_special_values_come_out_as_in_eager(groups, residual, packed, monkeypatch):
    """NaN and infinities of a convolution's input, behind every activation; ``packed``: where the convolution may be a packed product.
    Or as in double: eager's gelu of an infinite float is NaN where it runs on AVX-512."""
    monkeypatch.setattr(cpu, "worth_packing", lambda problem: packed)
    for activation in JOINED + LOOPS:
        conv = Conv(lambda y, r: activation(y + r if residual else y), groups=groups).eval()
        x, r = torch.randn(2, 2, 8, 7, 9).unbind()
        x[0, :, 1, 1], x[0, :, 5, 5], x[1, :, 1, 1], r[1, :, 6, 6] = float("nan"), float("inf"), -float("inf"), float("nan")
        with torch.no_grad():
            found, expected = minipt2.compile(conv)(x, r), conv(x, r)
            exact = conv.double()(x.double(), r.double()).float()
        close = [torch.isclose(found, e, equal_nan=True, rtol=1e-5, atol=1e-5) for e in (expected, exact)]
        assert (close[0] | close[1]).all(), activation


@pytest.mark.parametrize("settings", [dict(groups=8), dict(groups=2), dict(stride=2), dict(dilation=2), dict(bias=False)])
def test_geometry(settings):
    fused(Conv(torch.relu, **settings), torch.randn(2, 8, 9, 9))


def test_residual_joins_the_convolution():
    x = torch.randn(2, 8, 6, 6)
    gm, seen = fused(Conv(lambda y, r: F.max_pool2d(y + r, 2)), x, torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last))
    assert seen["_convolution_pointwise"] == 1 and "add" not in seen


def test_residual_and_relu_are_one_loop():
    """It reads both: a sum within the convolution would save nothing."""
    x = torch.randn(2, 8, 6, 6)
    gm, seen = fused(Conv(lambda y, r: torch.relu(y + r)), x, torch.randn(2, 8, 6, 6).to(memory_format=torch.channels_last))
    assert seen["_convolution_pointwise"] == 1 and seen["add"] == seen["relu"] == 1


def test_residual_that_broadcasts_stays_a_loop():
    _, seen = fused(Conv(lambda y, r: torch.relu(y + r)), torch.randn(2, 8, 6, 6), torch.randn(8, 1, 1))
    assert seen["add"] == 1


def test_inner_result_read_elsewhere_is_not_swallowed():
    _, seen = fused(Conv(lambda y: (F.hardswish(y), y * 2)), torch.randn(2, 8, 6, 6))
    assert seen["maximum"] == 1


def test_two_convolutions_added():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 4, 3, padding=1)

        def forward(self, x):
            return F.max_pool2d(self.a(x) + self.b(x), 2)
    _, seen = fused(Two(), torch.randn(2, 8, 6, 6), count=2)
    assert "add" not in seen


def test_weight_that_is_no_parameter_is_left_alone():
    class Functional(nn.Module):
        def forward(self, x, w):
            return torch.relu(F.conv2d(x, w))
    fused(Functional(), torch.randn(2, 8, 6, 6), torch.randn(4, 8, 3, 3), count=0)


@pytest.mark.parametrize("sizes, packed", [([(2, 8, 16, 16), (3, 8, 16, 16)], True), ([(2, 8, 16, 16), (2, 8, 20, 20)], False)])
def test_weights_are_packed_for_images_of_one_size(sizes, packed):
    """For others oneDNN would put them into another order at each call, which takes longer than the convolution."""
    conv, seen = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU()).eval(), []
    with config.patch(packed_products=False), torch.no_grad():
        compiled = minipt2.compile(conv)
        unsubscribe = subscribe(lambda stage, name, recipe: seen.append(recipe), "recipe")
        for size in sizes:
            x = torch.randn(size)
            torch.testing.assert_close(compiled(x), conv(x))
        unsubscribe()
    prologue = seen[-1].prologue
    found = [n for n in prologue.graph.nodes if "reorder_convolution" in str(n.target)] if prologue is not None else []
    assert len(seen) == 2 and bool(found) == packed


def test_a_stride_that_varies():
    """A module's attribute that changed is a symbol from then on: weights cannot be packed ahead for it."""
    conv = nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU()).eval()
    compiled, x = minipt2.compile(conv), torch.randn(2, 8, 16, 16)
    with config.patch(packed_products=False, raise_internal_errors=True), torch.no_grad():
        for stride in ((1, 1), (2, 2), (3, 1)):
            conv[0].stride = stride
            torch.testing.assert_close(compiled(x), conv(x))
