"""``interpolate`` of tensors whose sizes vary: torch's C++ computes the new sizes as numbers, so they are computed here.

Upstream: ``torch/_decomp/decompositions.py`` (``upsample_compute_output_size``).
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable

import torch
from torch.nn import functional as F

from .base import Variable
from .containers import const, constants
from .numbers import SYMBOLIC, computed
from .tensor import TensorVariable
from .torch_functions import HANDLERS

NAMES = ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
         "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
         "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip


def has_symbols(var: Variable) -> bool:
    return isinstance(var, TensorVariable) and any(isinstance(n, SYMBOLIC) for n in var.value.shape)


def _inlined(function: Callable) -> Callable:
    def handler(tx, input, *args, **kwargs):
        from .functions import UserFunctionVariable

        if has_symbols(input):
            return UserFunctionVariable(function).call(tx, [input, *args], kwargs)
        return tx.output.call(tx, function, [input, *args], kwargs)

    return handler


def _upsample(name: str) -> Callable:
    function, overload = getattr(torch._C._nn, name), getattr(torch.ops.aten, name).default

    def handler(tx, input, output_size, *rest):
        *options, scales = rest
        if not has_symbols(input):
            return tx.output.call(tx, function, [input, output_size, *rest], {})
        if constants(output_size) != (None,):
            sizes, factors = output_size, [const(None)] * (input.value.dim() - 2)
        else:
            factors = scales.iterate(tx)
            sizes = tx.list([_scaled(tx, size, factor) for size, factor in zip(input.getattr(tx, "shape").items[2:], factors)])
        return tx.output.call(tx, overload, [input, sizes, *options, *factors], {})

    return handler


def _scaled(tx, size: Any, factor: Any) -> Variable:
    """As C++ has it: the product of floating point numbers, rounded down."""
    product = computed(tx, operator.mul, computed(tx, float, size.value).value, factor.value)
    return computed(tx, math.floor, product.value)


for _name in NAMES:
    HANDLERS[getattr(torch._C._nn, _name)] = _upsample(_name)
for _function in (F.interpolate, F.upsample, F.upsample_nearest, F.upsample_bilinear):
    HANDLERS[_function] = _inlined(_function)
