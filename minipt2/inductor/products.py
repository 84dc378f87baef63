"""Products with packed weights: what a graph calls, its meaning in eager operators, and the library of C that computes it.

``pack``/``pack_filter`` (frozen work: once for each weight) put a weight into panels; ``product`` is a linear layer or a convolution with its bias, a
residual and an activation. The generated code calls the C function ``products`` (``codegen.c_openmp_products``) by its address.
Upstream: ``mkldnn::_linear_pointwise``, ``mkldnn::_convolution_pointwise`` and ``CppPackedGemmTemplate``.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple, Sequence

import torch
import torch.nn.functional as F

from . import cache
from .codegen.c_openmp_products import ACTIVATIONS, PANEL, source


class Window(NamedTuple):
    """How a convolution looks at its image: kernel size, stride, padding and dilation, each (high, wide). ``depthwise``: each channel of the result
    is made of one of the image, the same."""

    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    depthwise: bool = False


class Problem(NamedTuple):
    """A product (rows, depth) @ (depth, columns); for a convolution with the shape of its image and its window. ``bare``: it has no bias."""

    rows: int
    depth: int
    columns: int
    image: tuple[int, int, int, int] | None
    window: Window | None
    bare: bool = False


def pack(matrix: torch.Tensor) -> torch.Tensor:
    """A float32 matrix (depth, columns) as (panels, depth, 16), the last panel filled up with zeros."""
    depth, columns = matrix.shape
    panels = -(-columns // PANEL)
    filled = F.pad(matrix, (0, panels * PANEL - columns))
    return filled.reshape(depth, panels, PANEL).transpose(0, 1).contiguous()


def pack_filter(weight: torch.Tensor) -> torch.Tensor:
    """A convolution's weight (out, in, high, wide), packed as the matrix (high x wide x in, out)."""
    return pack(weight.permute(2, 3, 1, 0).reshape(-1, weight.shape[0]))


def product(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, other: torch.Tensor | None, columns: int,
            window: Window | None, activation: str, numbers: Sequence[float]) -> torch.Tensor:
    """``activation(x @ weight + bias + other)``; with ``window`` a convolution of the image ``x``. What the C computes, in eager operators.

    x: (rows, depth), or (batch, channels, high, wide) in channels-last memory; bias: (columns,); other: as the result.
    """
    matrix = packed.transpose(0, 1).reshape(packed.shape[1], -1)[:, :columns]
    if window is None:
        result = x @ matrix
        result = result if bias is None else result + bias
    else:
        window = Window(*window)
        weight = matrix.reshape(*window.taps, -1, columns).permute(3, 2, 0, 1)
        result = F.conv2d(x, weight, bias, *window[1:4], groups(window, columns)).contiguous(memory_format=torch.channels_last)
    result = result if other is None else result + other
    return _activations(activation, numbers)(result)


def run(window: Window, channels: Any) -> Any:
    """How many numbers of a dense image are added up side by side: a pixel's channels, or those of all taps of a row, where none lies outside; one
    in a depthwise convolution."""
    if window.depthwise:
        return 1
    return channels * window.taps[1] if window.padding[1] == 0 and window.dilation[1] == 1 else channels


def image_geometry(image: Sequence[Any], strides: Sequence[Any], out: Sequence[Any], window: Window) -> list[Any]:
    """The fields of C's ``geometry`` down to ``channels``. image: batch, channels, height and width; strides: of images, rows and pixels, whose
    channels lie side by side; out: height and width of the result."""
    batch, channels, high, wide = image
    (taps_high, taps_wide), added = window.taps, run(window, channels)
    if added == taps_wide * channels:  # a row of taps is one tap, which has as many places to begin at as never leave the image
        wide, taps_wide = wide - taps_wide + 1, 1
    return [batch, high, wide, *out, taps_high, taps_wide, *window.stride, *window.padding, *window.dilation, *strides, added]


def groups(window: Window, columns: int) -> int:
    """Of a convolution with ``columns`` channels in its result."""
    return columns if window.depthwise else 1


def _activations(name: str, numbers: Sequence[float]) -> Any:
    plain = {"none": lambda y: y, "relu": F.relu, "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
             "swish": F.silu, "gelu": F.gelu}
    return plain.get(name) or {"hardtanh": lambda y: F.hardtanh(y, *numbers), "leaky_relu": lambda y: F.leaky_relu(y, *numbers)}[name]


def code(activation: str) -> int:
    """The number by which C knows an activation. Raises ValueError for one it does not know."""
    return list(ACTIVATIONS).index(activation)


@functools.cache
def address() -> int:
    """Where the C function ``products`` is in this process. Raises CompilerNotFound, BackendError."""
    return ctypes.cast(cache.compile_c(source()).products, ctypes.c_void_p).value or 0
