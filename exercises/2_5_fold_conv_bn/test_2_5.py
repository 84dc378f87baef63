import re

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import trace
from minipt2.course.checks import same
from minipt2.inductor.passes import bn_fold  # noqa: F401


def settled(*channels):
    """Convolutions each with a batch norm whose statistics are not those of a new one."""
    torch.manual_seed(0)
    layers = []
    for a, b in zip(channels, channels[1:]):
        layers += [nn.Conv2d(a, b, 3, bias=b % 2 == 0), nn.BatchNorm2d(b)]
    net = nn.Sequential(*layers)
    with torch.no_grad():
        for layer in net[1::2]:
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2)
            layer.weight.normal_()
            layer.bias.normal_()
    return net.eval()


def compiled_close(net, x, **options):
    with torch.no_grad():
        same(minipt2.compile(net, **options)(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", [(3, 4), (3, 5, 4)])
def test_inference_equals_eager(channels):
    """With and without a bias of the convolution."""
    compiled_close(settled(*channels), torch.randn(2, 3, 8, 8))


def test_a_second_reader_keeps_the_convolution():
    """Its result is wanted as it is, too."""
    conv, norm = settled(3, 4)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = conv, norm

        def forward(self, x):
            y = self.conv(x)
            return self.norm(y) + y.relu()
    texts = []
    stop = trace.subscribe(lambda stage, name, text: texts.append(text) if name.endswith(".py") else None, "code")
    try:
        compiled_close(Both().eval(), torch.randn(2, 3, 6, 6), options={"packed_products": False})  # so that it is a call in the text
    finally:
        stop()
    calls = re.findall(r"^ .*= .*convolution\w*\(", texts[0], re.M)
    same(len(calls), 1, where="convolutions in the generated code")


def test_any_affine_chain():
    """Not only batch norm: 2 - (y * scale + 1) / 3."""
    class Chain(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.scale = nn.Parameter(torch.randn(4, 1, 1))

        def forward(self, x):
            return 2 - (self.conv(x) * self.scale + 1) / 3
    compiled_close(Chain().eval(), torch.randn(1, 3, 5, 5))


def test_a_changed_weight_is_folded_again():
    """In place, as an optimizer or load_state_dict does it."""
    net, x = settled(3, 4), torch.randn(1, 3, 6, 6)
    compiled = minipt2.compile(net)
    with torch.no_grad():
        compiled(x)
        net[1].weight.mul_(3)
        net[1].running_mean.add_(1)
        same(compiled(x), net(x), rtol=1e-4, atol=1e-4)


def test_training_is_left_alone():
    """There the statistics are those of the batch."""
    net, x = settled(3, 4).train(), torch.randn(4, 3, 6, 6)
    same(minipt2.compile(net)(x), net(x), rtol=1e-4, atol=1e-4)
    inference(net)


def inference(net):
    """Every test asks the pass once."""
    compiled_close(net.eval(), torch.randn(1, 3, 6, 6))
