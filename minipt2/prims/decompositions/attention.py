"""Scaled dot product attention, which ATen's CPU kernels compute in blocks. Upstream: ``torch._decomp`` (``scaled_dot_product_flash_attention_for_cpu``)."""
from __future__ import annotations

import math

import torch

from .. import ops as p
from ..core import Value
from .contractions import matmul
from .registry import NoRule, broadcast_to, opmath, rule
from .softmax import along

V = Value | None


def _transposed(x: Value) -> Value:
    return p.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _scores(q: Value, k: Value, mask: V, causal: bool, scale: float) -> Value:
    """q @ k.T * scale, masked: a bool mask says what counts, a float mask is added, ``causal`` hides what lies ahead."""
    scores = matmul(q, _transposed(k)) * scale
    if causal:
        at = (scores.ndim - 2, scores.ndim - 1)
        row, column = (p.broadcast_in_dim(p.iota(scores.shape[d], 0, 1, torch.int64, q.device), scores.shape, (d,)) for d in at)
        scores = p.where(p.le(column, row), scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype is torch.bool:
        return p.where(broadcast_to(mask, scores.shape), scores, -math.inf)
    return scores + broadcast_to(p.convert(mask, scores.dtype), scores.shape)


def _check(q: Value, k: Value, v: Value, dropout_p: float) -> None:
    if dropout_p or k.shape[1] != q.shape[1] or v.shape[1] != q.shape[1] or q.numel() == 0 or k.numel() == 0:
        raise NoRule("attention with dropout, of grouped heads or of nothing")


@rule("_scaled_dot_product_flash_attention_for_cpu", library=True)
def attention(q: Value, k: Value, v: Value, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: V = None,
              scale: float | None = None) -> tuple[Value, Value]:
    """(softmax(q @ k.T * scale) @ v, logarithm of the softmax's divisor) for (n, heads, length, width); a row that sees nothing gives 0."""
    _check(q, k, v, dropout_p)
    wide = opmath(q)
    scores = _scores(wide, opmath(k), attn_mask, is_causal, q.shape[-1] ** -0.5 if scale is None else scale)
    last = (scores.ndim - 1,)
    largest = p.amax(scores, last, True)
    shift = p.where(p.eq(largest, -math.inf), 0.0, largest)
    weights = p.exp(scores - along(shift, scores))
    total = p.sum(weights, last, True)
    weights = weights / along(p.where(p.eq(total, 0.0), 1.0, total), weights)
    logsumexp = p.reshape(shift + p.log(total), scores.shape[:-1])
    return p.convert(matmul(weights, opmath(v)), q.dtype), logsumexp


@rule("_scaled_dot_product_flash_attention_for_cpu_backward", library=True)
def attention_backward(grad: Value, q: Value, k: Value, v: Value, out: Value, logsumexp: Value, dropout_p: float, is_causal: bool, *,
                       attn_mask: V = None, scale: float | None = None) -> tuple[Value, Value, Value]:
    """The softmax is made again from the scores and ``logsumexp``; out . grad is what its normalisation takes from each row."""
    _check(q, k, v, dropout_p)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    g, wq, wk, wv = opmath(grad), opmath(q), opmath(k), opmath(v)
    scores = _scores(wq, wk, attn_mask, is_causal, scale)
    lse = p.reshape(p.convert(logsumexp, scores.dtype), (*logsumexp.shape, 1))
    weights = p.exp(scores - along(p.where(p.isinf(lse), 0.0, lse), scores))
    taken = p.sum(g * opmath(out), (g.ndim - 1,), True)
    slope = weights * (matmul(g, _transposed(wv)) - along(taken, weights)) * scale
    grads = (matmul(slope, wk), matmul(_transposed(slope), wq), matmul(_transposed(weights), g))
    return tuple([p.convert(x, like.dtype) for x, like in zip(grads, (q, k, v))])
