"""Multi-class margin losses and their gradients. Upstream: ATen's ``LossMultiMargin.cpp`` and ``LossMultiLabelMargin.cpp``."""
from __future__ import annotations

import torch

from .. import ops as p
from ..core import Value
from ..promote import to_float
from .registry import full_like, opmath, rule
from .softmax import along

V = Value | None
_NONE, _MEAN = 0, 1


def _rows(x: Value, target: Value) -> tuple[Value, Value]:
    """A single sample as a batch of one; targets of shape (n, ...)."""
    return (p.reshape(x, (1, x.numel())) if x.ndim < 2 else x), p.convert(target, torch.int64)


def _slack(x: Value, target: Value, power: int, weight: V, margin: float) -> tuple[Value, Value, Value]:
    """(margin - x[target] + x where positive and not the target, bool of the target, weight of the target's class or 1)."""
    at = p.reshape(target, (x.shape[0], 1))
    own = p.gather(x, 1, at)
    classes = p.broadcast_in_dim(p.iota(x.shape[1], 0, 1, torch.int64, x.device), x.shape, (1,))
    is_target = p.eq(classes, along(at, x))
    slack = p.where(is_target, 0.0, p.maximum(x - along(own, x) + to_float(margin), 0.0))
    scale = full_like(own, 1.0) if weight is None else p.reshape(p.index_select(p.convert(weight, x.dtype), 0, p.reshape(at, (x.shape[0],))), own.shape)
    return slack, is_target, along(scale, x)


@rule("multi_margin_loss", library=True)
def multi_margin_loss(x: Value, target: Value, power: int = 1, margin: float = 1, weight: V = None, reduction: int = _MEAN) -> Value:
    rows, at = _rows(x, target)
    slack, _, scale = _slack(opmath(rows), at, power, weight, margin)
    loss = p.sum((slack if power == 1 else slack * slack) * scale, (1,), False) / to_float(rows.shape[1])
    if reduction == _NONE:
        return p.convert(p.reshape(loss, target.shape), x.dtype)
    total = p.sum(loss, (0,), False)
    return p.convert(total / to_float(rows.shape[0]) if reduction == _MEAN else total, x.dtype)


def _share(grad: Value, rows: Value, reduction: int) -> Value:
    """The gradient that reaches each sample, over the shape of ``rows``."""
    g = p.reshape(p.convert(grad, rows.dtype), (grad.numel(), 1) if reduction == _NONE else (1, 1))
    return along(g, rows) / to_float(rows.shape[1] * (rows.shape[0] if reduction == _MEAN else 1))


@rule("multi_margin_loss_backward", library=True)
def multi_margin_loss_backward(grad: Value, x: Value, target: Value, power: int, margin: float, weight: V = None,
                               reduction: int = _MEAN) -> Value:
    rows, at = _rows(x, target)
    wide = opmath(rows)
    slack, is_target, scale = _slack(wide, at, power, weight, margin)
    slope = p.convert(p.gt(slack, 0.0), wide.dtype) if power == 1 else slack * 2.0
    slope = slope * scale * _share(grad, wide, reduction)
    taken = p.neg(along(p.sum(slope, (1,), True), slope))
    return p.convert(p.reshape(p.where(is_target, taken, slope), x.shape), x.dtype)


def _labels(x: Value, target: Value) -> tuple[Value, Value]:
    """(targets before the first -1 as bool, bool of the classes that are a target)."""
    ended = p.cumsum(p.convert(p.lt(target, 0), torch.int64), 1)
    valid = p.eq(ended, 0)
    zeros = p.full(x.shape, 0.0, x.dtype, x.device)
    counts = p.scatter_add(zeros, 1, p.maximum(target, 0), p.convert(valid, x.dtype))
    return valid, p.gt(counts, 0.0)


def _pairs(x: Value, target: Value, valid: Value, is_target: Value) -> tuple[Value, Value]:
    """(n, targets, classes): 1 - x[target] + x[class] where positive, for valid targets and classes that are none; and those pairs."""
    shape = (*target.shape, x.shape[1])
    own = p.broadcast_in_dim(p.gather(x, 1, p.maximum(target, 0)), shape, (0, 1))
    counted = p.logical_and(p.broadcast_in_dim(valid, shape, (0, 1)), p.bitwise_not(p.broadcast_in_dim(is_target, shape, (0, 2))))
    slack = p.maximum(p.broadcast_in_dim(x, shape, (0, 2)) - own + 1.0, 0.0)
    return p.where(counted, slack, 0.0), counted


@rule("multilabel_margin_loss_forward", library=True)
def multilabel_margin_loss(x: Value, target: Value, reduction: int) -> tuple[Value, Value]:
    """(loss, 1 for the classes that are a target)."""
    rows, at = _rows(x, target)
    at, wide = p.reshape(at, rows.shape), opmath(rows)
    valid, is_target = _labels(wide, at)
    loss = p.sum(_pairs(wide, at, valid, is_target)[0], (1, 2), False) / to_float(rows.shape[1])
    if reduction == _NONE:
        out = p.reshape(loss, target.shape[:-1])
    else:
        total = p.sum(loss, (0,), False)
        out = total / to_float(rows.shape[0]) if reduction == _MEAN else total
    return p.convert(out, x.dtype), p.convert(p.reshape(is_target, target.shape), x.dtype)


@rule("multilabel_margin_loss_backward", library=True)
def multilabel_margin_loss_backward(grad: Value, x: Value, target: Value, reduction: int, is_target: Value) -> Value:
    rows, at = _rows(x, target)
    at, wide = p.reshape(at, rows.shape), opmath(rows)
    valid, targets = _labels(wide, at)
    hit = p.convert(p.gt(_pairs(wide, at, valid, targets)[0], 0.0), wide.dtype)
    gained = p.sum(hit, (1,), False)
    lost = p.scatter_add(p.full(wide.shape, 0.0, wide.dtype, wide.device), 1, p.maximum(at, 0), p.sum(hit, (2,), False))
    return p.convert(p.reshape((gained - lost) * _share(grad, wide, reduction), x.shape), x.dtype)
