"""Random numbers, drawn by the reference from PyTorch's own generator, so that they are eager's. Never shared, moved or made again.

Upstream: ``torch._prims`` (``normal``, ``_uniform_helper``) and ``torch._prims.rng_prims``.
"""
from __future__ import annotations

from typing import Sequence

import torch

from .core import Number, TensorMeta, prim
from .meta import contiguous_strides

T = TensorMeta
Ints = Sequence[int]


def _rows(shape: Ints, dtype: torch.dtype, device: torch.device) -> TensorMeta:
    return TensorMeta(tuple(shape), dtype, device, contiguous_strides(shape))


@prim("random", lambda shape, dtype, device: torch.rand(shape, dtype=dtype, device=device))
def rand(shape: Ints, dtype: torch.dtype, device: torch.device) -> T:
    """Uniform between 0 (possible) and 1 (not)."""
    return _rows(shape, dtype, device)


@prim("random", lambda shape, dtype, device: torch.randn(shape, dtype=dtype, device=device))
def randn(shape: Ints, dtype: torch.dtype, device: torch.device) -> T:
    """Normal with mean 0 and variance 1."""
    return _rows(shape, dtype, device)


@prim("random", lambda low, high, shape, dtype, device: torch.randint(low, high, shape, dtype=dtype, device=device))
def randint(low: int, high: int, shape: Ints, dtype: torch.dtype, device: torch.device) -> T:
    """Whole numbers from low to high - 1, all as likely."""
    return _rows(shape, dtype, device)


@prim("random", lambda n, dtype, device: torch.randperm(n, dtype=dtype, device=device))
def randperm(n: int, dtype: torch.dtype, device: torch.device) -> T:
    """0 to n - 1 in random order."""
    return _rows((n,), dtype, device)


@prim("random", torch.bernoulli)
def bernoulli(chance: T) -> T:
    """1 with the chance that each element says, else 0, in its dtype."""
    return _rows(chance.shape, chance.dtype, chance.device)


def _same_bernoulli(shape: Ints, chance: Number, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device=device).bernoulli_(chance)


@prim("random", _same_bernoulli)
def bernoulli_number(shape: Ints, chance: Number, dtype: torch.dtype, device: torch.device) -> T:
    """1 with one chance for all elements, else 0; a generator of its own in eager, hence a prim of its own."""
    return _rows(shape, dtype, device)


@prim("random", torch.poisson)
def poisson(rate: T) -> T:
    """Poisson numbers with the given rates."""
    return _rows(rate.shape, rate.dtype, rate.device)


@prim("random", torch.binomial)
def binomial(count: T, chance: T) -> T:
    """Successes in count trials of the given chances."""
    return _rows(count.shape, count.dtype, count.device)


@prim("random", lambda alpha: torch.ops.aten._standard_gamma.default(alpha))
def standard_gamma(alpha: T) -> T:
    """Gamma numbers of shape alpha and scale 1."""
    return _rows(alpha.shape, alpha.dtype, alpha.device)


@prim("random", lambda weights, count, replacement: torch.multinomial(weights, count, replacement))
def multinomial(weights: T, count: int, replacement: bool) -> T:
    """int64 positions in each row, drawn in proportion to its weights."""
    return _rows((*weights.shape[:-1], count), torch.int64, weights.device)
