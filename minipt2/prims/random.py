"""Random numbers, drawn by the reference from PyTorch's own generator, so that they are eager's. Never shared, moved or made again.

Except ``random_bits``: a function of a seed and a position, which loops compute where they need it, as often as they like. Only its seed
is drawn. The method: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

Upstream: ``torch._prims`` (``normal``, ``_uniform_helper``) and ``torch._prims.rng_prims``.
"""
from __future__ import annotations

import math
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


@prim("random", lambda device: torch.randint(-1 << 63, (1 << 63) - 1, (), dtype=torch.int64, device=device))
def random_seed(device: torch.device) -> T:
    """One int64 from the device's generator, from which ``random_bits`` makes any amount of numbers."""
    return _rows((), torch.int64, device)


_LOW = (1 << 32) - 1


def philox(seed: torch.Tensor, position: torch.Tensor, draw: int) -> torch.Tensor:
    """Word ``position % 4`` of Philox 4x32-10 with the key ``seed`` at the counter (position // 4, draw): int64, of which 32 bits are used."""
    keys = [seed & _LOW, (seed >> 32) & _LOW]
    block = position >> 2
    a, b, c, d = block & _LOW, (block >> 32) & _LOW, torch.full_like(block, draw), torch.zeros_like(block)
    for _ in range(10):
        high_c, low_c = _product(0xCD9E8D57, c)
        high_a, low_a = _product(0xD2511F53, a)
        a, b, c, d = high_c ^ b ^ keys[0], low_c, high_a ^ d ^ keys[1], low_a
        keys = [(keys[0] + 0x9E3779B9) & _LOW, (keys[1] + 0xBB67AE85) & _LOW]
    word = position & 3
    return torch.where(word < 2, torch.where(word == 0, a, b), torch.where(word == 2, c, d))


def _product(a: int, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Upper and lower 32 bits of products of 32-bit numbers, in int64."""
    low, middle = a * (b & 0xFFFF), a * (b >> 16)  # below 2**48 each
    carried = middle + (low >> 16)
    return carried >> 16, ((carried & 0xFFFF) << 16) | (low & 0xFFFF)


def _random_bits_ref(seed: torch.Tensor, draw: int, shape: Ints) -> torch.Tensor:
    position = torch.arange(math.prod(shape), dtype=torch.int64, device=seed.device).reshape(shape)
    return (philox(seed, position, draw) >> 1).to(torch.int32)


@prim("pointwise", _random_bits_ref)
def random_bits(seed: T, draw: int, shape: Ints) -> T:
    """31 random bits for every element, as int32; ``draw`` tells apart what is made from one seed."""
    return _rows(shape, torch.int32, seed.device)


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
