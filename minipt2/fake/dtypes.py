"""What eager's kernels refuse and meta kernels do not: operands of unlike dtypes.

Without the refusal a graph would be captured that raises when it runs, after what the program did before that operator is out of reach.
Upstream: checks in the kernels themselves (``aten/src/ATen/native/LinearAlgebra.cpp``, ``Convolution.cpp``, ``mixed_data_type.h``).
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._ops import OpOverload

_ALIKE = {
    **dict.fromkeys("mm bmm mv dot vdot _cdist_forward linalg_cross heaviside complex polar grid_sampler_2d grid_sampler_3d".split(), (0, 1)),
    **dict.fromkeys("addmm addbmm addmv baddbmm convolution _convolution binary_cross_entropy".split(), (0, 1, 2)),
    **dict.fromkeys("index_add index_add_ index_copy index_copy_".split(), (0, 3)),
    **dict.fromkeys("index_put index_put_ _index_put_impl_ _unsafe_index_put nll_loss_forward nll_loss2d_forward".split(), (0, 2)),
    **dict.fromkeys("_embedding_bag _embedding_bag_forward_only".split(), (0, 6)),
}  # fmt: skip
"""Operators and the operands, by position, that must be of one dtype."""
_NORMS = {
    **dict.fromkeys("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training _batch_norm_with_update".split(), (1, 2, 3, 4)),
    "native_layer_norm": (2, 3), "native_group_norm": (1, 2),
}  # fmt: skip
"""Of these the input may be of lower precision than the others are."""
_REDUCED = (torch.bfloat16, torch.float16)


def dtype_refusal_of(func: OpOverload) -> Callable[[tuple, dict], None] | None:
    """The check of dtypes that eager's kernel of ``func`` makes; None if it makes none. It raises RuntimeError."""
    name = func._schema.name.removeprefix("aten::")
    if "dtype" in func._overloadname or func.namespace != "aten":
        return None
    if name in _ALIKE:
        return lambda args, kwargs: _refuse_unlike(name, _dtypes(func, _ALIKE[name], args, kwargs))
    if name in _NORMS and func._overloadname != "no_stats":
        return lambda args, kwargs: _refuse_norm(name, args[0], _dtypes(func, _NORMS[name], args, kwargs))
    return None


def _dtypes(func: OpOverload, places: tuple[int, ...], args: tuple, kwargs: dict) -> list[torch.dtype]:
    """Of the tensors among these operands."""
    names = func._schema.arguments
    found = (args[k] if k < len(args) else kwargs.get(names[k].name) for k in places)
    return [t.dtype for t in found if isinstance(t, torch.Tensor)]


def _refuse_unlike(name: str, dtypes: list[torch.dtype]) -> None:
    if any(dtype != dtypes[0] for dtype in dtypes[1:]):
        raise RuntimeError(f"{name} takes operands of one dtype, but got {_listed(dtypes)}")


def _refuse_norm(name: str, x: Any, others: list[torch.dtype]) -> None:
    """On a CPU: of the input's dtype, or all float32 where that is a shorter one."""
    if x.device.type != "cpu" or all(dtype == x.dtype for dtype in others):
        return
    if x.dtype not in _REDUCED or any(dtype != torch.float32 for dtype in others):
        raise RuntimeError(f"{name} of {_listed([x.dtype])} does not take operands of {_listed(others)}")


def _listed(dtypes: list[torch.dtype]) -> str:
    return " and ".join(dict.fromkeys(str(dtype).removeprefix("torch.") for dtype in dtypes))
