"""Sampling an image at the points of a grid, and its gradients. Upstream: ``torch._decomp`` (``grid_sampler_2d``), ATen's ``GridSampler.cpp``.

A point is blended from corners: all combinations of low and high neighbour along each axis. The weight of a corner is a product of
one factor an axis, so its derivative along an axis replaces that factor by its slope.
"""
from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Iterator, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import numel
from ..promote import to_float
from .registry import NoRule, full_like, rule
from .views import select

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


def _unnormalised(x: Value, size: int, align_corners: bool) -> tuple[Value, float]:
    """Positions in elements from positions between -1 and 1; and how much one step of the latter is."""
    scale = (size - 1) / 2 if align_corners else size / 2
    return (x + 1.0) * scale - (0.0 if align_corners else 0.5), scale


def _reflected(x: Value, size: int, align_corners: bool) -> tuple[Value, Value]:
    """Positions folded back at the edges, and the sign of their slope."""
    low, span = (0.0, to_float(size - 1)) if align_corners else (-0.5, to_float(size))
    if span == 0:
        return full_like(x, 0.0), full_like(x, 0.0)
    away = x - low
    size_of = p.abs(away)
    flips, rest = p.floor(size_of / span), p.fmod(size_of, span)
    even = p.eq(p.fmod(flips, 2.0), 0.0)
    sign = p.where(p.lt(away, 0.0), full_like(x, -1.0), full_like(x, 1.0))
    return p.where(even, rest + low, (span + low) - rest), p.where(even, sign, -sign)


def _place(x: Value, size: int, padding_mode: int, align_corners: bool) -> tuple[Value, Value]:
    """(position in elements, its derivative) for one axis of the grid."""
    x, scale = _unnormalised(x, size, align_corners)
    slope = full_like(x, scale)
    if padding_mode == _ZEROS:
        return x, slope
    if padding_mode == _REFLECTION:
        x, sign = _reflected(x, size, align_corners)
        slope = slope * sign
    inside = p.logical_and(p.gt(x, 0.0), p.lt(x, to_float(size - 1)))
    return p.minimum(p.maximum(x, 0.0), to_float(size - 1)), p.where(inside, slope, 0.0)


class _Grid:
    """Corners around each point of a grid: flat position in the image, whether it lies inside, and its factor along each axis."""

    def __init__(self, x: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool):
        if mode not in (_BILINEAR, _NEAREST) or x.numel() == 0 or grid.numel() == 0:
            raise NoRule("cubic sampling, or of nothing")
        self.sizes, self.mode = x.shape[2:], mode
        axes = [select(grid, grid.ndim - 1, i) for i in reversed(range(len(self.sizes)))]  # the grid names the last axis first
        self.places, self.slopes = zip(*[_place(a, n, padding_mode, align_corners) for a, n in zip(axes, self.sizes)])

    def corners(self) -> Iterator[tuple[Value, Value, list[Value], list[float]]]:
        """(flat position, inside, factors, sign of each factor's slope)."""
        if self.mode == _NEAREST:
            yield (*self._flat([p.round(a) for a in self.places]), [], [])
            return
        low = [p.floor(a) for a in self.places]
        for at in product((0, 1), repeat=len(self.sizes)):
            factors = [a - b if high else b + 1.0 - a for a, b, high in zip(self.places, low, at)]
            yield (*self._flat([b + to_float(high) for b, high in zip(low, at)]), factors, [1.0 if high else -1.0 for high in at])

    def _flat(self, corner: Sequence[Value]) -> tuple[Value, Value]:
        inside = reduce(p.logical_and, [p.logical_and(p.ge(c, 0.0), p.lt(c, to_float(n))) for c, n in zip(corner, self.sizes)])
        flat = None
        for c, n in zip(corner, self.sizes):
            at = p.minimum(p.maximum(p.convert(p.where(inside, c, 0.0), torch.int64), 0), n - 1)
            flat = at if flat is None else flat * n + at
        return flat, inside


def _spread(v: Value, channels: int) -> Value:
    """(n, *points) -> (n, channels, points)."""
    flat = p.reshape(v, (v.shape[0], 1, numel(v.shape[1:])))
    return p.broadcast_in_dim(flat, (v.shape[0], channels, flat.shape[2]), (0, 1, 2))


@rule("grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback", library=True)
def grid_sampler(x: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool) -> Value:
    """(n, c, *image) at (n, *points, rank) -> (n, c, *points)."""
    n, c = x.shape[:2]
    image = p.reshape(x, (n, c, numel(x.shape[2:])))
    total = None
    for flat, inside, factors, _ in _Grid(x, grid, mode, padding_mode, align_corners).corners():
        value = p.where(_spread(inside, c), p.gather(image, 2, _spread(flat, c)), 0.0)
        value = value * _spread(reduce(p.mul, factors), c) if factors else value
        total = value if total is None else total + value
    return p.reshape(total, (n, c, *grid.shape[1:-1]))


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward", library=True)
def grid_sampler_backward(grad: Value, x: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool,
                          output_mask: Sequence[bool]) -> tuple[Value | None, Value]:
    """(gradient for the image, gradient for the grid)."""
    n, c = x.shape[:2]
    image, points = p.reshape(x, (n, c, numel(x.shape[2:]))), grid.shape[:-1]
    g = p.reshape(grad, (n, c, numel(points[1:])))
    field = _Grid(x, grid, mode, padding_mode, align_corners)
    for_image = full_like(image, 0.0)
    for_axes = [p.full(points, 0.0, grid.dtype, grid.device) for _ in field.sizes]
    for flat, inside, factors, signs in field.corners():
        at, kept = _spread(flat, c), _spread(inside, c)
        share = p.where(kept, g, 0.0)
        for_image = p.scatter_add(for_image, 2, at, share * _spread(reduce(p.mul, factors), c) if factors else share)
        along_grad = p.reshape(p.sum(share * p.gather(image, 2, at), (1,), False), points) if factors else None
        for axis, sign in enumerate(signs):
            others = [f for i, f in enumerate(factors) if i != axis]
            for_axes[axis] = for_axes[axis] + reduce(p.mul, others, along_grad) * sign
    for_grid = [p.reshape(a * s, (*points, 1)) for a, s in zip(for_axes, field.slopes)]
    return (p.reshape(for_image, x.shape) if output_mask[0] else None), p.cat(tuple(reversed(for_grid)), grid.ndim - 1)


@rule("_grid_sampler_2d_cpu_fallback_backward", library=True)
def grid_sampler_cpu_backward(grad: Value, x: Value, grid: Value, mode: int, padding_mode: int, align_corners: bool) -> tuple[Value, Value]:
    return grid_sampler_backward(grad, x, grid, mode, padding_mode, align_corners, (True, True))
