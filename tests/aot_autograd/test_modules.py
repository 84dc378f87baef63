"""Whole modules through ``aot_eager``: outputs, gradients, buffers and strides as eager's."""
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from minipt2 import prims
from minipt2.aot_autograd import aot_compile, aot_eager
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.config import config

from .lifting import lift


@pytest.fixture(autouse=True)
def raise_faults():
    with config.patch(raise_internal_errors=True):
        yield


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 2)
        x = F.relu(self.bn2(self.conv2(x)) + x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Attention(nn.Module):
    def __init__(self, written_out):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.written_out = written_out

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, 4, 4).transpose(1, 2) for p in self.qkv(self.norm(x)).split(16, dim=2))
        if self.written_out:
            scores = (q @ k.transpose(-2, -1)) / 2.0
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            y = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(x)


class Dropped(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 8), nn.Dropout(0.2, inplace=True), nn.Linear(8, 8))

    def forward(self, x):
        return self.net(x) + torch.rand_like(x)


CASES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), (5, 8)),
    "convnet": (ConvNet, (2, 3, 8, 8)),
    "attention": (lambda: Attention(False), (2, 6, 16)),
    "attention_written_out": (lambda: Attention(True), (2, 6, 16)),
    "dropout": (Dropped, (4, 8)),
    "lstm": (lambda: First(nn.LSTM(4, 6, batch_first=True)), (2, 5, 4)),
    "embedding": (lambda: nn.Sequential(Index(), nn.Embedding(7, 4), nn.LayerNorm(4)), (3, 5)),
}


class First(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


class Index(nn.Module):
    def forward(self, x):
        return (x.abs() * 100).long() % 7


@pytest.mark.parametrize("name, channels_last", [(name, False) for name in CASES] + [(n, True) for n in CASES if len(CASES[n][1]) == 4])
@pytest.mark.parametrize("decompose", [None, prims.expand], ids=["aten", "prims"])
def test_training(name, channels_last, decompose):
    make, shape = CASES[name]
    torch.manual_seed(0)
    module = make()
    x = torch.randn(shape)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    twin = copy.deepcopy(module)
    gm, state, _ = lift(twin)
    x1, x2 = x.clone().requires_grad_(), x.clone().requires_grad_()
    run = aot_compile(gm, [*state, x2], fw_compiler=run_eagerly, decompose=decompose)
    for step in range(2):
        torch.manual_seed(step)
        expected = module(x1)
        torch.manual_seed(step)
        (got,) = run(*state, x2)
        torch.testing.assert_close(got, expected, check_stride=True)
        weight = torch.randn_like(expected)
        (expected * weight).sum().backward()
        (got * weight).sum().backward()
    for (n, a), b in zip([*module.named_parameters(), *module.named_buffers()], state):
        torch.testing.assert_close(b, a, msg=lambda m: f"{n}: {m}")
        torch.testing.assert_close(b.grad, a.grad, check_stride=True, msg=lambda m: f"{n}.grad: {m}")
    torch.testing.assert_close(x2.grad, x1.grad)


@pytest.mark.parametrize("name", ["mlp", "convnet", "attention"])
def test_inference(name):
    make, shape = CASES[name]
    module = make().eval()
    gm, state, _ = lift(module)
    x = torch.randn(shape)
    with torch.no_grad():
        run = aot_eager(gm, [*state, x])
        torch.testing.assert_close(run(*state, x)[0], module(x), check_stride=True)
    with torch.inference_mode():
        run = aot_eager(gm, [*state, x])
        torch.testing.assert_close(run(*state, x)[0], module(x), check_stride=True)


@pytest.mark.parametrize("inside", [False, True])
def test_autocast(inside):
    module = Attention(True)
    forward = module.forward
    if inside:
        def with_autocast(x):
            with torch.autocast("cpu", torch.bfloat16):
                return forward(x)
        module.forward = with_autocast
    gm, state, _ = lift(module)
    x = torch.randn(2, 6, 16)
    with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
        run = aot_eager(gm, [*state, x])
        expected, (got,) = module(x), run(*state, x)
        assert got.dtype == expected.dtype
    torch.testing.assert_close(got, expected)
    wanted = torch.autograd.grad(expected.float().square().sum(), list(module.parameters()))
    found = torch.autograd.grad(got.float().square().sum(), state)
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)
