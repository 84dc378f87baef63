"""The softmax family and its gradients, computed in float32 for bfloat16 and float16. Upstream: ``torch._decomp.decompositions``."""
from __future__ import annotations

import torch

from ...exercise import exercise
from .. import ops as p
from ..core import Value
from ..meta import wrap_dim
from .registry import opmath, rule


def along(x: Value, like: Value) -> Value:
    """A reduced tensor (its dimensions kept) repeated to the shape of ``like``."""
    return p.broadcast_in_dim(x, like.shape, tuple(range(like.ndim)))


def _shifted(x: Value, dims: tuple[int, ...]) -> Value:
    return x - along(p.amax(x, dims, True), x)


def _dims(x: Value, dim: int) -> tuple[int, ...]:
    return (wrap_dim(dim, x.ndim),) if x.ndim else ()


@rule("_softmax")
@exercise("4.6")
def softmax(x: Value, dim: int, half_to_float: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    """exp(x - max) / sum over one dimension; in float32 for half types, the result in the dtype that is asked for."""
    # >>> 4.6
    out = torch.float32 if half_to_float else dtype or x.dtype
    x, dims = opmath(p.convert(x, out)), _dims(x, dim)
    if x.numel() == 0:
        return p.convert(x, out)
    e = p.exp(_shifted(x, dims))
    return p.convert(e / along(p.sum(e, dims, True), e), out)
    # <<< 4.6


@rule("_log_softmax")
def log_softmax(x: Value, dim: int, half_to_float: bool = False) -> Value:
    out = torch.float32 if half_to_float else x.dtype
    x, dims = opmath(x), _dims(x, dim)
    if x.numel() == 0:
        return p.convert(x, out)
    shifted = _shifted(x, dims)
    return p.convert(shifted - along(p.log(p.sum(p.exp(shifted), dims, True)), x), out)


@rule("_softmax_backward_data")
def softmax_backward(grad: Value, out: Value, dim: int, input_dtype: torch.dtype) -> Value:
    grad, out, dims = opmath(grad), opmath(out), _dims(out, dim)
    weighted = grad * out
    return p.convert(weighted - out * along(p.sum(weighted, dims, True), out), input_dtype)


@rule("_log_softmax_backward_data")
def log_softmax_backward(grad: Value, out: Value, dim: int, input_dtype: torch.dtype) -> Value:
    grad, out, dims = opmath(grad), opmath(out), _dims(out, dim)
    return p.convert(grad - p.exp(out) * along(p.sum(grad, dims, True), out), input_dtype)


@rule("_safe_softmax")
def safe_softmax(x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """A row of nothing but -inf gives zeros instead of NaN."""
    out = softmax(x, dim, dtype=dtype)
    if x.numel() == 0:
        return out
    empty = p.all(p.eq(x, float("-inf")), _dims(x, dim), True)
    return p.where(along(empty, out), 0.0, out)
