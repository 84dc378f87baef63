"""What ops cost, roughly, in units of one addition: for deciding what to recompute, what to keep, and when threads pay.

Measured on vectorised C (one addition: about 0.1 ns an element). Upstream: ``torch._inductor.choices`` and ``scheduler.get_flops``.
"""
from __future__ import annotations

from typing import Any

import torch

HALF = (torch.bfloat16, torch.float16)
SLOW = {"exp": 8, "exp2": 12, "expm1": 15, "log": 12, "log1p": 15, "log2": 12, "log10": 12, "sqrt": 4, "rsqrt": 6, "reciprocal": 4, "div": 4,
        "sin": 15, "cos": 15, "tan": 20, "asin": 20, "acos": 20, "atan": 20, "sinh": 20, "cosh": 20, "tanh": 15, "asinh": 25, "acosh": 25,
        "atanh": 25, "erf": 15, "erfc": 30, "erfinv": 60, "lgamma": 60, "digamma": 60, "sigmoid": 14, "pow": 30, "atan2": 25, "hypot": 10,
        "fmod": 40, "remainder": 40, "floordiv": 15, "truncdiv": 8, "nextafter": 10, "masked": 3, "random_bits": 12}
"""Rough costs in units of an addition, for deciding what to recompute and when threads pay; every other op counts 1."""


def cost(op: str, dtype: Any) -> int:
    """Rough cost of one op in additions; loads and stores of half types convert."""
    if op in ("constant", "scalar", "index_expr", "indirect"):
        return 0
    if op in ("load", "store", "to_dtype"):
        return 3 if dtype in HALF else 1
    return SLOW.get(op, 1)
