"""Operators that stand for one library's kernel, recorded as the ones that say the same of any device.

On a GPU, ``batch_norm`` arrives as cuDNN's operator, with a reserve of bytes that only cuDNN's own backward reads. Before:
``cudnn_batch_norm(x, ...)``, ``cudnn_batch_norm_backward(x, ..., reserve)``. After: ``native_batch_norm`` and its backward, which fuse.
Upstream: ``torch._decomp.decompositions`` (``cudnn_batch_norm``).
"""
from __future__ import annotations

from typing import Any, Callable

import torch

from .ops import aten

Tensor = torch.Tensor


def _batch_norm(x: Tensor, weight: Tensor, bias: Tensor | None, mean: Tensor | None, var: Tensor | None, training: bool,
                momentum: float, eps: float) -> tuple[Tensor, ...]:
    return *aten.native_batch_norm.default(x, weight, bias, mean, var, training, momentum, eps), x.new_empty((0,), dtype=torch.uint8)


def _batch_norm_backward(x: Tensor, grad: Tensor, weight: Tensor, mean: Tensor | None, var: Tensor | None, saved_mean: Tensor,
                         saved_rstd: Tensor, eps: float, reserve: Tensor) -> tuple[Tensor, ...]:
    return aten.native_batch_norm_backward.default(grad, x, weight, mean, var, saved_mean, saved_rstd, True, eps, [True, True, True])


PLAIN: dict[Any, Callable[..., Any]] = {
    aten.cudnn_batch_norm.default: _batch_norm,
    aten.cudnn_batch_norm_backward.default: _batch_norm_backward,
}
"""Overload -> the same by plain operators."""
