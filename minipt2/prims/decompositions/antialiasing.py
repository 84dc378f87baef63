"""Resizing with a low-pass filter, and its gradient: along one dimension a product with a matrix of weights.

Upstream: ATen's ``UpSampleKernel.cpp`` (``_upsample_bilinear2d_aa`` and its kin; the filters are PIL's).
"""
from __future__ import annotations

import math
from typing import Callable, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import numel
from ..promote import to_float
from .contractions import matmul
from .registry import NoRule, opmath, rule
from .resizing import Scale
from .softmax import along

Ints = Sequence[int]
Filter = Callable[[Value], Value]


def _triangle(t: Value) -> Value:
    return p.maximum(1.0 - p.abs(t), 0.0)


def _cubic(t: Value) -> Value:
    """Keys' cubic convolution with a = -0.5."""
    t = p.abs(t)
    near, far = (t * 1.5 - 2.5) * t * t + 1.0, ((t - 5.0) * t + 8.0) * t * -0.5 + 2.0
    return p.where(p.lt(t, 1.0), near, p.where(p.lt(t, 2.0), far, 0.0))


def _lanczos(t: Value) -> Value:
    """sinc(t) * sinc(t / 3) within 3 of the centre."""
    sinc = lambda v: p.where(p.eq(v, 0.0), 1.0, p.sin(v * math.pi) / (v * math.pi))
    return p.where(p.lt(p.abs(t), 3.0), sinc(t) * sinc(t / 3.0), 0.0)


FILTERS: dict[str, tuple[Filter, float]] = {"bilinear": (_triangle, 1.0), "bicubic": (_cubic, 2.0), "lanczos": (_lanczos, 3.0)}


def _weights(size: int, out: int, align_corners: bool, given: Scale, name: str, x: Value) -> Value:
    """(out, size): what each source element gives to each position of the result; rows sum to 1."""
    fn, reach = FILTERS[name]
    scale = ((size - 1) / (out - 1) if out > 1 else 0.0) if align_corners else (1.0 / given if given else size / out)
    support = reach * max(scale, 1.0)
    shape = (out, size)
    i = p.broadcast_in_dim(p.convert(p.iota(out, 0, 1, torch.int64, x.device), x.dtype), shape, (0,))
    j = p.broadcast_in_dim(p.convert(p.iota(size, 0, 1, torch.int64, x.device), x.dtype), shape, (1,))
    centre = (i + 0.5) * scale
    first = p.maximum(p.trunc(centre - support + 0.5), 0.0)
    last = p.minimum(p.trunc(centre + support + 0.5), to_float(size))
    weights = fn((j - centre + 0.5) / max(scale, 1.0))
    weights = p.where(p.logical_and(p.ge(j, first), p.lt(j, last)), weights, 0.0)
    total = p.sum(weights, (1,), True)
    return weights / along(p.where(p.eq(total, 0.0), 1.0, total), weights)


def _both(x: Value, rows: Value, columns: Value) -> Value:
    """rows @ x @ columns.T for (n, c, height, width)."""
    return matmul(rows, matmul(x, p.permute(columns, (1, 0))))


def _register(name: str) -> None:
    @rule(f"_upsample_{name}2d_aa", library=True)
    def forward(x: Value, output_size: Ints, align_corners: bool, *scales: Scale) -> Value:
        if not x.dtype.is_floating_point:
            raise NoRule("filtered resizing of integers")
        wide = opmath(x)
        sides = [_weights(n, out, align_corners, s, name, wide) for n, out, s in zip(x.shape[2:], output_size, scales or (None, None))]
        return p.convert(_both(wide, *sides), x.dtype)

    @rule(f"_upsample_{name}2d_aa_backward", library=True)
    def backward(grad: Value, output_size: Ints, input_size: Ints, align_corners: bool, *scales: Scale) -> Value:
        if grad.numel() == 0 or numel(input_size) == 0:
            raise NoRule("resizing of nothing")
        wide = opmath(grad)
        sides = [p.permute(_weights(n, out, align_corners, s, name, wide), (1, 0))
                 for n, out, s in zip(input_size[2:], output_size, scales or (None, None))]
        return p.convert(_both(wide, *sides), grad.dtype)


for _name in FILTERS:
    _register(_name)
