"""Random operators as random prims and arithmetic. The prims' references draw what eager draws; a generator of the caller's stays his.

Upstream: ``torch._inductor.decomposition`` (``rand_like`` ...), ``torch._refs`` (``normal``).
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from ...config import config
from .. import ops as p
from ..core import Value
from ..meta import contiguous_strides, same_layout
from ..promote import is_float, to_float
from .registry import NoRule, broadcast_to, complete, rule

Ints = Sequence[int]


def _where(dtype: Any, device: Any) -> tuple[torch.dtype, torch.device]:
    return dtype or torch.get_default_dtype(), torch.device(device or "cpu")


def _plain(generator: Any) -> None:
    if generator is not None:
        raise NoRule("a generator of the caller's")


def _in_order(x: Value) -> Value:
    """Eager fills memory in order, whatever the layout: numbers of another layout would land elsewhere, unless they are not eager's."""
    if (x.device.type == "cpu" or config.eager_random) and not same_layout(x.shape, x.strides, contiguous_strides(x.shape)):
        raise NoRule("random numbers in the layout of another tensor")
    return x


@rule("rand", library=True)
def rand(size: Ints, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return p.rand(tuple(size), *_where(dtype, device))


@rule("randn", library=True)
def randn(size: Ints, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return p.randn(tuple(size), *_where(dtype, device))


@rule("randint.low", library=True)
def randint_low(low: int, high: int, size: Ints, *, dtype: Any = torch.int64, device: Any = None, **options: Any) -> Value:
    return p.randint(low, high, tuple(size), *_where(dtype or torch.int64, device))


@rule("randint", library=True)
def randint(high: int, size: Ints, **options: Any) -> Value:
    return randint_low(0, high, size, **options)


@rule("randperm", library=True)
def randperm(n: int, *, dtype: Any = torch.int64, device: Any = None, **options: Any) -> Value:
    return p.randperm(n, *_where(dtype or torch.int64, device))


@rule("rand_like", library=True)
def rand_like(x: Value, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    return p.rand(_in_order(x).shape, dtype or x.dtype, device or x.device)


@rule("randn_like", library=True)
def randn_like(x: Value, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    return p.randn(_in_order(x).shape, dtype or x.dtype, device or x.device)


@rule("randint_like.low_dtype", library=True)
def randint_like_low(x: Value, low: int, high: int, *, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    return p.randint(low, high, _in_order(x).shape, dtype or x.dtype, device or x.device)


@rule("randint_like", library=True)
def randint_like(x: Value, high: int, **options: Any) -> Value:
    return randint_like_low(x, 0, high, **options)


@rule("bernoulli", library=True)
def bernoulli(chance: Value, *, generator: Any = None) -> Value:
    _plain(generator)
    return p.bernoulli(_in_order(chance))


@rule("bernoulli.p", library=True)
def bernoulli_number(x: Value, chance: float = 0.5, *, generator: Any = None) -> Value:
    _plain(generator)
    return p.bernoulli_number(_in_order(x).shape, chance, x.dtype, x.device)


@rule("bernoulli.Tensor", library=True)
def bernoulli_tensor(x: Value, chance: Value, *, generator: Any = None) -> Value:
    _plain(generator)
    return p.convert(p.bernoulli(broadcast_to(chance, _in_order(x).shape)), x.dtype)


@rule("native_dropout", library=True)
def native_dropout(x: Value, chance: float, train: bool | None) -> tuple[Value, Value]:
    """(x * mask / (1 - chance), bool mask)."""
    if train is False or chance == 0:
        return x, p.full(x.shape, True, torch.bool, x.device)
    if chance == 1 or not is_float(x.dtype):
        raise NoRule("dropout of everything or of integers")
    kept = p.bernoulli_number(_in_order(x).shape, 1 - chance, torch.bool, x.device)
    return x * p.convert(kept, x.dtype) * (1 / (1 - chance)), kept


@rule("uniform", library=True)
def uniform(x: Value, low: float = 0.0, high: float = 1.0, *, generator: Any = None) -> Value:
    """Between ``low`` and ``high``, drawn as eager does: one number between 0 and 1, stretched."""
    _plain(generator)
    drawn = p.rand(_in_order(x).shape, x.dtype, x.device)
    return drawn if (low, high) == (0.0, 1.0) else drawn * (high - low) + low


@rule("normal_functional", library=True)
def normal_functional(x: Value, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Value:
    _plain(generator)
    return _scaled(p.randn(_in_order(x).shape, x.dtype, x.device), mean, std)


def _scaled(drawn: Value, mean: Any, std: Any) -> Value:
    mean, std = (broadcast_to(v, drawn.shape) if isinstance(v, Value) else to_float(v) for v in (mean, std))
    return drawn * std + mean


@rule("normal.float_float", library=True)
def normal_numbers(mean: float, std: float, size: Ints, *, generator: Any = None, dtype: Any = None, device: Any = None, **options: Any) -> Value:
    _plain(generator)
    return _scaled(p.randn(tuple(size), *_where(dtype, device)), mean, std)


@rule("normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", library=True)
def normal_tensors(mean: Any, std: Any = 1.0, *, generator: Any = None) -> Value:
    _plain(generator)
    tensors = [v for v in (mean, std) if isinstance(v, Value)]
    if any(v.dtype is not tensors[0].dtype or v.shape != tensors[0].shape for v in tensors):
        raise NoRule("normal numbers with parameters of several shapes or dtypes")
    return _scaled(p.randn(_in_order(tensors[0]).shape, tensors[0].dtype, tensors[0].device), mean, std)


@rule("poisson", library=True)
def poisson(rate: Value, generator: Any = None) -> Value:
    _plain(generator)
    return p.poisson(_in_order(rate))


@rule("binomial", library=True)
def binomial(count: Value, chance: Value, generator: Any = None) -> Value:
    _plain(generator)
    if count.shape != chance.shape or count.dtype is not chance.dtype:
        raise NoRule("binomial numbers with parameters of several shapes")
    return p.binomial(_in_order(count), _in_order(chance))


@rule("_standard_gamma", library=True)
def standard_gamma(alpha: Value, generator: Any = None) -> Value:
    _plain(generator)
    return p.standard_gamma(_in_order(alpha))


@rule("multinomial", library=True)
def multinomial(weights: Value, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Value:
    _plain(generator)
    return p.multinomial(weights, num_samples, replacement)


random_rules = {op: fn for op, fn in complete.items() if fn.__module__ == __name__}
"""The rules of this file, for compilers that make random numbers of their own out of the prims."""
