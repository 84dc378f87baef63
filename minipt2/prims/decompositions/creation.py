"""New tensors. Uninitialised ones become zeros: a graph has no use for their contents. Upstream: ``torch._refs`` (creation)."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..promote import is_float, to_float
from .registry import NoRule, number, rule

Ints = Sequence[int]


def _full(shape: Ints, value: Any, dtype: torch.dtype, device: Any, layout: Any = None) -> Value:
    if dtype.is_complex or layout not in (None, torch.strided):
        raise NoRule("a complex or sparse tensor")
    if isinstance(value, Value):
        raise NoRule("fill with a value held by a tensor")
    return p.full(tuple(shape), number(value, dtype), dtype, torch.device(device or "cpu"))


def _default_dtype(value: Any) -> torch.dtype:
    if isinstance(value, bool):
        return torch.bool
    return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.get_default_dtype()


@rule("full")
def full(size: Ints, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return _full(size, fill_value, dtype or _default_dtype(fill_value), device, layout)


@rule("zeros", "empty.memory_format")
def zeros(size: Ints, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, memory_format: Any = None) -> Value:
    return _full(size, 0, dtype or torch.get_default_dtype(), device, layout)


@rule("empty_strided")
def empty_strided(size: Ints, stride: Ints, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return _full(size, 0, dtype or torch.get_default_dtype(), device, layout)


@rule("ones")
def ones(size: Ints, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return _full(size, 1, dtype or torch.get_default_dtype(), device, layout)


@rule("scalar_tensor")
def scalar_tensor(s: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return _full((), s, dtype or torch.get_default_dtype(), device, layout)


@rule("full_like")
def full_like(x: Value, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
              memory_format: Any = None) -> Value:
    return _full(x.shape, fill_value, dtype or x.dtype, device or x.device, layout)


@rule("zeros_like", "empty_like")
def zeros_like(x: Value, **options: Any) -> Value:
    return full_like(x, 0, **options)


@rule("ones_like")
def ones_like(x: Value, **options: Any) -> Value:
    return full_like(x, 1, **options)


@rule("new_full")
def new_full(x: Value, size: Ints, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    return _full(size, fill_value, dtype or x.dtype, device or x.device, layout)


@rule("new_zeros", "new_empty")
def new_zeros(x: Value, size: Ints, **options: Any) -> Value:
    return new_full(x, size, 0, **options)


@rule("new_ones")
def new_ones(x: Value, size: Ints, **options: Any) -> Value:
    return new_full(x, size, 1, **options)


@rule("new_empty_strided")
def new_empty_strided(x: Value, size: Ints, stride: Ints, **options: Any) -> Value:
    return new_full(x, size, 0, **options)


@rule("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    whole = all(isinstance(v, (int, torch.SymInt)) for v in (start, end, step))
    dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
    if dtype in (torch.bfloat16, torch.float16) or (not is_float(dtype) and not whole):
        raise NoRule("arange that rounds on the way")
    span, stride = (end - start, step) if step > 0 else (start - end, -step)
    length = torch.sym_max((span + (stride - 1)) // stride if whole else int(-(-span // stride)), 0)
    return p.iota(length, number(start, dtype), number(step, dtype), dtype, torch.device(device or "cpu"))


@rule("arange.start")
def arange_start(start: Any, end: Any, **options: Any) -> Value:
    return arange(start, end, 1, **options)


@rule("arange")
def arange_end(end: Any, **options: Any) -> Value:
    return arange(0, end, 1, **options)


@rule("eye.m", "eye")
def eye(n: int, m: int | None = None, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    m, dtype, device = n if m is None else m, dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    rows = p.broadcast_in_dim(p.iota(n, 0, 1, torch.int64, device), (n, m), (0,))
    columns = p.broadcast_in_dim(p.iota(m, 0, 1, torch.int64, device), (n, m), (1,))
    return p.convert(p.eq(rows, columns), dtype)


@rule("linspace")
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Value:
    """Measured from the nearer end, as eager does."""
    dtype, device = dtype or torch.get_default_dtype(), torch.device(device or "cpu")
    if dtype not in (torch.float32, torch.float64) or isinstance(start, Value) or isinstance(end, Value):
        raise NoRule("linspace of integers or low precision")
    if steps == 1:
        return p.full((1,), to_float(start), dtype, device)
    step = (end - start) / (steps - 1) if steps != 0 else 0.0
    i = p.iota(steps, 0, 1, torch.int64, device)
    x = p.convert(i, dtype)
    return p.where(p.lt(i, steps // 2), x * step + to_float(start), to_float(end) - (to_float(steps - 1) - x) * step)
