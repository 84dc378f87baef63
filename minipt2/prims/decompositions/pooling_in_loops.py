"""Max pooling on a GPU, where loops of our own beat PyTorch's kernels: they keep a byte for each window instead of an int64 position, join what
comes before and after, and the backward reads what it adds instead of scattering it. On a CPU oneDNN's and ATen's kernels stay.

Upstream: ``torch._inductor.lowering`` (``_low_memory_max_pool_with_offsets``) and ``torch._inductor.decomposition``.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

from ...config import config
from .. import ops as p
from ..core import Value, producer
from ..meta import numel
from .registry import NoRule, decompositions, overload

Ints = Sequence[int]
MOST_PLACES = 27
"""Places in a window up to which a loop over them is written out: 5 x 5, 3 x 3 x 3."""


def _on_gpu(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a rule that holds on GPUs; ``complete`` keeps the one that computes with other prims."""
    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        decompositions.update({overload(name): fn for name in names})
        return fn
    return register


def _each(values: Ints, n: int) -> tuple[int, ...]:
    return tuple(values) * (n if len(values) == 1 else 1)


def _window(x: Value, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> tuple[tuple[int, ...], ...]:
    """(kernel, stride, padding, dilation), a number for each dimension."""
    if x.device.type != "cuda" and not config.triton_interpret:
        raise NoRule("PyTorch's kernel is faster on a CPU")
    kernel = _each(kernel, n)
    if not x.dtype.is_floating_point or x.numel() == 0 or numel(kernel) > MOST_PLACES:
        raise NoRule("max pooling of integers, of nothing or over large windows")
    return kernel, _each(stride, n) or kernel, _each(padding, n), _each(dilation, n)


@_on_gpu("max_pool2d_with_indices")
def max_pool2d(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
               ceil_mode: bool = False) -> tuple[Value, Value]:
    return _max_pool(x, 2, kernel_size, stride, padding, dilation, ceil_mode)


@_on_gpu("max_pool3d_with_indices")
def max_pool3d(x: Value, kernel_size: Ints, stride: Ints = (), padding: Ints = (0,), dilation: Ints = (1,),
               ceil_mode: bool = False) -> tuple[Value, Value]:
    return _max_pool(x, 3, kernel_size, stride, padding, dilation, ceil_mode)


def _max_pool(x: Value, n: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> tuple[Value, Value]:
    """The positions are made of the places in the windows, where somebody wants them."""
    window = _window(x, n, kernel, stride, padding, dilation)
    values, offsets = p.max_pool(x, *window, ceil_mode)
    return values, p.max_pool_positions(offsets, x.shape[-n:], *window)


@_on_gpu("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(grad: Value, x: Value, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool, indices: Value) -> Value:
    """Needs the places behind the positions: those of a forward in the same graph."""
    made = producer(indices, p.max_pool_positions)
    if made is None:
        raise NoRule("positions from elsewhere")
    offsets, *window = made
    return p.max_pool_backward(grad, offsets, *window)
