"""Attention written out: which spellings become one operator, which must not, and that every number stays eager's."""
from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import minipt2
from minipt2.inductor.passes import fuse_attention

INF = float("inf")
CAUSAL = torch.tril(torch.ones(12, 12, dtype=torch.bool))
PADDED = torch.tensor([[1] * 12, [0] * 12]).bool()[:, None, None, :]  # the second sequence sees nothing


def heads(*shape, grad=False):
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=grad) for _ in range(3)]


def fused(fn, *args) -> int:
    """How many attentions are recognised in what is captured of ``fn``."""
    found = []

    def backend(gm, example_inputs):
        made = fuse_attention(gm)
        found.append(sum(n.target is F.scaled_dot_product_attention for n in made.graph.nodes))
        return made.forward
    minipt2.compile(fn, backend=backend)(*args)
    return sum(found)


def check(fn, *args, expected=1):
    """``fn`` compiled is ``fn``, NaN for NaN, gradients too; ``expected`` attentions are recognised."""
    assert fused(fn, *args) == expected
    want, got = fn(*args), minipt2.compile(fn)(*args)
    torch.testing.assert_close(got, want, equal_nan=True, rtol=1e-5, atol=1e-5)
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.requires_grad]
    if leaves:
        weight = torch.randn_like(want)
        for a, b in zip(torch.autograd.grad((got * weight).sum(), leaves), torch.autograd.grad((want * weight).sum(), leaves)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)


def in_place(q, k, v):
    scores = q @ k.mT
    scores *= 0.3
    scores += torch.triu(torch.full((12, 12), -INF), 1)
    return torch.softmax(scores, -1) @ v


def into_the_mask(q, k, v):
    mask = torch.zeros(2, 3, 12, 12) - 1.0
    mask += q @ k.mT
    return torch.softmax(mask, -1) @ v


def mask_in_place(q, k, v):
    mask = torch.zeros(12, 12)
    mask[1].fill_(-1e30)
    mask[2:].masked_fill_(torch.ones(10, 12).tril() == 0, -INF)
    return torch.softmax(q @ k.mT + mask, -1) @ v


def test_a_mask_that_is_written_into():
    check(mask_in_place, *heads(2, 3, 12, 8))
    check(mask_in_place, *heads(2, 3, 12, 8, grad=True), expected=0)


def test_a_negative_scale_stays_written_out():
    """The operator's causal kernel multiplies what it hides: -inf becomes inf."""
    check(lambda q, k, v: ((q @ k.mT) * -0.7).masked_fill(~CAUSAL, -INF).softmax(-1) @ v, *heads(2, 3, 12, 8), expected=0)


def too_late(q, k, v):
    scores = q @ k.mT
    weights = torch.softmax(scores, -1)
    scores += 1.0
    return weights @ v + scores.sum()


SPELLINGS = {
    "operators": lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1) @ v,
    "methods": lambda q, k, v: q.matmul(k.mT).mul(0.25).softmax(-1).matmul(v),
    "functions": lambda q, k, v: torch.matmul(F.softmax(torch.matmul(q * 0.3, k.permute(0, 1, 3, 2)), dim=3), v),
    "in float32": lambda q, k, v: torch.matmul(F.softmax(q @ k.transpose(2, 3), dim=-1, dtype=torch.float32).to(q.dtype), v),
    "dropout of nothing": lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1), 0.5, training=False) @ v,
    "in place": in_place,
    "in place by methods": lambda q, k, v: (q @ k.mT).div_(3.0).masked_fill_(~CAUSAL, -INF).softmax(-1) @ v,
    "no scale": lambda q, k, v: (q @ k.mT).softmax(3) @ v,
}


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("grad", [False, True])
def test_spellings(name, grad):
    check(SPELLINGS[name], *heads(2, 3, 12, 8, grad=grad))


MASKS = {
    "masked_fill": lambda s: s.masked_fill(~CAUSAL, -INF),
    "masked_fill, finite": lambda s: s.masked_fill(~PADDED, -1e9),
    "nothing seen": lambda s: s.masked_fill(~PADDED, -INF),
    "where": lambda s: torch.where(CAUSAL, s, -INF),
    "where, the other way": lambda s: torch.where(~PADDED, torch.finfo(torch.float32).min, s),
    "filled, known": lambda s: s.masked_fill(torch.triu(torch.ones(12, 12, dtype=torch.bool), 2), -INF),
    "causal, known": lambda s: s.masked_fill(torch.ones(12, 12).tril() == 0, -INF),
    "added": lambda s: s + torch.zeros(12, 12).masked_fill(~CAUSAL, -INF),
    "added, spread": lambda s: s + torch.where(PADDED & (torch.arange(12)[:, None] >= 0), 0.0, torch.finfo(torch.float32).min),
    "filled, spread": lambda s: s.masked_fill(~PADDED.expand(2, 1, 12, 12), -1e9),
    "nothing seen, spread": lambda s: s.masked_fill(~(PADDED & (torch.arange(12)[:, None] >= 0)), -INF),
    "added, known": lambda s: s + torch.triu(torch.full((12, 12), -INF), diagonal=1),
    "added, a slope": lambda s: s + torch.arange(-11.0, 1)[None] * 30,
    "added, far away": lambda s: s + (torch.arange(-11.0, 1)[None] - 100),
    "added, one query": lambda s: s + torch.zeros(2, 1, 1, 12).masked_fill(torch.arange(12) > 7, -1e30),
    "added, nothing seen": lambda s: s + torch.zeros(2, 1, 1, 12).masked_fill(~PADDED, -INF),
    "added, finite": lambda s: torch.zeros(2, 1, 1, 12).masked_fill(~PADDED, torch.finfo(torch.float32).min) + s,
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("scaled", [False, True])
def test_masks(name, scaled):
    def fn(q, k, v):
        scores = q @ k.mT / 3.0 if scaled else q @ k.mT
        return torch.softmax(MASKS[name](scores), dim=-1) @ v
    check(fn, *heads(2, 3, 12, 8))
    check(fn, *heads(2, 3, 12, 8, grad=True))


@pytest.mark.parametrize("shape", [(2, 2, 1, 5), (2, 1, 1, 5), (1, 5), (2, 2, 5, 5)])
@pytest.mark.parametrize("number", [-INF, torch.finfo(torch.float32).min, -1e30, -1e7])
def test_gradients_of_a_bias_that_hides_all(shape, number):
    """A query that sees no key gets NaN, or for finite numbers the mean of the values: the scores vanish in the sum, their gradients do not."""
    def attend(q, k, v, bias):
        return torch.softmax(q @ k.transpose(-2, -1) / 2 + bias, -1) @ v

    bias = torch.zeros(shape)
    bias[-1:] = number
    bias[0, ..., 1] = number
    found = []
    for run in (attend, minipt2.compile(attend)):
        q, k, v = heads(2, 2, 5, 8, grad=True)
        out = run(q, k, v, bias)
        (out * torch.arange(8)).sum().backward()
        found.append((out.detach(), q.grad, k.grad, v.grad))
    if number == -1e7:  # float32 rounds the scores to whole numbers there
        args = [t.detach().double().requires_grad_() for t in heads(2, 2, 5, 8)]
        out = attend(*args, bias.double())
        exact = (out, *torch.autograd.grad((out * torch.arange(8)).sum(), args))
        for got, own, true in zip(found[1], found[0], exact):
            assert (got - true).norm() <= 3 * (own - true).norm() + 1e-5
    else:
        torch.testing.assert_close(found[1], found[0], equal_nan=True, rtol=1e-5, atol=2e-5)
    q, k, v = heads(2, 2, 5, 8, grad=True)
    assert fused(attend, q, k, v, bias) == (shape[-2] == 1)  # of queries that are masked each in their way not all gradients can be had


def test_half_scores_and_a_float_bias():
    """As under autocast: the sum is float32; float16 holds no -1e30."""
    def attend(q, k, v, bias):
        return torch.softmax(q @ k.mT + bias, -1).to(q.dtype) @ v

    for dtype in (torch.bfloat16, torch.float16):
        for bias in (torch.randn(2, 1, 12, 12), torch.zeros(2, 1, 1, 12).masked_fill(~PADDED, torch.finfo(torch.float32).min),
                     torch.zeros(12, 12).masked_fill(~CAUSAL, -INF), torch.randn(12, 12) - 300):
            q, k, v = (x.to(dtype) for x in heads(2, 3, 12, 8))
            assert fused(attend, q, k, v, bias) == 1
            want, got = attend(q, k, v, bias), minipt2.compile(attend)(q, k, v, bias)
            exact = attend(q.double(), k.double(), v.double(), bias.double())
            assert got.dtype == dtype and (got - exact).abs().max() <= 3 * (want - exact).abs().max()


@pytest.mark.parametrize("name", ["keys", "known for one size", "spread"])
def test_sizes_that_vary(name):
    """Code for all sizes takes a mask as it comes; the triangle of one size is not known then."""
    fn = {
        "keys": lambda q, k, v, b: torch.softmax(q @ k.mT + b, -1) @ v,
        "known for one size": lambda q, k, v, b: torch.softmax(q @ k.mT + torch.triu(torch.full((q.shape[-2],) * 2, -INF), 1), -1) @ v,
        "spread": lambda q, k, v, b: torch.softmax((q @ k.mT).masked_fill((b < 0).expand(-1, 1, q.shape[-2], -1), -1e9), -1) @ v,
    }[name]
    compiled = minipt2.compile(fn, dynamic=True)
    for batch, length in ((2, 12), (3, 20)):
        q, k, v = heads(batch, 2, length, 8, grad=True)
        bias = torch.zeros(batch, 1, 1, length)
        bias[0], bias[1, ..., 5:] = -1e30, -1e30
        found = [(y, *torch.autograd.grad(y.sin().sum(), (q, k, v))) for y in (compiled(q, k, v, bias), fn(q, k, v, bias))]
        torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


class Asked(TorchFunctionMode):
    """The dtypes with which the operator is called."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            self.dtypes = [x.dtype for x in args[:4]]
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("number", [0.0, -INF, -3e4])
def test_the_operator_sees_one_dtype(dtype, grad, number):
    """A GPU's kernels do not look, and take four bytes for two numbers."""
    def attend(q, k, v, bias):
        return torch.softmax(q @ k.mT + bias, -1) @ v

    def backend(gm, example_inputs):
        def run(*args):
            with asked:
                return made.forward(*args)
        made = fuse_attention(gm)
        return run
    asked = Asked()
    q, k, v = (x.detach().to(dtype).requires_grad_(grad) for x in heads(2, 3, 12, 8))
    for bias in (torch.zeros(2, 1, 1, 12), torch.zeros(2, 1, 12, 12)):
        bias[..., 6:] = number
        if grad and bias.shape[-2] > 1 and dtype is not torch.float16:
            continue  # left as written
        minipt2.reset()
        minipt2.compile(attend, backend=backend)(q, k, v, bias.to(dtype))
        assert asked.dtypes == [dtype] * 4


def test_known_causal_masks_are_no_masks():
    for name in ("causal, known", "added, known"):
        calls = []

        def backend(gm, example_inputs):
            calls.extend(n for n in fuse_attention(gm).graph.nodes if n.target is F.scaled_dot_product_attention)
            return gm.forward
        minipt2.reset()
        minipt2.compile(lambda q, k, v: torch.softmax(MASKS[name](q @ k.mT), -1) @ v, backend=backend)(*heads(2, 3, 12, 8))
        assert calls[0].args[3:] == (None, 0.0, True)


# ------------------------------------------------------------------ what only a GPU does
def with_dropout(q, k, v):
    return F.dropout(torch.softmax(q @ k.mT, -1), 0.25, training=True) @ v


DROPPED = {
    "plain": (with_dropout, 0),
    "cast before": (lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1, dtype=torch.float32).to(q.dtype), p=0.25) @ v, 0),
    "cast behind": (lambda q, k, v: F.dropout((q @ k.mT).softmax(-1), 0.25, True).type_as(q) @ v, 0),
    "hidden": (lambda q, k, v: F.dropout((q @ k.mT).masked_fill(q.sum(-1, keepdim=True) > 0, -1e9).softmax(-1), 0.25) @ v, 1),
}


@pytest.mark.parametrize("name", DROPPED)
def test_dropped_weights_on_a_gpu(name):
    """Of tensors without data: there is no GPU here, and a CPU's kernel drops nothing."""
    fn, changed = DROPPED[name]
    found = []

    def backend(gm, example_inputs):
        made = fuse_attention(gm)
        found.extend(n for n in made.graph.nodes if n.target is F.scaled_dot_product_attention)
        found.append(sum(n.target is F.dropout for n in made.graph.nodes))
        return gm.forward
    q, k, v = (torch.empty(2, 3, 12, 8, device="meta", requires_grad=True) for _ in range(3))
    minipt2.compile(fn, backend=backend)(q, k, v)
    call, drops = found
    assert call.args[4] == 0.25 and drops == 0 and (call.args[0].target is torch.where) == bool(changed)


@pytest.mark.parametrize("how", ["eager's numbers", "twice", "changed in place", "always"])
def test_dropouts_left_alone(how):
    fn = {
        "eager's numbers": with_dropout,
        "twice": lambda q, k, v: F.dropout(F.dropout(torch.softmax(q @ k.mT, -1), 0.25), 0.25) @ v,
        "changed in place": lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1), 0.25, inplace=True) @ v,
        "always": lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1), 1.0) @ v,
    }[how]
    q, k, v = (torch.empty(2, 3, 12, 8, device="meta", requires_grad=True) for _ in range(3))
    with minipt2.config.patch(eager_random=how == "eager's numbers"):
        assert fused(fn, q, k, v) == 0


def test_a_bias_that_learns_on_a_gpu():
    """The operator gives it a gradient."""
    bias = torch.empty(3, 12, 12, device="meta", requires_grad=True)
    q, k, v = (torch.empty(2, 3, 12, 8, device="meta", requires_grad=True) for _ in range(3))
    assert fused(lambda q, k, v, bias: torch.softmax(q @ k.mT + bias[None], -1) @ v, q, k, v, bias) == 1
    bias = torch.empty(3, 12, 512, device="meta", requires_grad=True)
    k, v = (torch.empty(2, 3, 512, 8, device="meta", requires_grad=True) for _ in range(2))
    assert fused(lambda q, k, v, bias: torch.softmax(q @ k.mT + bias[None], -1) @ v, q, k, v, bias) == 0  # slower there


def test_one_head():
    check(lambda q, k, v: torch.bmm(torch.softmax(torch.bmm(q, k.mT).masked_fill(~CAUSAL, -INF), -1), v), *heads(2, 12, 8))


def test_cross_attention():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8)
    check(SPELLINGS["operators"], q, k, v)


def returns_weights(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return torch.cat([weights @ v, weights], -1)


def writes_between(q, k, v):
    v = v.clone()
    scores = q @ k.mT
    v.mul_(2)
    v += 1
    return torch.softmax(scores, -1) @ v


def drop_all_in_place(weights):
    F.dropout(weights, 1.0, training=True, inplace=True)
    return weights


OTHERS = {
    "weights are used": returns_weights,
    "changed afterwards": too_late,
    "the mask is changed": into_the_mask,
    "a write in between": writes_between,
    "softmax over queries": lambda q, k, v: torch.softmax(q @ k.mT, -2) @ v,
    "weights from the right": lambda q, k, v: v.mT @ torch.softmax(q @ k.mT, -1),
    "a mask that is scaled": lambda q, k, v: torch.softmax((q @ k.mT + torch.arange(12.0).expand(12, 12)) / 2, -1) @ v,
    "a fill that leaves something": lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(~CAUSAL, -3.0), -1) @ v,
    "float64": lambda q, k, v: torch.softmax(q.double() @ k.mT.double(), -1) @ v.double(),
    "a dropout that drops": lambda q, k, v: F.dropout(torch.softmax(q @ k.mT, -1), 1.0, training=True) @ v,
    "one that drops in place": lambda q, k, v: drop_all_in_place(torch.softmax(q @ k.mT, -1)) @ v,
}


@pytest.mark.parametrize("name", OTHERS)
def test_left_alone(name):
    check(OTHERS[name], *heads(2, 3, 12, 8), expected=0)


def test_a_mask_that_learns_is_left_alone():
    bias = torch.randn(12, 12, requires_grad=True)
    check(lambda q, k, v, bias: torch.softmax(q @ k.mT + bias, -1) @ v, *heads(2, 3, 12, 8, grad=True), bias, expected=0)


def test_deep_heads_are_fused_without_gradients_only():
    check(SPELLINGS["operators"], *heads(1, 2, 12, 64))
    check(SPELLINGS["operators"], *heads(1, 2, 12, 64, grad=True), expected=0)


def test_masks_expanded_along_their_rows_are_laid_out():
    """The operator computes all scores otherwise: it wants rows of neighbours."""
    def operator(q, k, v, seen):
        return F.scaled_dot_product_attention(q, k, v, seen.expand(2, 1, 12, 12))
    q, k, v = heads(2, 3, 12, 8)
    seen = torch.tensor([True, False]).repeat(6)[None, None, :, None]
    check(operator, q, k, v, seen)
    check(lambda q, k, v, bias: torch.softmax(q @ k.mT + bias.expand(2, 1, 12, 12), -1) @ v, q, k, v, torch.randn(1, 1, 12, 1))
    minipt2.reset()
    minipt2.compile(operator)(q, k, v, seen)
    assert minipt2.counters()["kernels"] <= 3


@pytest.mark.parametrize("shape", [(2, 2, 5, 5), (2, 1, 5, 5), (5, 5), (2, 1, 1, 5), (5,)])
def test_gradients_of_a_query_that_sees_no_key(shape):
    """Softmax over nothing is NaN, and so are in eager the gradients of the values in that head, whatever the loss reads."""
    def attend(q, k, v, hidden):
        return torch.softmax((q @ k.transpose(-2, -1)).masked_fill(hidden, -math.inf), -1) @ v

    hidden = torch.zeros(shape, dtype=torch.bool)
    hidden.view(-1, 5)[-1] = True
    found = []
    for run in (attend, minipt2.compile(attend)):
        torch.manual_seed(0)
        q, k, v = (torch.randn(2, 2, 5, 8, requires_grad=True) for _ in range(3))
        out = run(q, k, v, hidden)
        out[:, :, :4].sum().backward()
        found.append((out.detach(), q.grad, k.grad, v.grad))
    torch.testing.assert_close(found[1], found[0], equal_nan=True, rtol=1e-5, atol=1e-5)
    assert found[0][3].isnan().any()


def test_an_attention_that_no_loss_reads_leaves_gradients_alone():
    def attend(q, k, v, hidden):
        scores = q @ k.transpose(-2, -1)
        return torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v, (q + v) * 2

    q, k, v = heads(2, 2, 5, 8, grad=True)
    minipt2.compile(attend)(q, k, v, torch.ones(5, 5, dtype=torch.bool))[1].sum().backward()
    assert q.grad.eq(2).all() and v.grad.eq(2).all()


def packed(x):
    """q, k and v (2, 3, 12, 8) of rows (2, 12, 72), as one linear layer leaves them."""
    return [part.unflatten(-1, (3, 8)).transpose(1, 2) for part in x.chunk(3, -1)]


SEEN = {
    "as it is": lambda o: o,
    "a loop's operand": lambda o: (o + 1, o * 2),
    "two views": lambda o: (o, o.transpose(1, 2)),
    "a copy in eager": lambda o: (o.transpose(1, 2).reshape(2, 12, 24), o),
    "two copies in eager": lambda o: (o.transpose(1, 2).reshape(2, 12, 24), o.transpose(1, 2).reshape(24, 24)),
    "a view in eager": lambda o: o.view(2, -1),
    "a clone": lambda o: o.transpose(1, 2).clone(),
    "heads side by side": lambda o: o.transpose(1, 2).reshape(2, 12, 24),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SEEN)
def test_results_lie_as_in_eager(name, dynamic, grad):
    def fn(x):
        q, k, v = packed(x)
        return SEEN[name](torch.softmax(q @ k.mT / 3, -1) @ v)
    x = torch.randn(2, 12, 72, requires_grad=grad)
    want, got = fn(x), minipt2.compile(fn, dynamic=dynamic, fullgraph=True)(x)
    want, got = [r if isinstance(r, tuple) else (r,) for r in (want, got)]
    assert [a.stride() for a in got] == [a.stride() for a in want]
    assert len({a.untyped_storage().data_ptr() for a in got}) == len({a.untyped_storage().data_ptr() for a in want})


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("moved", [lambda o: o.transpose(1, 2).reshape(2, -1, 24), lambda o: o.permute(0, 2, 1, 3).contiguous(),
                                   lambda o: o.transpose(-3, -2).flatten(2)])
def test_heads_put_side_by_side_are_not_copied(moved, dynamic):
    made = []

    def backend(gm, example_inputs):
        made.append(fuse_attention(gm))
        return made[0].forward

    def fn(x):
        q, k, v = packed(x)
        return moved(torch.softmax(q @ k.mT / 3, -1) @ v)
    minipt2.compile(fn, backend=backend, dynamic=dynamic)(torch.randn(2, 12, 72))
    operator = next(n for n in made[0].graph.nodes if n.target is F.scaled_dot_product_attention)
    assert [n.target for n in operator.users] == [n.target for n in operator.users if n.target in ("transpose", "permute")]
