"""Attention of our own on a CPU: values, gradients and memory beside ATen's kernels, by float64."""
import math

import pytest
import torch

from minipt2.inductor.attention import BACKWARD, FORWARD, attention, attention_backward

pytestmark = [pytest.mark.usefixtures("fresh")]


def packed(batch, heads, rows, width):
    """q, k and v as one linear layer leaves them."""
    return [x.view(batch, rows, heads, width).transpose(1, 2) for x in torch.randn(batch, rows, 3 * heads * width).split(heads * width, -1)]


def apart(batch, heads, rows, columns, width):
    return torch.randn(batch, heads, rows, width), torch.randn(batch, heads, columns, width), torch.randn(batch, heads, columns, width)


def both_ways(call, back, q, k, v, grad, causal, mask, scale):
    out, lse = call(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    return [out, lse, *back(grad, q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scale)]


def check(q, k, v, causal=False, mask=None, scale=None, grad=None):
    """Ours is laid out as ATen's, and about as close to float64."""
    grad = torch.randn_like(q) if grad is None else grad
    wide = [None if x is None else x.double() for x in (q, k, v, grad, mask)]
    exact = both_ways(FORWARD, BACKWARD, *wide[:4], causal, wide[4], scale)
    theirs = both_ways(FORWARD, BACKWARD, q, k, v, grad, causal, mask, scale)
    ours = both_ways(attention, attention_backward, q, k, v, grad, causal, mask, scale)
    for a, b, e in zip(ours, theirs, exact):
        assert a.stride() == b.stride() and a.dtype == b.dtype
        assert torch.equal(a.isfinite(), b.isfinite())
        good = e.isfinite() & b.isfinite()
        off, allowed = [float((x.double() - e)[good].norm()) for x in (a, b)]
        assert off <= 2 * allowed + 1e-6 * float(e[good].norm()) + 1e-9


@pytest.mark.parametrize("rows", [1, 5, 16, 49, 130])
@pytest.mark.parametrize("width", [16, 48, 64])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_and_widths(rows, width, causal):
    check(*packed(2, 3, rows, width), causal)


@pytest.mark.parametrize("rows,columns", [(20, 50), (50, 20), (3, 1), (1, 4000), (13, 11000)])
@pytest.mark.parametrize("causal", [False, True])
def test_other_numbers_of_keys(rows, columns, causal):
    check(*apart(1, 2, rows, columns, 32), causal)


@pytest.mark.parametrize("shape", [(30, 47), (1, 1, 30, 47), (2, 1, 1, 47), (1, 3, 30, 1), (2, 3, 30, 47)])
def test_masks_are_added(shape):
    check(*apart(2, 3, 30, 47, 16), mask=torch.randn(shape))
    hidden = torch.where(torch.rand(shape) < 0.4, -math.inf, torch.randn(shape))
    check(*apart(2, 3, 30, 47, 16), mask=hidden)


def test_rows_that_see_nothing_give_zeros():
    mask = torch.zeros(20, 30)
    mask[3] = -math.inf
    q, k, v = apart(1, 2, 20, 30, 16)
    out, lse = attention(q, k, v, 0.0, False, attn_mask=mask)
    assert (out[:, :, 3] == 0).all() and (lse[:, :, 3] == 0).all()
    check(q, k, v, mask=mask)


@pytest.mark.parametrize("scale", [0.0, -0.7, 3.0])
def test_scale(scale):
    check(*packed(1, 2, 33, 32), scale=scale)
    q, k, v = packed(1, 2, 33, 32)  # a mask of -inf: ATen's is_causal gives NaN where scale is not positive
    mask = torch.full((33, 33), -math.inf).triu(1)
    torch.testing.assert_close(attention(q, k, v, 0.0, True, scale=scale)[0], FORWARD(q, k, v, attn_mask=mask, scale=scale)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e30])
@pytest.mark.parametrize("operand", [0, 1, 2])
def test_special_values_are_where_atens_are(value, operand):
    tensors = list(apart(1, 2, 20, 20, 16))
    tensors[operand][0, 1, 7, 3] = value
    ours, theirs = attention(*tensors)[0], FORWARD(*tensors)[0]
    torch.testing.assert_close(ours, theirs, equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, torch.full((30, 47), -1e9)], ids=["scores of hundreds", "all keys hidden"])
@pytest.mark.parametrize("call", [FORWARD, attention])
def test_gradients_do_not_depend_on_the_logarithm_of_large_scores(mask, call):
    q, k, v = apart(2, 3, 30, 47, 64)
    q = q if mask is not None else 100 * q
    grad = torch.randn_like(q)
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    weights = torch.softmax(wide[0] @ wide[1].mT / 8 if mask is None else (q @ k.mT / 8 + mask).double(), -1)  # as rounded, where the mask rounds
    exact = torch.autograd.grad(weights @ wide[2], wide[2:], grad.double())[0]
    out, lse = call(q, k, v, attn_mask=mask)
    found = attention_backward(grad, q, k, v, out, lse, 0.0, False, attn_mask=mask)[2]
    assert float((found - exact).norm()) <= (1e-4 if mask is None else 1e-6) * float(exact.norm())


def test_results_have_the_operands_dtype_whatever_the_default_is():
    q, k, v = apart(1, 2, 20, 30, 16)
    torch.set_default_dtype(torch.float64)
    try:
        check(q, k, v)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_gradient_of_a_sum_is_ours_too(monkeypatch):
    monkeypatch.setattr("minipt2.inductor.attention.BACKWARD", None)
    q, k, v = apart(1, 2, 20, 30, 16)
    out, lse = attention(q, k, v)
    ones = torch.ones(()).expand(q.shape)
    for a, b in zip(attention_backward(ones, q, k, v, out, lse, 0.0, False), BACKWARD(ones, q, k, v, *FORWARD(q, k, v), 0.0, False)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_strided_operands():
    q, k, v = packed(2, 4, 40, 16)
    check(q[:, 1:3], k[:, 1:3], v[:, 1:3], True)
    check(q[:, :, ::2], k[:, :, 5:], v[:, :, 5:])
    check(q, k[:, :1].expand(-1, 4, -1, -1), v, grad=torch.randn(2, 4, 16, 40).transpose(2, 3))
    check(q, k, torch.randn(2, 4, 16, 40).transpose(2, 3))  # numbers of a row that do not lie side by side: ATen's kernel


@pytest.mark.parametrize("shape", [(0, 2, 5, 16), (2, 2, 5, 24)])
def test_what_is_left_to_aten(shape):
    tensors = [torch.randn(shape) for _ in range(3)]
    for a, b in zip(attention(*tensors), FORWARD(*tensors)):
        assert torch.equal(a, b)


@pytest.mark.parametrize("batch,heads,rows", [(2, 3, 200), (1, 1, 500)])
def test_several_threads_compute_the_same(batch, heads, rows):
    q, k, v = packed(batch, heads, rows, 64)
    grad = torch.randn_like(q)
    one = both_ways(attention, attention_backward, q, k, v, grad, True, None, None)
    torch.set_num_threads(3)
    try:
        three = both_ways(attention, attention_backward, q, k, v, grad, True, None, None)
    finally:
        torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(one, three))


@pytest.mark.parametrize("shape,hide", [((130, 130), lambda m: m.triu_(1)), ((130, 130), lambda m: m.fill_(1)), ((2, 1, 1, 130), lambda m: m[..., 77:].fill_(1)),
                                        ((130, 130), lambda m: m[100:].fill_(1))], ids=["causal", "nothing", "padding", "last rows"])
def test_columns_that_a_mask_hides_from_all_rows(shape, hide):
    hidden = torch.zeros(shape)
    hide(hidden)
    check(*apart(2, 3, 130, 130, 32), mask=torch.where(hidden == 1, -math.inf, torch.randn(shape)))
