"""Metadata of normalisations, losses and operators on images, as ``families`` has it for the others.

Imported for its entries in the table of ``families``. Upstream: ``torch._meta_registrations``.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch._ops import OpOverload

from ..prims.meta import channels_last_strides, contiguous_strides, is_channels_last, is_dense
from ..prims.pooling import pooled_size
from ..shapes.known import equal_all
from .families import Irregular, _broadcast, _pointwise, _probe, dense_strides, family, new
from .tensor import FakeMode, FakeTensor

aten = torch.ops.aten


# -- normalisations ---------------------------------------------------------------------------------------------------
@family(aten.native_layer_norm.default)
def _layer_norm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, normalized = args[0], tuple(args[1])
    outer = x.dim() - len(normalized)
    if outer < 0 or not equal_all(x.shape[outer:], normalized) or not x.dtype.is_floating_point or x.numel() == 0 \
            or any(w is not None and (not equal_all(w.shape, normalized) or w.dtype != x.dtype) for w in args[2:4]):
        raise Irregular
    saved = (*x.shape[:outer], *(1,) * len(normalized))
    wide = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) and x.fake_device.type != "cpu" else x.dtype
    return new(mode, x.shape, x), new(mode, saved, x, wide), new(mode, saved, x, wide)


@family(aten.native_layer_norm_backward.default)
def _layer_norm_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, weight, bias, mask = args[1], args[5], args[6], args[7]
    return (new(mode, x.shape, x) if mask[0] else None, new(mode, weight.shape, weight) if mask[1] and weight is not None else None,
            new(mode, bias.shape, bias) if mask[2] and bias is not None else None)


def image_strides(x: FakeTensor) -> tuple[int, ...]:
    """Channels-last strides if ``x`` has them, else row-major ones."""
    shape = tuple(x.shape)
    return channels_last_strides(shape) if is_channels_last(shape, tuple(x.stride())) else contiguous_strides(shape)


def _in_format_of(x: FakeTensor) -> tuple[int, ...]:
    """Row-major or channels-last strides, as ``x`` has; anything else is irregular."""
    shape, strides = tuple(x.shape), tuple(x.stride())
    if x.is_contiguous():
        return contiguous_strides(shape)
    if not is_channels_last(shape, strides) or not is_dense(shape, strides):
        raise Irregular
    return channels_last_strides(shape)


def _single_precision(*xs: FakeTensor | None) -> None:
    """Of the half types, kernels keep statistics in different dtypes."""
    if any(x is not None and (x.dtype != xs[0].dtype or x.dtype not in (torch.float32, torch.float64)) for x in xs):
        raise Irregular


def batch_norm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, weight, bias, mean, var, training = args[:6]
    parameters = [p for p in (weight, bias, mean, var) if p is not None]
    half = x.dtype in (torch.bfloat16, torch.float16)
    if any(p.dtype != x.dtype and not (half and p.dtype is torch.float32) for p in parameters) or not x.dtype.is_floating_point:
        raise Irregular
    if x.dim() < 2 or x.numel() == 0 or not all(equal_all(p.shape, x.shape[1:2]) for p in parameters):
        raise Irregular
    on_cpu = x.fake_device.type == "cpu"
    statistics = torch.float32 if half and (not on_cpu or any(p.dtype is torch.float32 for p in parameters)) else x.dtype
    saved = (x.shape[1],) if training or not on_cpu else (0,)
    strides = image_strides(x) if on_cpu else _in_format_of(x)
    return new(mode, x.shape, x, None, strides), new(mode, saved, x, statistics), new(mode, saved, x, statistics)


@family(aten.native_group_norm.default)
def _group_norm(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, weight, bias, batch, channels, _, groups, _ = args
    _single_precision(x, weight, bias)
    if any(w is not None and not equal_all(w.shape, (channels,)) for w in (weight, bias)) or x.numel() == 0 or channels % groups:
        raise Irregular
    return new(mode, x.shape, x, None, _in_format_of(x)), new(mode, (batch, groups), x), new(mode, (batch, groups), x)


@family(aten.native_group_norm_backward.default)
def _group_norm_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, channels, mask = args[1], args[6], args[9]
    _single_precision(*args[:5])
    shapes = (tuple(x.shape), (channels,), (channels,))
    return tuple(new(mode, shape, x, None, _in_format_of(x) if i == 0 else None) if wanted else None
                 for i, (shape, wanted) in enumerate(zip(shapes, mask)))


@family(aten.native_batch_norm_backward.default)
def _batch_norm_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, weight, mask = args[1], args[2], args[9]
    channels = x.shape[1]
    like = weight if weight is not None else x
    strides = image_strides(x) if x.fake_device.type == "cpu" else dense_strides(x)
    return (new(mode, x.shape, x, None, strides) if mask[0] else None, new(mode, (channels,), like) if mask[1] else None,
            new(mode, (channels,), like) if mask[2] else None)


# -- images -----------------------------------------------------------------------------------------------------------
def _image(mode: FakeMode, x: FakeTensor, shape: Sequence[int], dtype: torch.dtype | None = None) -> FakeTensor:
    """An image in the memory format of ``x``."""
    last = x.dim() in (4, 5) and is_channels_last(tuple(x.shape), tuple(x.stride()))
    return new(mode, shape, x, dtype, channels_last_strides(shape) if last else None)


def _pair(values: Any, default: Any = None) -> tuple[int, int]:
    values = tuple(values) if not isinstance(values, int) else (values,)
    return tuple(default) if not values else values * 2 if len(values) == 1 else values


def _pool(x: FakeTensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[int, ...]:
    kernel = _pair(kernel)
    facts = zip(x.shape[-2:], kernel, _pair(stride, kernel), _pair(padding), _pair(dilation))
    size = tuple(pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in facts)
    if x.dim() not in (3, 4) or any(n < 1 for n in size) or any(n == 0 for n in x.shape) or any(2 * p > k for p, k in zip(_pair(padding), kernel)):
        raise Irregular
    return (*x.shape[:-2], *size)


@family(aten.max_pool2d_with_indices.default)
def _max_pool(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, kernel, stride, padding, dilation, ceil_mode = (*args, *((), 0, 1, False)[max(len(args) - 2, 0):])
    shape = _pool(x, kernel, stride, padding, dilation, ceil_mode)
    return _image(mode, x, shape), _image(mode, x, shape, torch.int64)


@family(aten.avg_pool2d.default)
def _avg_pool(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, kernel, stride, padding, ceil_mode = (*args[:5], *((), 0, False)[max(len(args) - 2, 0):])
    return _image(mode, x, _pool(x, kernel, stride, padding, 1, ceil_mode))


@family(aten._adaptive_avg_pool2d.default)
def _adaptive_pool(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, size = args
    if x.dim() not in (3, 4) or any(n == 0 for n in x.shape):
        raise Irregular
    return _image(mode, x, (*x.shape[:-2], *size))


@family(aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d_backward.default, aten._adaptive_avg_pool2d_backward.default)
def _pool_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return _image(mode, args[1], args[1].shape)


@family(aten.upsample_nearest2d.default, aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default)
def _upsample(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x, size = args[:2]
    if x.dim() != 4 or len(size) != 2 or any(n < 1 for n in (*size, x.numel())):
        raise Irregular
    return _image(mode, x, (*x.shape[:2], *size))


@family(aten.upsample_nearest2d_backward.default, aten.upsample_bilinear2d_backward.default)
def _upsample_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    size = next(a for a in args[1:] if isinstance(a, (list, tuple)) and len(a) == 4)
    return _image(mode, args[0], size)


@family(aten.upsample_bicubic2d_backward.default)
def _upsample_bicubic_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return new(mode, args[2], args[0])


@family(aten.max_unpool2d.default, *[getattr(aten, f"{kind}_pad{n}d{end}").default for kind in ("reflection", "replication") for n in (2, 3) for end in ("", "_backward")])
def _pad(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    """On a CPU channels-last stays; the meta kernel knows row-major only."""
    x = args[1] if func._schema.name.endswith("_backward") else args[0]
    if x.fake_device.type != "cpu" or not is_channels_last(tuple(x.shape), tuple(x.stride())):
        raise Irregular
    return _image(mode, x, mode.run_meta(func, args, kwargs).shape)


# -- losses -----------------------------------------------------------------------------------------------------------
@family(aten.mse_loss.default, aten.smooth_l1_loss.default, aten.huber_loss.default)
def _pointwise_loss(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    if (args[2] if len(args) > 2 else 1) == 0:
        return _pointwise(mode, func, args, kwargs)
    _broadcast([tuple(x.shape) for x in args[:2]])
    return new(mode, (), args[0], _probe(func, args, kwargs))


@family(aten.mse_loss_backward.default, aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default)
def _pointwise_loss_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return _pointwise(mode, func, args, kwargs)


@family(aten.nll_loss_forward.default)
def _nll_loss(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> tuple:
    x, target, weight, reduction, _ = args
    if x.dim() not in (1, 2) or target.dtype is not torch.int64 or not equal_all(target.shape, x.shape[:-1]) or weight is not None:
        raise Irregular
    return new(mode, x.shape[:1] if reduction == 0 and x.dim() == 2 else (), x), new(mode, (), x)


@family(aten.nll_loss_backward.default)
def _nll_loss_backward(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    return new(mode, args[1].shape, args[1])
