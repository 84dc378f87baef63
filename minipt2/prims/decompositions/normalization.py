"""Batch, layer, group and instance normalisation, forward and backward. Statistics are two-pass (``var_mean``) and in float32 for
bfloat16 and float16, as in eager kernels. Upstream: ``torch._decomp.decompositions`` (``native_*_norm*``).
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from ...exercise import exercise
from .. import ops as p
from ..core import Value
from ..meta import numel
from ..promote import LOW_PRECISION, to_float
from .registry import NoRule, broadcast_to, full_like, opmath, rule
from .softmax import along

V = Value | None


def _unsaved(x: Value, dtype: torch.dtype) -> Value:
    """What stands for statistics that inference does not save: nothing on a CPU, memory that nobody reads on a GPU."""
    return p.full((0 if x.device.type == "cpu" else x.shape[1],), 0.0, dtype, x.device)


def _channel(v: Value, like: Value) -> Value:
    """A per-channel vector over dimension 1 of ``like``, in its dtype."""
    return p.broadcast_in_dim(p.convert(v, like.dtype), like.shape, (1,))


def _not_channel(x: Value) -> tuple[int, ...]:
    return tuple([d for d in range(x.ndim) if d != 1])


# Layer normalisation

@rule("native_layer_norm")
@exercise("4.3")
def native_layer_norm(x: Value, normalized_shape: Sequence[int], weight: V, bias: V, eps: float) -> tuple[Value, Value, Value]:
    """(x - mean) * rstd * weight + bias over the last dimensions; also mean and rstd, with those dimensions kept as 1."""
    # >>> 4.3
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = opmath(x)
    if x.numel() == 0:
        stats = p.full(tuple([1 if d in dims else n for d, n in enumerate(x.shape)]), 0.0, _stat_dtype(x), x.device)
        return x, stats, stats
    var, mean = p.var_mean(wide, dims, 0.0, True)
    rstd = p.rsqrt(var + eps)
    out = (wide - along(mean, wide)) * along(rstd, wide)
    if weight is not None:
        out = out * broadcast_to(opmath(weight), x.shape)
    if bias is not None:
        out = out + broadcast_to(opmath(bias), x.shape)
    return p.convert(out, x.dtype), p.convert(mean, _stat_dtype(x, weight, bias)), p.convert(rstd, _stat_dtype(x, weight, bias))
    # <<< 4.3


def _stat_dtype(x: Value, *parameters: V) -> torch.dtype:
    """On a CPU mean and rstd come in the input's dtype unless a parameter is wider; on a GPU in float32."""
    if x.dtype not in LOW_PRECISION or x.device.type == "cpu" and not any(v is not None and v.dtype is torch.float32 for v in parameters):
        return x.dtype
    return torch.float32


@rule("native_layer_norm_backward")
def native_layer_norm_backward(grad: Value, x: Value, normalized_shape: Sequence[int], mean: Value, rstd: Value, weight: V, bias: V,
                               output_mask: Sequence[bool]) -> tuple[V, V, V]:
    inner = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    outer = tuple(range(x.ndim - len(normalized_shape)))
    g, wide = opmath(grad), opmath(x)
    if x.numel() == 0:
        return (x if output_mask[0] else None, *[None if v is None or not m else full_like(v, 0.0)
                                                 for v, m in zip((weight, bias), output_mask[1:])])
    rstd = along(opmath(rstd), wide)
    normal = (wide - along(opmath(mean), wide)) * rstd
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = g if weight is None else g * broadcast_to(opmath(weight), x.shape)
        grad_x = p.convert(_centred(scaled, normal, inner) * rstd, x.dtype)
    if output_mask[1] and weight is not None:
        grad_weight = p.convert(p.sum(g * normal, outer), weight.dtype)
    if output_mask[2] and bias is not None:
        grad_bias = p.convert(p.sum(g, outer), bias.dtype)
    return grad_x, grad_weight, grad_bias


def _centred(g: Value, normal: Value, dims: Sequence[int]) -> Value:
    """g minus its part along the mean and along the normalised input: what the statistics take from the gradient."""
    count = to_float(numel([g.shape[d] for d in dims]))
    mean_g = p.sum(g, dims, True) / count
    mean_gn = p.sum(g * normal, dims, True) / count
    return g - along(mean_g, g) - normal * along(mean_gn, g)


# Batch normalisation

def _batch_norm(x: Value, weight: V, bias: V, mean: Value, rstd: Value) -> Value:
    """Normalise with per-channel statistics in the opmath dtype: on a CPU eager folds them into one factor and one term per channel."""
    wide = opmath(x)
    scale = rstd if weight is None else rstd * p.convert(weight, rstd.dtype)
    if x.device.type == "cpu":
        shift = -mean * scale if bias is None else p.convert(bias, rstd.dtype) - mean * scale
        return p.convert(wide * _channel(scale, wide) + _channel(shift, wide), x.dtype)
    out = (wide - _channel(mean, wide)) * _channel(scale, wide)
    return p.convert(out if bias is None else out + _channel(bias, wide), x.dtype)


def batch_norm_training(x: Value, weight: V, bias: V, running_mean: V, running_var: V, momentum: float,
                        eps: float) -> tuple[Value, Value, Value, V, V]:
    """(out, saved mean, saved rstd, new running mean, new running variance)."""
    wide, dims = opmath(x), _not_channel(x)
    var, mean = p.var_mean(wide, dims, 0.0, False)
    rstd = p.rsqrt(var + eps)
    count = numel([x.shape[d] for d in dims])
    new_mean = None if running_mean is None else _blend(running_mean, mean, momentum)
    unbiased = var * (count / (count - 1)) if count > 1 else var / 0.0
    new_var = None if running_var is None else _blend(running_var, unbiased, momentum)
    return _batch_norm(x, weight, bias, mean, rstd), mean, rstd, new_mean, new_var


def _blend(running: Value, new: Value, momentum: float) -> Value:
    return p.convert(p.convert(new, running.dtype) * momentum + running * (1.0 - momentum), running.dtype)


def batch_norm_inference(x: Value, weight: V, bias: V, running_mean: Value, running_var: Value, eps: float) -> Value:
    wide = opmath(x)
    rstd = p.rsqrt(p.convert(running_var, wide.dtype) + eps)
    return _batch_norm(x, weight, bias, p.convert(running_mean, wide.dtype), rstd)


def _check_batch(x: Value) -> None:
    if x.numel() == 0 or x.ndim < 2:
        raise NoRule("batch norm of an empty tensor")


@rule("_native_batch_norm_legit_functional")
def batch_norm_functional(x: Value, weight: V, bias: V, running_mean: Value, running_var: Value, training: bool, momentum: float,
                          eps: float) -> tuple[Any, ...]:
    """(out, mean, rstd, running mean, running variance)."""
    _check_batch(x)
    stats = _stat_dtype(x, weight, bias, running_mean, running_var)
    if training:
        out, mean, rstd, new_mean, new_var = batch_norm_training(x, weight, bias, running_mean, running_var, momentum, eps)
        return out, p.convert(mean, stats), p.convert(rstd, stats), new_mean, new_var
    out = batch_norm_inference(x, weight, bias, running_mean, running_var, eps)
    return out, _unsaved(x, stats), _unsaved(x, stats), running_mean, running_var


@rule("_batch_norm_with_update_functional")
def batch_norm_with_update_functional(x: Value, weight: V, bias: V, running_mean: Value, running_var: Value, momentum: float,
                                      eps: float) -> tuple[Any, ...]:
    """(out, mean, rstd, reserve, running mean, running variance); the reserve is empty on CPU."""
    if x.device.type != "cpu":
        raise NoRule("the reserve of cuDNN's batch norm")
    out, mean, rstd, new_mean, new_var = batch_norm_functional(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return out, mean, rstd, p.full((0,), 0, torch.uint8, x.device), new_mean, new_var


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_no_stats(x: Value, weight: V, bias: V, training: bool, momentum: float, eps: float) -> tuple[Any, ...]:
    _check_batch(x)
    stats = _stat_dtype(x, weight, bias)
    out, mean, rstd, _, _ = batch_norm_training(x, weight, bias, None, None, momentum, eps)
    return out, p.convert(mean, stats), p.convert(rstd, stats)


@rule("_native_batch_norm_legit_no_training", "_batch_norm_no_update")
def batch_norm_no_training(x: Value, weight: V, bias: V, running_mean: Value, running_var: Value, momentum: float,
                           eps: float) -> tuple[Any, ...]:
    _check_batch(x)
    out = batch_norm_inference(x, weight, bias, running_mean, running_var, eps)
    stats = _stat_dtype(x, weight, bias, running_mean, running_var)
    return out, _unsaved(x, stats), _unsaved(x, stats)


@rule("native_batch_norm")
def native_batch_norm(x: Value, weight: V, bias: V, running_mean: V, running_var: V, training: bool, momentum: float,
                      eps: float) -> tuple[Any, ...]:
    """Training with running statistics would mutate them: functionalisation turns that into the functional form."""
    if not training:
        return batch_norm_no_training(x, weight, bias, running_mean, running_var, momentum, eps)
    if running_mean is not None or running_var is not None:
        raise NoRule("native_batch_norm updates its running statistics in place")
    return batch_norm_no_stats(x, weight, bias, True, momentum, eps)


@rule("native_batch_norm_backward")
def native_batch_norm_backward(grad: Value, x: Value, weight: V, running_mean: V, running_var: V, save_mean: V, save_rstd: V,
                               train: bool, eps: float, output_mask: Sequence[bool]) -> tuple[V, V, V]:
    _check_batch(x)
    g, wide, dims = opmath(grad), opmath(x), _not_channel(x)
    if train:
        mean, rstd = p.convert(save_mean, wide.dtype), p.convert(save_rstd, wide.dtype)
    else:
        mean, rstd = p.convert(running_mean, wide.dtype), p.rsqrt(p.convert(running_var, wide.dtype) + eps)
    centred = wide - _channel(mean, wide)
    sum_g, sum_gc = p.sum(g, dims), p.sum(g * centred, dims)
    grad_x = None
    if output_mask[0]:
        if train:
            count = to_float(numel([x.shape[d] for d in dims]))
            g = g - centred * _channel(sum_gc * rstd * rstd / count, wide) - _channel(sum_g / count, wide)
        scale = rstd if weight is None else rstd * p.convert(weight, rstd.dtype)
        grad_x = p.convert(g * _channel(scale, wide), x.dtype)
    kept = weight.dtype if weight is not None else x.dtype
    return (grad_x, p.convert(sum_gc * rstd, kept) if output_mask[1] else None, p.convert(sum_g, kept) if output_mask[2] else None)


@rule("batch_norm_backward")
def batch_norm_backward(grad: Value, x: Value, weight: Value, running_mean: V, running_var: V, save_mean: V, save_rstd: V, update: bool,
                        eps: float, output_mask: Sequence[bool], reserve: Value) -> tuple[V, V, V]:
    if x.device.type != "cpu":
        raise NoRule("the reserve of cuDNN's batch norm")
    return native_batch_norm_backward(grad, x, weight, running_mean, running_var, save_mean, save_rstd, update, eps, output_mask)


# Group normalisation

@rule("native_group_norm")
def native_group_norm(x: Value, weight: V, bias: V, N: int, C: int, HxW: int, group: int, eps: float) -> tuple[Value, Value, Value]:
    """Statistics over the channels of a group and all positions; mean and rstd have shape (N, group)."""
    if x.numel() == 0:
        raise NoRule("group norm of an empty tensor")
    grouped = p.reshape(opmath(x), (N, group, (C // group) * HxW))
    var, mean = p.var_mean(grouped, (2,), 0.0, True)
    rstd = p.rsqrt(var + eps)
    out = p.reshape((grouped - along(mean, grouped)) * along(rstd, grouped), x.shape)
    if weight is not None:
        out = out * _channel(weight, out)
    if bias is not None:
        out = out + _channel(bias, out)
    stats = _stat_dtype(x, weight, bias)
    return p.convert(out, x.dtype), p.convert(p.reshape(mean, (N, group)), stats), p.convert(p.reshape(rstd, (N, group)), stats)


@rule("native_group_norm_backward")
def native_group_norm_backward(grad: Value, x: Value, mean: Value, rstd: Value, weight: V, N: int, C: int, HxW: int, group: int,
                               output_mask: Sequence[bool]) -> tuple[V, V, V]:
    if x.numel() == 0:
        raise NoRule("group norm of an empty tensor")
    shape = (N, group, C // group, HxW)
    wide, g = p.reshape(opmath(x), shape), p.reshape(opmath(grad), shape)
    rstd = p.broadcast_in_dim(opmath(rstd), shape, (0, 1))
    normal = (wide - p.broadcast_in_dim(opmath(mean), shape, (0, 1))) * rstd
    grad_x = grad_weight = grad_bias = None
    if output_mask[0]:
        scaled = g
        if weight is not None:
            scaled = g * p.broadcast_in_dim(p.reshape(opmath(weight), (group, C // group)), shape, (1, 2))
        grad_x = p.convert(p.reshape(_centred(scaled, normal, (2, 3)) * rstd, x.shape), x.dtype)
    kept = weight.dtype if weight is not None else x.dtype
    if output_mask[1]:
        grad_weight = p.convert(p.reshape(p.sum(g * normal, (0, 3)), (C,)), kept)
    if output_mask[2]:
        grad_bias = p.convert(p.reshape(p.sum(g, (0, 3)), (C,)), kept)
    return grad_x, grad_weight, grad_bias


@rule("_fused_rms_norm")
def rms_norm(x: Value, normalized_shape: Sequence[int], weight: V, eps: float | None) -> tuple[Value, Value]:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions; also the reciprocal root."""
    dims = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    wide = opmath(x)
    count = to_float(numel(normalized_shape))
    eps = torch.finfo(wide.dtype).eps if eps is None else eps
    rstd = p.rsqrt(p.sum(wide * wide, dims, True) / count + eps)
    out = wide * along(rstd, wide)
    if weight is not None:
        out = out * broadcast_to(opmath(weight), x.shape)
    return p.convert(out, x.dtype), p.convert(rstd, x.dtype if x.device.type == "cpu" else wide.dtype)


@rule("_fused_rms_norm_backward")
def rms_norm_backward(grad: Value, x: Value, normalized_shape: Sequence[int], rstd: Value, weight: V,
                      output_mask: Sequence[bool]) -> tuple[V, V]:
    inner = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    g, wide = opmath(grad), opmath(x)
    rstd = along(opmath(rstd), wide)
    normal = wide * rstd
    scaled = g if weight is None else g * broadcast_to(opmath(weight), x.shape)
    shared = p.sum(scaled * normal, inner, True) / to_float(numel(normalized_shape))
    grad_x = p.convert((scaled - normal * along(shared, wide)) * rstd, x.dtype) if output_mask[0] else None
    if not output_mask[1] or weight is None:
        return grad_x, None
    return grad_x, p.convert(p.sum(g * normal, tuple(range(x.ndim - len(normalized_shape)))), weight.dtype)
