"""What eager's elementwise kernels refuse and meta kernels do not: writing over memory that an operand is still read from.

Upstream: ``at::assert_no_partial_overlap`` (``aten/src/ATen/MemoryOverlap.cpp``).
"""
from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

_COMPARISONS = frozenset(f"aten::{name}_" for name in "eq ne lt le gt ge".split())
_REFUSED = ("unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. "
            "Please clone() the tensor before performing the operation.")


def writes_elementwise(func: OpOverload) -> bool:
    """Whether ``func`` writes its first operand element by element: ``add_``, ``copy_`` …"""
    name = func._schema.name
    return name.endswith("_") and func._schema.is_mutable and (torch.Tag.pointwise in func.tags or name in _COMPARISONS or name == "aten::copy_")


def refuse_partial_overlap(written: Any, others: Any) -> None:
    """Raise eager's RuntimeError where the fake tensor ``written`` shares some of the memory of one of ``others``, and does not lie as that does.

    Like eager it only judges tensors that fill their stretch of memory; sizes that are symbols are let pass.
    """
    stretch = _stretch(written)
    for other in tree_leaves(others) if stretch is not None else ():
        if not hasattr(other, "elem") or other is written or other.elem.untyped_storage()._cdata != written.elem.untyped_storage()._cdata:
            continue
        theirs = _stretch(other)
        if theirs is None or theirs[0] >= stretch[1] or stretch[0] >= theirs[1]:
            continue
        if theirs != stretch or other.stride() != written.stride():
            raise RuntimeError(_REFUSED)


def _stretch(t: torch.Tensor) -> tuple[int, int] | None:
    """First byte and end of the memory of a tensor without gaps; None for one with gaps, or of unknown or no size."""
    shape, strides = tuple(t.shape), t.stride()
    if not all(type(n) is int for n in (*shape, *strides, t.storage_offset())) or 0 in shape:
        return None
    expected = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape) if n != 1):
        if stride != expected:
            return None
        expected *= n
    start = t.storage_offset() * t.element_size()
    return start, start + expected * t.element_size()
