import gc
import weakref

import pytest
import torch
from torch import nn

import minipt2
from minipt2.inductor.passes import Frozen, fold_conv_bn, split_static
from minipt2.inductor.passes.samples import Samples

from .graphs import inference_graph, targets


class Scaled(nn.Module):
    """Depends on parameters alone: ``a * b`` and its sum. Repeats elements only: its broadcast."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))

    def forward(self, x):
        return x * (self.a * self.b) + x.sum()


def test_split_computes_the_same():
    gm, args = inference_graph(Scaled(), torch.randn(100, 4))
    prologue, main = split_static(gm)
    with torch.no_grad():
        frozen = prologue(*[args[i] for i in prologue.meta["positions"]])
        got = main(*[args[i] for i in main.meta["positions"]], *frozen)
        torch.testing.assert_close(got[0], gm(*args)[0])
    assert [t.shape for t in frozen] == [(4,)]  # the product, not its 100 copies
    assert main.meta["positions"] == [2]
    assert targets(prologue) == {"mul": 1}


def test_nothing_to_do():
    gm, _ = inference_graph(nn.ReLU(), torch.randn(3))
    assert split_static(gm) is None


def test_what_is_written_is_not_kept():
    """An optimizer's parameters are others at each call: what depends on them would be computed anew each time, beside the graph."""
    gm, _ = inference_graph(Scaled(), torch.randn(100, 4))
    gm.meta["mutated_inputs"] = {0: 0}
    assert split_static(gm) is None


class Quantised(nn.Module):
    """A linear layer that keeps its weight as bytes."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (size, size), dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(size) / size, requires_grad=False)

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale[:, None])


def test_a_large_weight_of_bytes_stays_bytes(fresh):
    """Small ones are dequantised once; a large one would take four times the memory that its owner meant to save."""
    gm, _ = inference_graph(Quantised(64), torch.randn(20, 64))
    prologue, _ = split_static(gm)
    assert targets(prologue)["mul"] == 1
    model, x = Quantised(600), torch.randn(20, 600)
    gm, _ = inference_graph(model, x)
    split = split_static(gm)
    assert split is None or "mul" not in targets(split[0])
    compiled = minipt2.compile(model)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        model.weight.copy_(-model.weight)
        torch.testing.assert_close(compiled(x), model(x))


def test_what_a_weight_of_bytes_is_calculated_to_is_kept(fresh):
    """A product of two factors, an orthogonal basis: not the same numbers wider, and dear at each call."""
    class Factors(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.randint(-9, 9, (600, 640), dtype=torch.int8))
            self.register_buffer("b", torch.randint(-9, 9, (640, 600), dtype=torch.int8))

        def forward(self, x):
            return x @ (self.a.float() @ self.b.float()) @ torch.linalg.qr(self.b.float())[0].t()
    model, x = Factors(), torch.randn(20, 600)
    gm, _ = inference_graph(model, x)
    prologue, main = split_static(gm)
    assert targets(prologue)["mm"] == 1 and not any("qr" in t for t in targets(main))
    compiled = minipt2.compile(model)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), model(x), rtol=1e-3, atol=1e-1)
            model.a.neg_()


def test_random_numbers_are_not_kept():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.randn(8))

        def forward(self, x):
            return x + torch.bernoulli(self.a.sigmoid())
    gm, _ = inference_graph(Noisy(), torch.randn(8))
    prologue, main = split_static(gm)
    assert not any("bernoulli" in t for t in targets(prologue))


@pytest.fixture
def frozen():
    calls = []

    def compute(tensors):
        calls.append(1)
        return [sum(tensors)]
    made = Frozen(compute)
    made.calls = calls
    return made


def test_computed_once(frozen):
    a, b = torch.ones(100), torch.ones(100)
    first = frozen((a, b))
    assert frozen((a, b)) is first and len(frozen.calls) == 1


def change_in_place(t):
    with torch.no_grad():
        t.add_(1)


def change_data(t):
    t.data.add_(1)


def change_numpy(t):
    t.detach().numpy()[...] = 7


def replace_data(t):
    t.data = torch.full_like(t, 3)


@pytest.mark.parametrize("change", [change_in_place, change_data, change_numpy, replace_data])
@pytest.mark.parametrize("which", [0, 1])
def test_a_change_is_noticed(frozen, change, which):
    tensors = (nn.Parameter(torch.randn(50)), torch.randn(50))
    frozen(tensors)
    change(tensors[which])
    torch.testing.assert_close(frozen(tensors)[0].detach(), sum(t.detach() for t in tensors))


def test_two_sets_live_side_by_side(frozen):
    one, two = (torch.ones(3),), (torch.zeros(3),)
    for _ in range(3):
        assert frozen(one)[0].sum() == 3 and frozen(two)[0].sum() == 0
    assert len(frozen.calls) == 2


def test_a_dead_set_goes():
    frozen = Frozen(lambda tensors: [tensors[0] + 1])
    t = torch.ones(3)
    kept = weakref.ref(frozen((t,))[0])
    del t
    gc.collect()
    assert not frozen.sets and kept() is None


def test_inference_tensors(frozen):
    with torch.inference_mode():
        t = torch.ones(3)
        frozen((t,))
        t.add_(1)
        assert frozen((t,))[0].sum() == 6


@pytest.mark.parametrize("make", [lambda: torch.zeros(0), lambda: torch.zeros(1, dtype=torch.bool), lambda: torch.zeros(3, dtype=torch.int8),
                                  lambda: torch.zeros(4, 4).t(), lambda: torch.zeros(2).expand(5, 2), lambda: torch.zeros(1001)])
def test_samples_of_any_tensor(make):
    t = make()
    samples = Samples([t])
    assert samples.same()
    if t.numel():
        t.untyped_storage().fill_(1)
        assert not samples.same()


def test_folded_batch_norm_freezes_whole():
    m = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    gm, _ = inference_graph(m, torch.randn(1, 3, 5, 5))
    fold_conv_bn(gm)
    _, main = split_static(gm)
    assert targets(main) == {"convolution": 1}
