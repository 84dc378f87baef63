"""Dtypes of normalisations' results, where the fake kernels of this torch name another one than eager's kernels give.

On a CPU, a bfloat16 or float16 input with float32 parameters (what autocast makes) has float32 statistics; the gradient of a
group norm's input is in the input's dtype.
Upstream: ``is_mixed_type`` and ``param_scalar_type`` of ``aten/src/ATen/native/cpu/mixed_data_type.h``.
"""
from __future__ import annotations

from typing import Any

import torch

from .ops import aten

_PARAMETERS = {  # operator -> positions of weight, bias and running statistics
    aten.native_layer_norm.default: (2, 3),
    aten.native_group_norm.default: (1, 2),
    aten.native_batch_norm.default: (1, 2, 3, 4),
    aten._native_batch_norm_legit.default: (1, 2, 3, 4),
    aten._native_batch_norm_legit.no_stats: (1, 2),
}


def corrected(func: Any, args: tuple, result: Any) -> Any:
    """``result`` of ``func(*args)`` on fake tensors, in the dtypes that eager gives."""
    if func is aten.native_group_norm_backward.default and result[0] is not None:
        return (result[0].to(args[1].dtype), *result[1:])
    positions = _PARAMETERS.get(func)
    if positions is None or args[0].device.type != "cpu" or args[0].dtype not in (torch.bfloat16, torch.float16):
        return result
    wide = any(args[i] is not None and args[i].dtype is torch.float32 for i in positions)
    if not wide:
        return result
    return (result[0], *[r if r.dtype is torch.float32 else r.to(torch.float32) for r in result[1:3]], *result[3:])
