import pytest
import torch
from torch import nn

from minipt2.inductor.passes import fold_conv_bn

from .graphs import inference_graph, run, targets


def batch_norm(channels, **kw):
    bn = nn.BatchNorm2d(channels, **kw)
    bn.running_mean.normal_()
    bn.running_var.uniform_(0.2, 2)
    if bn.affine:
        nn.init.normal_(bn.weight)
        nn.init.normal_(bn.bias)
    return bn


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [1e-5, 0.3])
def test_pair_becomes_one_convolution(bias, affine, eps):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv2d(3, 8, 3, bias=bias), batch_norm(8, affine=affine, eps=eps)).eval()
    gm, args = inference_graph(m, torch.randn(2, 3, 9, 9))
    before = run(gm, args)
    assert fold_conv_bn(gm) == 1
    torch.testing.assert_close(run(gm, args), before, rtol=1e-5, atol=1e-5)
    conv = next(n for n in gm.graph.nodes if getattr(n.target, "name", "") == "convolution")
    assert all(user.op == "output" for user in conv.users)


def test_grouped_and_chained():
    m = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), batch_norm(8), nn.Conv2d(8, 6, 1), batch_norm(6)).eval()
    gm, args = inference_graph(m, torch.randn(2, 4, 7, 7))
    before = run(gm, args)
    assert fold_conv_bn(gm) == 2
    torch.testing.assert_close(run(gm, args), before, rtol=1e-5, atol=1e-5)


class TwoReaders(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 1), batch_norm(4)

    def forward(self, x):
        y = self.conv(x)
        return self.bn(y) + y


def test_convolution_read_twice_is_left_alone():
    gm, _ = inference_graph(TwoReaders().eval(), torch.randn(1, 3, 4, 4))
    assert fold_conv_bn(gm) == 0


class DynamicScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x, scale):
        return self.conv(x) * scale.view(1, 4, 1, 1)


def test_scale_that_is_no_parameter_is_left_alone():
    gm, _ = inference_graph(DynamicScale(), torch.randn(1, 3, 4, 4), torch.randn(4))
    assert fold_conv_bn(gm) == 0


class Arithmetic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)
        self.shift = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return (self.shift - self.conv(x)) * 2 - 3


def test_any_affine_chain_folds():
    gm, args = inference_graph(Arithmetic(), torch.randn(1, 3, 4, 4))
    before = run(gm, args)
    assert fold_conv_bn(gm) == 1
    torch.testing.assert_close(run(gm, args), before, rtol=1e-5, atol=1e-5)


def test_bfloat16_keeps_eagers_rounding():
    m = nn.Sequential(nn.Conv2d(3, 8, 3), batch_norm(8)).eval().bfloat16()
    gm, _ = inference_graph(m, torch.randn(2, 3, 9, 9, dtype=torch.bfloat16))
    assert fold_conv_bn(gm) == 0
    assert targets(gm)["convolution"] == 1
