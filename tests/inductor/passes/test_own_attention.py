"""Which calls of ATen's attention become ours, and that models compute the same with them."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minipt2
from minipt2.inductor import attention as functions
from minipt2.inductor.autotune import own_attention as race
from minipt2.inductor.passes import replace_attention
from minipt2.inductor.passes.own_attention import BACKWARD, FORWARD, Heads

from ..attention import graph_of, heads

pytestmark = [pytest.mark.usefixtures("fresh")]


@pytest.fixture
def always(monkeypatch):
    """Whatever may be ours is ours."""
    monkeypatch.setattr(race, "worth_computing", lambda problem: True)


@pytest.fixture
def calls(monkeypatch):
    """Names of our functions, a name for each time that the C ran."""
    seen = []
    library = functions.library()

    class Counting:
        def attention_forward(self, *args):
            seen.append("forward")
            library.attention_forward(*args)

        def attention_backward(self, *args):
            seen.append("backward")
            library.attention_backward(*args)
    monkeypatch.setattr(functions, "library", Counting)
    return seen


def tensors(*shape, dtype=torch.float32):
    return [heads(*shape, dtype) for _ in range(3)]


def test_large_float32_calls(always):
    assert replace_attention(graph_of(FORWARD, *tensors(2, 4, 128, 64), 0.0, True)) == 1
    q, k, v = tensors(2, 4, 128, 64)
    out, lse = FORWARD(q, k, v)
    assert replace_attention(graph_of(BACKWARD, torch.randn_like(q), q, k, v, out, lse, 0.0, False, outputs=(0, 1, 2))) == 1


@pytest.mark.parametrize("operands", [tensors(1, 2, 8, 16), tensors(2, 4, 128, 24), tensors(2, 4, 128, 64, dtype=torch.bfloat16),
                                      tensors(2, 4, 128, 64, dtype=torch.float64)], ids=["small", "narrow", "bfloat16", "float64"])
def test_others_stay_atens(always, operands):
    assert replace_attention(graph_of(FORWARD, *operands)) == 0


def test_the_race_decides(monkeypatch):
    asked = []
    monkeypatch.setattr(race, "worth_computing", lambda problem: asked.append(problem))
    assert replace_attention(graph_of(FORWARD, *tensors(2, 4, 128, 64), 0.0, True)) == 0
    assert asked == [Heads(2, 4, 128, 128, 64, True, None, False)]


@pytest.mark.parametrize("outputs,ours", [((0,), 1), ((0, 1), 0)])
def test_a_forward_that_learns_is_ours_only_where_its_backward_is(monkeypatch, outputs, ours):
    monkeypatch.setattr(race, "worth_computing", lambda problem: not problem.backward)
    assert replace_attention(graph_of(FORWARD, *tensors(2, 4, 128, 64), outputs=outputs)) == ours


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("mask", [None, (1, 1, 64, 64)])
def test_contenders_agree(backward, mask):
    runs = race.contenders(Heads(1, 2, 64, 64, 32, False, mask, backward))
    for a, b in zip(runs[race.VENDOR](), runs[race.OWN]()):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_a_wrong_library_loses(monkeypatch):
    monkeypatch.setattr(race, "attention", lambda q, *rest, **more: tuple(2 * x for x in FORWARD(q, *rest, **more)))
    assert race._race(Heads(1, 2, 64, 64, 32, False, None, False), 0.1, {}) == race.VENDOR


class Attending(nn.Module):
    def __init__(self, causal, masked):
        super().__init__()
        self.project, self.causal, self.masked = nn.Linear(64, 192), causal, masked

    def forward(self, x, mask):
        q, k, v = [y.unflatten(-1, (2, 32)).transpose(1, 2) for y in self.project(x).chunk(3, -1)]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask if self.masked else None, is_causal=self.causal).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("causal,masked", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dynamic", [None, True])
def test_models_train_and_infer_as_in_eager(always, calls, causal, masked, dynamic):
    model = Attending(causal, masked)
    compiled = minipt2.compile(model, dynamic=dynamic)
    for rows in (150, 170):
        x, mask = torch.randn(2, rows, 64), torch.randn(rows, rows)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, mask), model(x, mask), rtol=1e-4, atol=1e-5)
        grads = []
        for each in (model, compiled):
            model.zero_grad()
            each(x, mask).square().sum().backward()
            grads.append([p.grad.clone() for p in model.parameters()])
        for a, b in zip(*grads):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    assert calls.count("forward") == 4 and calls.count("backward") == 2


def test_off_with_packed_products(always, calls):
    model = Attending(False, False)
    with torch.no_grad():
        minipt2.compile(model, options={"packed_products": False})(torch.randn(2, 150, 64), torch.zeros(1))
    assert not calls
