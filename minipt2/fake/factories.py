"""Metadata of operators that make tensors out of sizes and numbers, as ``families`` has it for the others.

Imported for its entries in the table of ``families``. Upstream: ``torch._meta_registrations``.
"""
from __future__ import annotations

import functools
from typing import Sequence

import torch
from torch._ops import OpOverload

from ..prims.meta import contiguous_strides
from .families import PLAIN, Irregular, dense_strides, family, new
from .tensor import FakeMode, FakeTensor

aten = torch.ops.aten


@family(aten.full.default, aten.ones.default, aten.zeros.default, aten.rand.default, aten.randn.default, aten.scalar_tensor.default)
def _factory(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    shape = () if func is aten.scalar_tensor.default else args[0]
    if not _plain(kwargs):
        raise Irregular
    return _made(mode, func, shape, args[1:] if func is aten.full.default else args, kwargs)


@family(aten.arange.default, aten.arange.start, aten.arange.start_step)
def _arange(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    if not all(type(a) in (int, torch.SymInt) for a in args) or not _plain(kwargs):
        raise Irregular
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1)[:3]
    if step == 0:
        raise Irregular
    span, step = (end - start, step) if step > 0 else (start - end, -step)
    if span < 0:
        raise Irregular
    return _made(mode, func, ((span + (step - 1)) // step,), args, kwargs)


@family(aten.zeros_like.default, aten.ones_like.default, aten.empty_like.default, aten.full_like.default, aten.rand_like.default,
        aten.randn_like.default)
def _shaped_like(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    x = args[0]
    if kwargs.get("memory_format") not in (None, torch.preserve_format, torch.contiguous_format) or not _plain(kwargs):
        raise Irregular
    keep = kwargs.get("memory_format") is not torch.contiguous_format
    return new(mode, x.shape, x, kwargs.get("dtype"), dense_strides(x) if keep else None, kwargs.get("device"))


@family(aten.new_zeros.default, aten.new_ones.default, aten.new_empty.default, aten.new_full.default)
def _new_of(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> FakeTensor:
    if not _plain(kwargs):
        raise Irregular
    return new(mode, args[1], args[0], kwargs.get("dtype"), None, kwargs.get("device"))


def _plain(kwargs: dict) -> bool:
    return kwargs.get("layout") in (None, torch.strided) and not kwargs.get("pin_memory")


def _made(mode: FakeMode, func: OpOverload, shape: Sequence[int], values: tuple, kwargs: dict) -> FakeTensor:
    dtype = kwargs.get("dtype") or _factory_dtype(func, tuple(PLAIN.get(type(v), type(v)) for v in values), torch.get_default_dtype())
    elem = torch.empty_strided(shape, contiguous_strides(shape), dtype=dtype, device="meta")
    return FakeTensor(mode, elem, torch.device(kwargs.get("device") or torch.get_default_device()))


@functools.cache
def _factory_dtype(func: OpOverload, kinds: tuple[type, ...], default: torch.dtype) -> torch.dtype:
    """What eager makes of numbers of these types."""
    values = [kind(1) for kind in kinds if kind in (bool, int, float, complex)]
    return func((1,), *values).dtype if func is aten.full.default else func(*values).dtype if values else default
