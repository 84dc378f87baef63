"""Losses and their gradients. ``reduction`` is 0 none, 1 mean, 2 sum. Upstream: ``torch._decomp.decompositions``."""
from __future__ import annotations

import torch

from .. import ops as p
from ..core import Value
from ..promote import to_float
from .reductions import mean as _mean, sum as _sum
from .registry import NoRule, broadcast_to, elementwise, opmath, prepare, rule

V = Value | None


def reduce(loss: Value, reduction: int) -> Value:
    """The elementwise loss as it is, its mean or its sum."""
    return (lambda x: x, _mean, _sum)[reduction](loss)


def _share(grad: Value, reduction: int, count: int) -> Value:
    """The gradient that reaches one element of the loss."""
    return grad / to_float(count) if reduction == 1 else grad


@elementwise(operands=2)
def _squared(x: Value, target: Value) -> Value:
    return (x - target) * (x - target)


@rule("mse_loss")
def mse_loss(x: Value, target: Value, reduction: int = 1) -> Value:
    return reduce(_squared(x, target), reduction)


@rule("mse_loss_backward")
def mse_loss_backward(grad: Value, x: Value, target: Value, reduction: int) -> Value:
    grad, x, target = prepare([grad, x, target], x.dtype)
    return (x - target) * (2.0 / x.numel() if reduction == 1 and x.numel() != 0 else 2.0) * grad


@elementwise(operands=2, opmath=True)
def _huber(x: Value, target: Value, delta: float) -> Value:
    d = p.abs(x - target)
    return p.where(p.lt(d, delta), d * d * 0.5, (d - 0.5 * delta) * delta)


@rule("huber_loss")
def huber_loss(x: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    return reduce(_huber(x, target, to_float(delta)), reduction)


@rule("huber_loss_backward")
def huber_loss_backward(grad: Value, x: Value, target: Value, reduction: int, delta: float) -> Value:
    grad, x, target = prepare([grad, x, target], x.dtype)
    d, delta = x - target, to_float(delta)
    slope = p.minimum(p.maximum(d, -delta), delta)
    return slope * _share(grad, reduction, x.numel())


@elementwise(operands=2, opmath=True)
def _smooth_l1(x: Value, target: Value, beta: float) -> Value:
    d = p.abs(x - target)
    return p.where(p.lt(d, beta), d * d * 0.5 / beta, d - 0.5 * beta) if beta else d


@rule("smooth_l1_loss")
def smooth_l1_loss(x: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    return reduce(_smooth_l1(x, target, to_float(beta)), reduction)


@rule("smooth_l1_loss_backward")
def smooth_l1_loss_backward(grad: Value, x: Value, target: Value, reduction: int, beta: float) -> Value:
    grad, x, target = prepare([grad, x, target], x.dtype)
    d, beta = x - target, to_float(beta)
    slope = p.where(p.lt(p.abs(d), beta), d / beta, p.sign(d)) if beta else p.sign(d)
    return slope * _share(grad, reduction, x.numel())


@elementwise(operands=2, opmath=True)
def _cross(x: Value, target: Value) -> Value:
    """Logarithms are held above -100, as eager does."""
    return (target - 1.0) * p.maximum(p.log1p(-x), -100.0) - target * p.maximum(p.log(x), -100.0)


@rule("binary_cross_entropy")
def binary_cross_entropy(x: Value, target: Value, weight: V = None, reduction: int = 1) -> Value:
    a, b = prepare([x, target], x.dtype)
    loss = p.valid(_cross(x, target), p.ge(a, 0.0) & p.le(a, 1.0) & p.ge(b, 0.0) & p.le(b, 1.0))
    return reduce(loss if weight is None else loss * broadcast_to(weight, loss.shape), reduction)


@rule("binary_cross_entropy_backward")
def binary_cross_entropy_backward(grad: Value, x: Value, target: Value, weight: V = None, reduction: int = 1) -> Value:
    grad, x, target = prepare([grad, x, target], x.dtype)
    result = grad * (x - target) / p.maximum((1.0 - x) * x, 1e-12)
    if weight is not None:
        result = result * broadcast_to(weight, x.shape)
    return _share(result, reduction, x.numel())


@rule("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(x: Value, target: Value, weight: V = None, pos_weight: V = None, reduction: int = 1) -> Value:
    """(1 - target) * x - log(sigmoid(x)), with the logarithm weighted by pos_weight where the target is positive."""
    x, target = prepare([x, target], x.dtype)
    log_sigmoid = p.minimum(x, 0.0) - p.log1p(p.exp(-p.abs(x)))
    if pos_weight is None:
        loss = (1.0 - target) * x - log_sigmoid
    else:
        loss = (1.0 - target) * x - ((broadcast_to(pos_weight, x.shape) - 1.0) * target + 1.0) * log_sigmoid
    return reduce(loss if weight is None else loss * broadcast_to(weight, loss.shape), reduction)


@rule("soft_margin_loss")
def soft_margin_loss(x: Value, target: Value, reduction: int = 1) -> Value:
    return reduce(_soft_margin(x, target), reduction)


@elementwise(operands=2)
def _soft_margin(x: Value, target: Value) -> Value:
    return p.log1p(p.exp(-target * x))


@rule("soft_margin_loss_backward")
def soft_margin_loss_backward(grad: Value, x: Value, target: Value, reduction: int) -> Value:
    grad, x, target = prepare([grad, x, target], x.dtype)
    z = p.exp(-target * x)
    return _share(-target * z / (z + 1.0) * grad, reduction, x.numel())


# Negative log likelihood: x is (N, C, *rest) or (C,), target holds class numbers in the shape without C.

def _classes(x: Value, target: Value, ignore_index: int) -> tuple[int, Value, Value]:
    """(class dimension, mask of targets that count, their class numbers with 0 for the others)."""
    if target.dtype is not torch.int64:
        raise NoRule("class numbers that are not int64")
    counted = p.ne(target, ignore_index)
    return (0 if x.ndim == 1 else 1), counted, p.where(counted, target, 0)


def _expanded(t: Value, dim: int) -> Value:
    return p.reshape(t, t.shape[:dim] + (1,) + t.shape[dim:])


@rule("nll_loss_forward", "nll_loss2d_forward")
def nll_loss_forward(x: Value, target: Value, weight: V, reduction: int, ignore_index: int) -> tuple[Value, Value]:
    """(loss, total weight of the targets that count)."""
    if x.ndim == 1 and target.ndim == 1:
        x = p.reshape(x, (1, *x.shape))
    dim, counted, safe = _classes(x, target, ignore_index)
    picked = p.neg(opmath(p.reshape(p.gather(x, dim, _expanded(safe, dim)), target.shape)))
    weights = _target_weights(picked, weight, safe, counted)
    loss = p.where(counted, picked if weight is None else picked * weights, 0.0)
    if reduction == 0:
        return p.convert(loss, x.dtype), p.full((), 0.0, x.dtype, x.device)
    total = p.sum(weights, tuple(range(weights.ndim)))
    loss = p.sum(loss, tuple(range(loss.ndim)))
    return p.convert(loss / total if reduction == 1 else loss, x.dtype), p.convert(total, x.dtype)


def _target_weights(like: Value, weight: V, safe: Value, counted: Value) -> Value:
    """The weight of each target; 0 where it is ignored."""
    if weight is None:
        return p.convert(counted, like.dtype)
    flat = p.index_select(opmath(weight), 0, p.reshape(safe, (safe.numel(),)))
    return p.where(counted, p.reshape(flat, safe.shape), 0.0)


@rule("nll_loss_backward", "nll_loss2d_backward")
def nll_loss_backward(grad: Value, x: Value, target: Value, weight: V, reduction: int, ignore_index: int, total_weight: Value) -> Value:
    """-weight / total at each target's class, 0 elsewhere: a comparison with the class number instead of a scatter."""
    dim, counted, safe = _classes(x, target, ignore_index)
    share = opmath(grad) / opmath(total_weight) if reduction == 1 else opmath(grad)
    per_target = broadcast_to(-share, target.shape)
    per_target = p.where(counted, per_target if weight is None else per_target * _target_weights(per_target, weight, safe, counted), 0.0)
    if x.ndim == 1 and target.ndim == 1:
        per_target, safe = p.reshape(per_target, ()), p.reshape(safe, ())
    classes = p.broadcast_in_dim(p.iota(x.shape[dim], 0, 1, torch.int64, x.device), x.shape, (dim,))
    rest = tuple([d for d in range(x.ndim) if d != dim])
    here = p.eq(classes, p.broadcast_in_dim(safe, x.shape, rest))
    return p.convert(p.where(here, p.broadcast_in_dim(per_target, x.shape, rest), 0.0), x.dtype)
