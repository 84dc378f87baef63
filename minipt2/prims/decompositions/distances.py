"""Distances between rows, norms of slices and products of three. Upstream: ``torch._refs`` (``dist``, ``renorm``), ATen's ``Distance.cpp``."""
from __future__ import annotations

import math
from typing import Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import broadcast_shapes, numel, wrap_dim
from ..promote import to_float
from .contractions import matmul
from .reductions import linalg_vector_norm
from .registry import NoRule, broadcast_to, full_like, opmath, rule
from .softmax import along, softmax

Ints = Sequence[int]


def _pairs(a: Value, b: Value) -> Value:
    """(..., rows of a, rows of b, width): differences of all pairs."""
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape, k = (*batch, a.shape[-2], b.shape[-2], a.shape[-1]), len(batch)
    a, b = (broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b))
    lead = tuple(range(k))
    return p.broadcast_in_dim(a, shape, (*lead, k, k + 2)) - p.broadcast_in_dim(b, shape, (*lead, k + 1, k + 2))


@rule("_cdist_forward", library=True)
def cdist(a: Value, b: Value, order: float, compute_mode: int | None) -> Value:
    difference = _pairs(a, b)
    if difference.numel() == 0:
        raise NoRule("distances of nothing")
    return linalg_vector_norm(difference, order, (difference.ndim - 1,))


def _slope(difference: Value, distance: Value, order: float) -> Value:
    """Derivative of the norm of ``difference`` (its last dimension) for each of its elements; 0 where they are equal."""
    norm = p.broadcast_in_dim(distance, difference.shape, tuple(range(distance.ndim)))
    size, sign = p.abs(difference), p.sign(difference)
    if order == 0:
        return full_like(difference, 0.0)
    if order == 1:
        return sign
    if math.isinf(order):
        return p.where(p.eq(size, norm), sign, 0.0)
    if order == 2:
        slope = difference / norm
    else:
        slope = sign * p.pow(size / norm, order - 1.0)
    return p.where(p.eq(norm, 0.0), 0.0, p.where(p.eq(size, 0.0), 0.0, slope))


@rule("_cdist_backward", library=True)
def cdist_backward(grad: Value, a: Value, b: Value, order: float, distance: Value) -> Value:
    """The gradient for the first operand."""
    difference = _pairs(a, b)
    if difference.numel() == 0:
        raise NoRule("distances of nothing")
    spread = p.broadcast_in_dim(grad, difference.shape, tuple(range(grad.ndim)))
    return p.sum(spread * _slope(difference, distance, order), (difference.ndim - 2,), False)


@rule("_euclidean_dist", library=True)
def euclidean_dist(a: Value, b: Value) -> Value:
    return cdist(a, b, 2.0, None)


def _upper(n: int, device: torch.device) -> tuple[Value, Value]:
    """Rows and columns of the pairs i < j, row by row."""
    rows = tuple([p.full((n - 1 - i,), i, torch.int64, device) for i in range(n - 1)])
    columns = tuple([p.iota(n - 1 - i, i + 1, 1, torch.int64, device) for i in range(n - 1)])
    return p.cat(rows, 0), p.cat(columns, 0)


def _pair_difference(x: Value) -> tuple[Value, Value, Value]:
    if x.shape[0] < 2 or x.shape[1] == 0:
        raise NoRule("distances of nothing")
    i, j = _upper(x.shape[0], x.device)
    return i, j, p.index_select(x, 0, i) - p.index_select(x, 0, j)


@rule("_pdist_forward", library=True)
def pdist(x: Value, order: float = 2) -> Value:
    """Distances of all pairs of rows i < j."""
    return linalg_vector_norm(_pair_difference(x)[2], order, (1,))


@rule("_pdist_backward", library=True)
def pdist_backward(grad: Value, x: Value, order: float, distance: Value) -> Value:
    i, j, difference = _pair_difference(x)
    share = along(p.reshape(grad, (grad.numel(), 1)), difference) * _slope(difference, distance, order)
    zeros = full_like(x, 0.0)
    return p.index_put(p.index_put(zeros, (i,), share, True), (j,), p.neg(share), True)


@rule("dist", library=True)
def dist(a: Value, b: Value, order: float = 2) -> Value:
    shape = broadcast_shapes(a.shape, b.shape)
    return linalg_vector_norm(broadcast_to(a, shape) - broadcast_to(b, shape), order)


@rule("renorm", library=True)
def renorm(x: Value, order: float, dim: int, maxnorm: float) -> Value:
    """Slices along dim longer than maxnorm are shortened to it."""
    dim = wrap_dim(dim, x.ndim)
    norms = linalg_vector_norm(opmath(x), order, tuple([d for d in range(x.ndim) if d != dim]), True)
    factor = p.where(p.gt(norms, to_float(maxnorm)), to_float(maxnorm) / (norms + 1e-7), 1.0)
    return x * p.convert(along(factor, x), x.dtype)


@rule("_trilinear", library=True)
def trilinear(a: Value, b: Value, c: Value, expand1: Ints, expand2: Ints, expand3: Ints, sumdim: Ints, unroll_dim: int = 1) -> Value:
    """a * b * c over dimensions that each lacks, summed over sumdim."""
    for dims, index in ((expand1, 0), (expand2, 1), (expand3, 2)):
        x = (a, b, c)[index]
        shape = list(x.shape)
        for d in sorted(dims):
            shape.insert(d, 1)
        x = p.reshape(x, tuple(shape))
        a, b, c = ((x, b, c), (a, x, c), (a, b, x))[index]
    shape = broadcast_shapes(a.shape, b.shape, c.shape)
    product = along(a, broadcast := p.full(shape, 0.0, a.dtype, a.device)) * along(b, broadcast) * along(c, broadcast)
    return p.sum(product, tuple(sorted(sumdim)), False)


@rule("affine_grid_generator", library=True)
def affine_grid_generator(theta: Value, size: Ints, align_corners: bool) -> Value:
    """(n, *spatial, rank): theta applied to the coordinates, from -1 to 1, of every position."""
    spatial = tuple(size[2:])
    rank, axes = len(spatial), []
    for d, n in enumerate(spatial):
        i = p.convert(p.iota(n, 0, 1, torch.int64, theta.device), theta.dtype)
        span = (n - 1) / n if not align_corners else 1.0
        line = i * (2.0 * span / (n - 1)) - span if n > 1 else i
        axes.append(p.broadcast_in_dim(line, spatial, (d,)))
    columns = [p.reshape(x, (1, numel(spatial), 1)) for x in [*reversed(axes), p.full(spatial, 1.0, theta.dtype, theta.device)]]
    base = p.broadcast_in_dim(p.cat(tuple(columns), 2), (size[0], numel(spatial), rank + 1), (0, 1, 2))
    return p.reshape(matmul(base, p.permute(theta, (0, 2, 1))), (size[0], *spatial, rank))


@rule("_weight_norm_interface", library=True)
def weight_norm(v: Value, g: Value, dim: int = 0) -> tuple[Value, Value]:
    """(v * g / norm, norm): the norm over all dimensions but dim."""
    norm = linalg_vector_norm(v, 2, tuple([d for d in range(v.ndim) if d != wrap_dim(dim, v.ndim)]), True)
    return v * along(g / norm, v), norm


@rule("_weight_norm_interface_backward", library=True)
def weight_norm_backward(grad: Value, v: Value, g: Value, norm: Value, dim: int) -> tuple[Value, Value]:
    dims = tuple([d for d in range(v.ndim) if d != wrap_dim(dim, v.ndim)])
    taken = p.sum(grad * v, dims, True)
    return along(g / norm, v) * (grad - v * along(taken / (norm * norm), v)), taken / norm


@rule("_masked_softmax", library=True)
def masked_softmax(x: Value, mask: Value, dim: int | None = None, mask_type: int | None = None) -> Value:
    """Softmax where mask does not hold; 0 where it does."""
    if mask.shape != x.shape:
        raise NoRule("a mask of another shape")
    return p.where(mask, 0.0, softmax(p.where(mask, -math.inf, x), x.ndim - 1 if dim is None else dim))


@rule("_masked_softmax_backward", library=True)
def masked_softmax_backward(grad: Value, out: Value, mask: Value, dim: int | None = None) -> Value:
    if mask.shape != out.shape:
        raise NoRule("a mask of another shape")
    dims = (wrap_dim(out.ndim - 1 if dim is None else dim, out.ndim),)
    weighted = grad * out
    return p.where(mask, 0.0, weighted - out * along(p.sum(weighted, dims, True), out))
