"""Max pooling as prims: the largest element of each window, where it lay, and the gradient put back there.

For compilers that pool in loops of their own. A place in a window (0 is its first corner, row-major) takes one byte, a position in the
image eight: the place is what a backward keeps. Sizes are those of the last ``len(kernel)`` dimensions.
Upstream: ``torch._inductor.inductor_prims`` (``_low_memory_max_pool_with_offsets`` and what goes with it).
"""
from __future__ import annotations

import math
from typing import Sequence

import torch
import torch.nn.functional as F

from ..shapes.known import known
from .core import TensorMeta, prim
from .meta import channels_last_strides, contiguous_strides, is_channels_last
from .promote import opmath_dtype

T = TensorMeta
Ints = Sequence[int]
MAX_WINDOW = 127
"""Places that one byte can tell apart."""


def pooled_size(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows there are along one dimension. With ``ceil_mode`` a last one may hang over the edge, if it starts inside the input or
    the padding before it: a minimum, so that symbolic sizes are not guarded."""
    span = size + 2 * pad - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    out = (span + stride - 1) // stride + 1
    return out if known((out - 1) * stride < size + pad) else torch.sym_min(out, (size + pad - 1) // stride + 1)


def _like(x: T, shape: Ints, dtype: torch.dtype) -> T:
    """Images of ``shape`` that lie in memory as those of ``x`` do."""
    last = is_channels_last(x.shape, x.strides)
    return TensorMeta(tuple(shape), dtype, x.device, channels_last_strides(shape) if last else contiguous_strides(shape))


def _laid(values: torch.Tensor, like: T) -> torch.Tensor:
    """``values`` in the memory order of ``like``."""
    return torch.empty_strided(like.shape, like.strides, dtype=like.dtype, device=like.device).copy_(values)


def _steps(sizes: Ints) -> list[int]:
    """How far apart neighbours along each dimension are, row-major."""
    return [math.prod(sizes[d + 1:]) for d in range(len(sizes))]


def _corner(x: torch.Tensor, d: int, n: int, stride: int, pad: int) -> torch.Tensor:
    """Where each window of ``x`` begins along dimension ``d`` of ``n``, shaped to go beside ``x``."""
    starts = torch.arange(x.shape[x.ndim - n + d], device=x.device) * stride - pad
    return starts.view([-1] + [1] * (n - 1 - d))


def _max_pool_ref(x: torch.Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> tuple[torch.Tensor, torch.Tensor]:
    n = len(kernel)
    pool = F.max_pool2d if n == 2 else F.max_pool3d
    values, positions = pool(x, tuple(kernel), tuple(stride), tuple(padding), tuple(dilation), ceil_mode, return_indices=True)
    offsets = torch.zeros_like(positions)
    for d, (step, place) in enumerate(zip(_steps(x.shape[-n:]), _steps(kernel))):
        along = positions // step % x.shape[x.ndim - n + d] - _corner(positions, d, n, stride[d], padding[d])
        offsets += along // dilation[d] * place
    return values, offsets.to(torch.int8)


@prim("reduction", _max_pool_ref)
def max_pool(x: T, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> tuple[T, T]:
    """(largest element of each window over the last dimensions, int8 place of it in the window): the first of equals, the last NaN."""
    n = len(kernel)
    if n not in (2, 3) or math.prod(kernel) > MAX_WINDOW:
        raise ValueError(f"prims.max_pool: windows {tuple(kernel)} are not two- or three-dimensional, or have over {MAX_WINDOW} places")
    sizes = [pooled_size(*v, ceil_mode) for v in zip(x.shape[-n:], kernel, stride, padding, dilation)]
    shape = (*x.shape[:-n], *sizes)
    return _like(x, shape, x.dtype), _like(x, shape, torch.int8)


def _positions_ref(offsets: torch.Tensor, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> torch.Tensor:
    n, total = len(kernel), torch.zeros_like(offsets, dtype=torch.int64)
    for d, (step, place) in enumerate(zip(_steps(sizes), _steps(kernel))):
        within = offsets.to(torch.int64) // place % kernel[d] * dilation[d]
        total += (within + _corner(offsets, d, n, stride[d], padding[d])) * step
    return _laid(total, _like(TensorMeta.of(offsets), offsets.shape, torch.int64))


@prim("pointwise", _positions_ref)
def max_pool_positions(offsets: T, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> T:
    """int64 row-major position, in an image of these sizes, of what lies at each window's place ``offsets``."""
    return _like(offsets, offsets.shape, torch.int64)


def _backward_ref(grad: torch.Tensor, offsets: torch.Tensor, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> torch.Tensor:
    lead = grad.shape[:-len(kernel)]
    positions = _positions_ref(offsets, sizes, kernel, stride, padding, dilation)
    image = grad.new_zeros((math.prod(lead), math.prod(sizes)), dtype=opmath_dtype(grad.dtype))
    image.scatter_add_(1, positions.reshape(len(image), -1), grad.reshape(len(image), -1).to(image.dtype))
    like = _like(TensorMeta.of(offsets), (*lead, *sizes), grad.dtype)
    return _laid(image.view(like.shape), like)


@prim("index", _backward_ref)
def max_pool_backward(grad: T, offsets: T, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> T:
    """An image of these sizes: to each element the gradients of the windows that chose it, added up in float32 or float64."""
    if grad.shape != offsets.shape:
        raise ValueError(f"prims.max_pool_backward: a gradient {grad} for windows {offsets}")
    return _like(offsets, (*grad.shape[:-len(kernel)], *sizes), grad.dtype)
