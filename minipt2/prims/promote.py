"""Type promotion: which dtype an operation computes in and which it returns.

Upstream: ``c10::promoteTypes`` and ``ResultTypeState`` in ``TypeProperties.cpp``; ``torch._prims_common.elementwise_dtypes``.
"""
from __future__ import annotations

from enum import Enum, auto
from functools import lru_cache
from typing import Any

import torch

from ..exercise import exercise

promote_types = lru_cache(None)(torch.promote_types)
LOW_PRECISION = (torch.bfloat16, torch.float16)
_TO_COMPLEX = {torch.float16: torch.complex32, torch.float64: torch.complex128}


class Kind(Enum):
    """How the result's dtype follows from the promoted dtype of the operands."""

    DEFAULT = auto()
    """The promoted dtype itself: add, mul, maximum."""
    INT_TO_FLOAT = auto()
    """Integers and bool become the default float: true division, exp, sqrt."""
    BOOL = auto()
    """Computed in the promoted dtype, returned as bool: comparisons."""
    BOOL_TO_INT = auto()
    """bool becomes int64: sums, products, pow."""


def _tier(x: Any) -> int:
    """0 for tensors with dimensions, 1 for 0-d tensors, 2 for Python numbers."""
    if isinstance(x, (bool, int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)):
        return 2
    return 1 if len(x.shape) == 0 else 0


def _own_dtype(x: Any) -> torch.dtype:
    if isinstance(x, (bool, torch.SymBool)):
        return torch.bool
    if isinstance(x, (int, torch.SymInt)):
        return torch.int64
    if isinstance(x, (float, torch.SymFloat)):
        return torch.get_default_dtype()
    if isinstance(x, complex):
        return _TO_COMPLEX.get(torch.get_default_dtype(), torch.complex64)
    return x.dtype


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """A lower tier changes the result only when its category (bool < int < float < complex) is higher."""
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return _TO_COMPLEX.get(higher, torch.complex64) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return promote_types(higher, lower)
    return higher


@exercise("4.1")
def computation_dtype(*xs: Any) -> torch.dtype:
    """The dtype to which operands are promoted: dimensioned tensors first, then 0-d tensors, then numbers."""
    # >>> 4.1
    tiers: list[torch.dtype | None] = [None, None, None]
    for x in xs:
        tier, dtype = _tier(x), _own_dtype(x)
        tiers[tier] = dtype if tiers[tier] is None else promote_types(tiers[tier], dtype)
    result = _combine(_combine(tiers[0], tiers[1]), tiers[2])
    if result is None:
        raise ValueError("result_dtype needs at least one operand")
    return result
    # <<< 4.1


def result_dtype(*xs: Any, kind: Kind = Kind.DEFAULT) -> torch.dtype:
    """The dtype an elementwise operation of ``kind`` returns for these tensors and Python numbers."""
    return apply_kind(computation_dtype(*xs), kind)


def apply_kind(dtype: torch.dtype, kind: Kind) -> torch.dtype:
    """The result dtype for operands promoted to ``dtype``."""
    if kind is Kind.BOOL:
        return torch.bool
    if kind is Kind.INT_TO_FLOAT and not (dtype.is_floating_point or dtype.is_complex):
        return torch.get_default_dtype()
    if kind is Kind.BOOL_TO_INT and dtype is torch.bool:
        return torch.int64
    return dtype


def to_float(x: Any) -> Any:
    """``float(x)``, which stays symbolic where ``x`` is."""
    return _symbolic(float, x) if isinstance(x, torch.SymBool) else torch.sym_float(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else float(x)


def to_int(x: Any) -> Any:
    """``int(x)``, which stays symbolic where ``x`` is."""
    return _symbolic(int, x) if isinstance(x, torch.SymBool) else torch.sym_int(x) if isinstance(x, (torch.SymInt, torch.SymFloat)) else int(x)


def _symbolic(kind: type, truth: torch.SymBool) -> Any:
    from ..shapes import call

    return call(kind, truth)


def opmath_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager kernels compute composite formulas: float32 for bfloat16 and float16."""
    return torch.float32 if dtype in LOW_PRECISION else dtype


def is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point


def is_integer(dtype: torch.dtype) -> bool:
    """Integers and bool."""
    return not (dtype.is_floating_point or dtype.is_complex)


_EXACT_INT_BITS = {torch.bool: 1, torch.uint8: 8, torch.int8: 8, torch.int16: 16, torch.int32: 32, torch.int64: 64,
                   torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}


@lru_cache(None)
def lossless(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether every value of ``source`` is one of ``target``, so that converting there and on is converting once."""
    if source is target:
        return True
    if source not in _EXACT_INT_BITS or target not in _EXACT_INT_BITS:
        return False
    if is_float(source):
        return (source, target) in ((torch.float16, torch.float32), (torch.bfloat16, torch.float32)) or target is torch.float64
    if target is torch.bool or (target is torch.uint8 and source is not torch.bool):
        return False
    if target is torch.int8 and source is torch.uint8:
        return False
    return _EXACT_INT_BITS[source] <= _EXACT_INT_BITS[target]
