"""Convolutions of any rank in NumPy: windows as a strided view, then one matrix product a group.

x is (n, c, *spatial), weight (o, c / groups, *kernel). A transposed convolution is the gradient of a plain one for its input, and
each gradient of one is a plain convolution or its other gradient: three functions serve all. Upstream: ``im2col`` in ATen's CPU kernels.
"""
from __future__ import annotations

from itertools import product
from typing import Any, Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

Array = np.ndarray
Ints = Sequence[int]


class _Sizes:
    """Stride, padding and dilation for each spatial dimension, and the kernel."""

    def __init__(self, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int):
        n = len(kernel)
        each = [list(v) * (n if len(v) == 1 else 1) for v in (stride, padding, dilation)]
        self.kernel, self.groups = tuple(kernel), groups
        self.stride, self.padding, self.dilation = each

    def padded(self, x: Array) -> Array:
        return np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in self.padding]])

    def columns(self, x: Array, count: Ints = ()) -> tuple[Array, Ints]:
        """(groups, n * out, c / groups * kernel): one row for each window; and their number (``count``: no more than that) a dimension."""
        n = len(self.kernel)
        spans = [d * (k - 1) + 1 for d, k in zip(self.dilation, self.kernel)]
        windows = sliding_window_view(self.padded(x), spans, tuple(range(2, 2 + n)))
        windows = windows[(..., *[slice(None, None, s) for s in self.stride], *[slice(None, None, d) for d in self.dilation])]
        windows = windows[(..., *[slice(0, m) for m in count], *[slice(None)] * n)] if count else windows
        out = windows.shape[2:2 + n]
        windows = windows.reshape(x.shape[0], self.groups, -1, *out, *self.kernel)
        windows = windows.transpose(1, 0, *range(3, 3 + n), 2, *range(3 + n, 3 + 2 * n))
        return windows.reshape(self.groups, x.shape[0] * int(np.prod(out)), -1), out

    def rows(self, grad: Array) -> Array:
        """(n, o, *out) -> (groups, n * out, o / groups)."""
        n, o, *out = grad.shape
        grouped = np.moveaxis(grad.reshape(n, self.groups, o // self.groups, -1), 2, 3)
        return grouped.transpose(1, 0, 2, 3).reshape(self.groups, -1, o // self.groups)

    def matrices(self, weight: Array) -> Array:
        """(groups, o / groups, c / groups * kernel)."""
        return weight.reshape(self.groups, weight.shape[0] // self.groups, -1)


def _forward(x: Array, weight: Array, sizes: _Sizes, count: Ints = ()) -> Array:
    columns, out = sizes.columns(x, count)
    result = columns @ sizes.matrices(weight).transpose(0, 2, 1)
    result = result.reshape(sizes.groups, x.shape[0], -1, weight.shape[0] // sizes.groups)
    return result.transpose(1, 0, 3, 2).reshape(x.shape[0], weight.shape[0], *out)


def _for_input(grad: Array, weight: Array, shape: Ints, sizes: _Sizes) -> Array:
    """The gradient for an input of ``shape``: each window's share is added back where the window lay."""
    n, c, *spatial = shape
    out, rank = grad.shape[2:], len(sizes.kernel)
    columns = sizes.rows(grad) @ sizes.matrices(weight)
    columns = columns.reshape(sizes.groups, n, *out, c // sizes.groups, *sizes.kernel)
    columns = columns.transpose(1, 0, 2 + rank, *range(2, 2 + rank), *range(3 + rank, 3 + 2 * rank))
    columns = columns.reshape(n, c, *out, *sizes.kernel)
    total = np.zeros((n, c, *[size + 2 * p for size, p in zip(spatial, sizes.padding)]), grad.dtype)
    for at in product(*map(range, sizes.kernel)):
        starts = [i * d for i, d in zip(at, sizes.dilation)]
        places = [slice(b, b + (o - 1) * s + 1, s) for b, o, s in zip(starts, out, sizes.stride)]
        total[(..., *places)] += columns[(..., *at)]
    return total[(..., *[slice(p, p + size) for p, size in zip(sizes.padding, spatial)])]


def _for_weight(grad: Array, x: Array, shape: Ints, sizes: _Sizes) -> Array:
    columns, _ = sizes.columns(x, grad.shape[2:])
    return (sizes.rows(grad).transpose(0, 2, 1) @ columns).reshape(shape)


def convolution(x: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, transposed: bool,
                output_padding: Ints, groups: int) -> Array:
    """The prim of this name."""
    sizes = _Sizes(weight.shape[2:], stride, padding, dilation, groups)
    if transposed:
        extra = list(output_padding) * (len(sizes.kernel) if len(output_padding) == 1 else 1)
        spatial = [(n - 1) * s - 2 * p + d * (k - 1) + e + 1
                   for n, s, p, d, k, e in zip(x.shape[2:], sizes.stride, sizes.padding, sizes.dilation, sizes.kernel, extra)]
        out = _for_input(x, weight, (x.shape[0], weight.shape[1] * groups, *spatial), sizes)
    else:
        out = _forward(x, weight, sizes)
    return out if bias is None else out + bias.reshape(-1, *[1] * len(sizes.kernel))


def convolution_backward(grad: Array, x: Array, weight: Array, bias_sizes: Ints | None, stride: Ints, padding: Ints, dilation: Ints,
                         transposed: bool, output_padding: Ints, groups: int, output_mask: Sequence[bool]) -> tuple[Any, Any, Any]:
    """The prim of this name: gradients for x, weight and bias, None where not wanted."""
    sizes = _Sizes(weight.shape[2:], stride, padding, dilation, groups)
    grad_x = grad_weight = None
    if output_mask[0]:
        grad_x = _forward(grad, weight, sizes, x.shape[2:]) if transposed else _for_input(grad, weight, x.shape, sizes)
    if output_mask[1]:
        small, large = (x, grad) if transposed else (grad, x)
        grad_weight = _for_weight(small, large, weight.shape, sizes)
    return grad_x, grad_weight, grad.sum((0, *range(2, grad.ndim))) if output_mask[2] else None
