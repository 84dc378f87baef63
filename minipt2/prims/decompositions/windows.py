"""Window functions and other sequences by formula. Upstream: ``torch._refs`` (``logspace``), ATen's ``TensorFactories.cpp``."""
from __future__ import annotations

import math
from typing import Any, Callable, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..promote import is_float, to_float
from .creation import arange, linspace
from .registry import NoRule, number, rule
from .special import i0


def _window(shape: Callable[[Value, float], Value], n: int, periodic: bool, dtype: Any = None, layout: Any = None, device: Any = None,
            pin_memory: Any = None) -> Value:
    """``shape(i, last)`` for i = 0 .. n - 1, where ``last`` is n when periodic and n - 1 when symmetric."""
    dtype, device = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    if dtype not in (torch.float32, torch.float64):
        raise NoRule("a window in low precision")
    if n <= 1:
        return p.full((n,), 1.0, dtype, device)
    i = p.convert(p.iota(n, 0, 1, torch.int64, device), dtype)
    return shape(i, to_float(n if periodic else n - 1))


def _cosines(*weights: float) -> Callable[[Value, float], Value]:
    """The sum of (-1)**k * weight * cos(2 pi k i / last)."""
    def shape(i: Value, last: float) -> Value:
        total: Any = weights[0]
        for k, weight in enumerate(weights[1:], 1):
            total = p.cos(i * (2 * math.pi * k / last)) * ((-1) ** k * weight) + total
        return total
    return shape


@rule("hann_window", "hann_window.periodic", library=True)
def hann_window(n: int, periodic: bool = True, **options: Any) -> Value:
    return _window(_cosines(0.5, 0.5), n, periodic, **options)


@rule("hamming_window", "hamming_window.periodic", "hamming_window.periodic_alpha", "hamming_window.periodic_alpha_beta", library=True)
def hamming_window(n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **options: Any) -> Value:
    return _window(_cosines(alpha, beta), n, periodic, **options)


@rule("blackman_window", "blackman_window.periodic", library=True)
def blackman_window(n: int, periodic: bool = True, **options: Any) -> Value:
    return _window(_cosines(0.42, 0.5, 0.08), n, periodic, **options)


@rule("bartlett_window", "bartlett_window.periodic", library=True)
def bartlett_window(n: int, periodic: bool = True, **options: Any) -> Value:
    return _window(lambda i, last: 1.0 - p.abs(i * (2 / last) - 1.0), n, periodic, **options)


@rule("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta", library=True)
def kaiser_window(n: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Value:
    def shape(i: Value, last: float) -> Value:
        x = i * (2 / last) - 1.0
        return i0(p.sqrt(p.maximum(1.0 - x * x, 0.0)) * to_float(beta)) / i0(p.full(i.shape, to_float(beta), i.dtype, i.device))
    return _window(shape, n, periodic, **options)


@rule("linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor", library=True)
def linspace_tensors(start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None,
                     pin_memory: Any = None) -> Value:
    """Measured from the nearer end; the ends are 0-d tensors."""
    dtype = dtype or torch.get_default_dtype()
    if dtype not in (torch.float32, torch.float64):
        raise NoRule("linspace of integers or low precision")
    where = (start if isinstance(start, Value) else end).device
    i = p.convert(p.iota(steps, 0, 1, torch.int64, where), dtype)
    start, end = (p.broadcast_in_dim(p.convert(v, dtype), (steps,), ()) if isinstance(v, Value) else p.full((steps,), to_float(v), dtype, where)
                  for v in (start, end))
    if steps == 1:
        return start
    step = (end - start) / to_float(steps - 1)
    return p.where(p.lt(i, to_float(steps // 2)), start + step * i, end - step * (to_float(steps - 1) - i))


def _logspace(exponents: Value, base: float) -> Value:
    return p.pow(to_float(base), exponents)


@rule("logspace", library=True)
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> Value:
    return _logspace(linspace(start, end, steps, **options), base)


@rule("logspace.Tensor_Tensor", "logspace.Tensor_Scalar", "logspace.Scalar_Tensor", library=True)
def logspace_tensors(start: Any, end: Any, steps: int, base: float = 10.0, **options: Any) -> Value:
    return _logspace(linspace_tensors(start, end, steps, **options), base)


@rule("range.step", library=True)
def range_step(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any) -> Value:
    """``arange`` with the end in it."""
    dtype, whole = dtype or torch.get_default_dtype(), all(isinstance(v, int) for v in (start, end, step))
    if not is_float(dtype) and not whole:
        raise NoRule("range that rounds on the way")
    count = int((end - start) / step) + 1
    return p.iota(count, number(start, dtype), number(step, dtype), dtype, torch.device(options.get("device") or "cpu"))


@rule("range", library=True)
def range_(start: Any, end: Any, **options: Any) -> Value:
    return range_step(start, end, 1, **options)


@rule("fft_fftfreq", library=True)
def fft_fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    """0, 1, ..., then the negative frequencies, over n * d."""
    dtype, device = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    i = p.iota(n, 0, 1, torch.int64, device)
    wrapped = p.where(p.lt(i, (n + 1) // 2), i, i - n)
    return p.convert(wrapped, dtype) * (1.0 / (n * d))


@rule("fft_rfftfreq", library=True)
def fft_rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    dtype = dtype or torch.get_default_dtype()
    return p.convert(arange(0, n // 2 + 1, 1, device=device), dtype) * (1.0 / (n * d))


def _pairs(keep: Callable[[int, int], bool], rows: int, columns: int, dtype: Any, device: Any) -> Value:
    """(2, count): rows and columns of the places that ``keep``, row by row: a known number of places, so each row is one iota."""
    lines: list[tuple[int, int, int]] = []
    for r in range(rows):
        kept: Sequence[int] = [c for c in range(columns) if keep(r, c)]
        if kept:
            lines.append((r, kept[0], len(kept)))
    dtype, device = dtype or torch.int64, torch.device(device or "cpu")
    if not lines:
        return p.full((2, 0), 0, dtype, device)
    parts = [tuple([p.full((count,), r, dtype, device) for r, _, count in lines]),
             tuple([p.iota(count, first, 1, dtype, device) for _, first, count in lines])]
    return p.cat(tuple([p.reshape(p.cat(part, 0), (1, sum(n for *_, n in lines))) for part in parts]), 0)


@rule("tril_indices", library=True)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    return _pairs(lambda r, c: c - r <= offset, row, col, dtype, device)


@rule("triu_indices", library=True)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    return _pairs(lambda r, c: c - r >= offset, row, col, dtype, device)
