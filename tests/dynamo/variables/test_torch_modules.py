"""Modules of torch.nn and torch.nn.utils that do more than call functions; autograd.Function; checkpoint; buffers replaced."""
from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from minipt2.dynamo import optimize
from minipt2.errors import Unsupported

from .checking import Recorder

X = torch.arange(24.0).reshape(2, 4, 3) / 10

MODULES = {
    "lstm": lambda: nn.LSTM(3, 5, num_layers=2, batch_first=True, bidirectional=True),
    "gru": lambda: nn.GRU(3, 5),
    "rnn_cell": lambda: nn.Sequential(nn.Flatten(0, 1), nn.GRUCell(3, 4)),
    "attention": lambda: SelfAttention(),
    "encoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(3, 1, 8, dropout=0.0, batch_first=True), 2),
    "weight_norm": lambda: torch.nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
    "old_weight_norm": lambda: torch.nn.utils.weight_norm(nn.Linear(3, 3)),
    "spectral_norm": lambda: torch.nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)),
    "conv_norms": lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.GroupNorm(2, 4), nn.InstanceNorm1d(4), nn.PReLU(), nn.Upsample(scale_factor=2)),
    "embedding": lambda: nn.Sequential(Long(), nn.Embedding(10, 4, padding_idx=0), nn.LocalResponseNorm(2)),
    "ema": lambda: Ema(),
    "checkpointed": lambda: Checkpointed(),
    "made_inside": lambda: MadeInside(),
    "shared": lambda: Shared(),
}


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(3, 1, batch_first=True)

    def forward(self, x):
        mask = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)
        out, weights = self.attn(x, x, x, attn_mask=mask, need_weights=True)
        return out, weights


class Long(nn.Module):
    def forward(self, x):
        return x.long()


class Ema(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))
        self.steps = 0

    def forward(self, x):
        self.mean = self.mean * 0.9 + x.detach().mean((0, 1)) * 0.1
        self.steps += 1
        return x - self.mean, self.mean + self.steps


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(self.lin, x, use_reentrant=False).relu()


class MadeInside(nn.Module):
    def forward(self, x):
        loss = nn.MSELoss(reduction="sum")
        act = nn.LeakyReLU(0.2)
        return loss(act(x), torch.zeros_like(x)), act.negative_slope


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3, bias=False)
        self.b = nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight
        self.again = self.a

    def forward(self, x):
        return self.b(self.again(self.a(x)))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_module(name):
    torch.manual_seed(0)
    module = MODULES[name]().train()
    torch.manual_seed(0)
    twin = MODULES[name]().train()
    recorder = Recorder()
    compiled = optimize(module, recorder, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), twin(X))
    for (key, a), b in zip(module.state_dict().items(), twin.state_dict().values()):
        torch.testing.assert_close(a, b, msg=key)
    module.eval(), twin.eval()
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), twin(X))


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.k = k
        return (x > 0).to(x.dtype) * k

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


STATE = [1.0]


class Impure(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * STATE[0]

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_autograd_function():
    x = X.clone().requires_grad_()
    recorder = Recorder()
    out = optimize(lambda x: Straight.apply(x - 1, 3.0) * 2, recorder, fullgraph=True)(x)
    out.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 6.0)) and len(recorder.graphs) == 1
    with pytest.raises(Unsupported) as caught:
        optimize(lambda x: Impure.apply(x), Recorder(), fullgraph=True)(x)
    assert caught.value.code == "MP314"


class Written(nn.Module):
    """Writes a buffer, then looks for it by every way that leads to it."""

    def __init__(self, look):
        super().__init__()
        self.register_buffer("state", torch.ones(3))
        self.inner, self.look = nn.Linear(3, 3), look

    def forward(self, x):
        self.state = self.state + 1
        return x + self.look(self)


LOOKS = {
    "attribute": lambda m: m.state, "getattr": lambda m: getattr(m, "state"), "table": lambda m: m._buffers["state"],
    "named_buffers": lambda m: sum(b * len(k) for k, b in m.named_buffers()), "in_values": lambda m: sum(v.sum() for v in m._buffers.values()),
    "number_of_attributes": lambda m: len(m.__dict__) + len(vars(m)), "in_dict": lambda m: ("state" in m.__dict__) + ("state" in m._buffers) * 2,
    "written_to_the_table": lambda m: m._buffers.update(state=m.state * 3) or m.state, "deleted": lambda m: delattr(m, "state") or hasattr(m, "state"),
    "module_becomes_none": lambda m: setattr(m, "inner", None) or (m.inner is None) + len(list(m.children())) * 2 + len(m.__dict__),
    "buffer_becomes_none": lambda m: setattr(m, "state", None) or (m.state is None) + len(list(m.buffers())) * 2,
}  # fmt: skip


@pytest.mark.parametrize("look", LOOKS)
def test_a_buffer_that_was_written_is_found_by_every_way(look):
    plain, traced = Written(LOOKS[look]), Written(LOOKS[look])
    traced.load_state_dict(plain.state_dict())
    x = torch.arange(3.0)
    assert torch.equal(optimize(traced, Recorder(), fullgraph=True)(x), plain(x))
    assert [*traced._buffers] == [*plain._buffers] and [*vars(traced)] == [*vars(plain)]
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(traced._buffers.values(), plain._buffers.values()))
