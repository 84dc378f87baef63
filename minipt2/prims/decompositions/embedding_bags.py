"""Gradients of embedding bags: rows of a table summed or averaged. The forward kernel stays ATen's: what else it returns depends on its path.

Upstream: ATen's ``EmbeddingBag.cpp``.
"""
from __future__ import annotations

import torch

from .. import ops as p
from ..core import Value
from .registry import NoRule, rule

V = Value | None
_MEAN, _MAX = 1, 2


def _long(x: Value) -> Value:
    return p.convert(x, torch.int64)


def _kept(rows: Value, indices: Value, padding_idx: int) -> Value:
    """``rows`` with those of the padding index set to 0."""
    if padding_idx < 0:
        return rows
    return p.where(p.broadcast_in_dim(p.ne(_long(indices), padding_idx), rows.shape, (0,)), rows, 0.0)


@rule("_embedding_bag_dense_backward", library=True)
def dense_backward(grad: Value, indices: Value, offset2bag: Value, bag_size: Value, maximum_indices: Value, num_weights: int,
                   scale_grad_by_freq: bool, mode: int, per_sample_weights: V, padding_idx: int = -1) -> Value:
    """Each row of the table gets the gradient of the bags it was in."""
    if mode == _MAX or scale_grad_by_freq or offset2bag.shape != indices.shape:
        raise NoRule("embedding bags of maxima, or scaled by frequency")
    bags = _long(offset2bag)
    rows = p.index_select(grad, 0, bags)
    if per_sample_weights is not None:
        rows = rows * p.broadcast_in_dim(per_sample_weights, rows.shape, (0,))
    if mode == _MEAN:
        sizes = p.convert(p.maximum(p.index_select(_long(bag_size), 0, bags), 1), rows.dtype)
        rows = rows / p.broadcast_in_dim(sizes, rows.shape, (0,))
    zeros = p.full((num_weights, grad.shape[1]), 0.0, grad.dtype, grad.device)
    return p.index_put(zeros, (_long(indices),), _kept(rows, indices, padding_idx), True)


@rule("_embedding_bag_backward", library=True)
def backward(grad: Value, indices: Value, offsets: Value, offset2bag: Value, bag_size: Value, maximum_indices: Value, num_weights: int,
             scale_grad_by_freq: bool, mode: int, sparse: bool, per_sample_weights: V, padding_idx: int = -1) -> Value:
    if sparse:
        raise NoRule("sparse gradients")
    return dense_backward(grad, indices, offset2bag, bag_size, maximum_indices, num_weights, scale_grad_by_freq, mode, per_sample_weights,
                          padding_idx)


@rule("_embedding_bag_per_sample_weights_backward", library=True)
def per_sample_weights_backward(grad: Value, weight: Value, indices: Value, offsets: Value, offset2bag: Value, mode: int,
                                padding_idx: int = -1) -> Value:
    """The product of a row and the gradient of its bag."""
    if offset2bag.shape != indices.shape:
        raise NoRule("bags that only offsets tell")
    product = p.index_select(grad, 0, _long(offset2bag)) * p.index_select(weight, 0, _long(indices))
    return p.sum(_kept(product, indices, padding_idx), (1,), False)
