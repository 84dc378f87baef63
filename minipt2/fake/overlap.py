"""What eager's kernels refuse and meta kernels do not: writing memory that an operand is still read from, or one element twice.

Upstream: ``at::assert_no_partial_overlap`` and its kin (``aten/src/ATen/MemoryOverlap.cpp``).
"""
from __future__ import annotations

from math import prod
from typing import Any, Callable

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

from ..prims.meta import is_dense
from ..shapes.known import known

_ELEMENTWISE = frozenset(f"aten::{name}_" for name in "eq ne lt le gt ge copy cumsum cumprod normal uniform random exponential cauchy log_normal geometric bernoulli renorm".split())
_SCATTERING = frozenset(f"aten::{name}_" for name in "index_put _index_put_impl index_copy index_add index_reduce scatter scatter_add scatter_reduce put".split())
_ONLY_WARNED = frozenset(("aten::index_put_", "aten::_index_put_impl_", "aten::masked_fill_"))
"""Of an element that is written twice: eager warns that it will refuse one day."""
_PLEASE = "Please clone() the tensor before performing the operation."
_REFUSED = f"unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory location. {_PLEASE}"
_TWICE = f"unsupported operation: more than one element of the written-to tensor refers to a single memory location. {_PLEASE}"


def refusal_of(func: OpOverload) -> Callable[[tuple, dict], None] | None:
    """The check of operands that eager's kernel of ``func`` makes; None if it makes none. Each raises eager's RuntimeError."""
    name = func._schema.name
    if not func._schema.is_mutable or not name.endswith("_"):
        return None
    if name.startswith("aten::_foreach_"):
        return _refuse_each
    if name in _SCATTERING:
        return _refuse_scattering if name not in _ONLY_WARNED else lambda args, kwargs: refuse_overlap(args[0], (args[1:], kwargs), whole=True)
    if torch.Tag.pointwise not in func.tags and name not in _ELEMENTWISE:
        return None
    return _refuse if name not in _ONLY_WARNED else lambda args, kwargs: refuse_overlap(args[0], (args[1:], kwargs))


def _refuse(args: tuple, kwargs: dict) -> None:
    refuse_writing_twice(args[0])
    refuse_overlap(args[0], (args[1:], kwargs))


def _refuse_scattering(args: tuple, kwargs: dict) -> None:
    refuse_writing_twice(args[0])
    refuse_overlap(args[0], (args[1:], kwargs), whole=True)


def _refuse_each(args: tuple, kwargs: dict) -> None:
    """Eager's slow path, the only one on a CPU, runs one in-place operator after the other."""
    for k, written in enumerate(args[0]):
        if written.fake_device.type == "cpu":
            refuse_writing_twice(written)
            refuse_overlap(written, [a[k] if isinstance(a, (list, tuple)) else a for a in (*args[1:], *kwargs.values())])


def refuse_writing_twice(written: Any) -> None:
    """Raise where elements of the fake tensor ``written`` plainly share memory: along an expanded dimension."""
    sizes = tuple(written.shape)
    if any(type(step) is int and step == 0 and known(n > 1) for n, step in zip(sizes, written.stride())) and all(known(n > 0) for n in sizes):
        raise RuntimeError(_TWICE)


def refuse_overlap(written: Any, others: Any, whole: bool = False) -> None:
    """Raise where the fake tensor ``written`` shares some of the memory of one of ``others``, and does not lie as that does (``whole``: or does).

    Like eager it only judges tensors that fill their stretch of memory. Where that depends on sizes that vary, there is a guard.
    """
    stretch = _stretch(written)
    for other in tree_leaves(others) if stretch is not None else ():
        if not hasattr(other, "elem") or other is written and not whole or other.elem.untyped_storage()._cdata != written.elem.untyped_storage()._cdata:
            continue
        theirs = _stretch(other)
        if theirs is None or not (_holds(theirs[0] < stretch[1]) and _holds(stretch[0] < theirs[1])):
            continue
        pairs = (*zip(theirs, stretch), *zip(other.stride(), written.stride()))
        if whole or other.dim() != written.dim() or any(_holds(a != b) for a, b in pairs):
            raise RuntimeError(_REFUSED)


def _holds(fact: Any) -> bool:
    """Decides, but for sizes that depend on data: of them what follows."""
    return known(fact) if isinstance(fact, torch.SymBool) and fact.node.hint is None else bool(fact)


def _stretch(t: torch.Tensor) -> tuple[Any, Any] | None:
    """First byte and end of the memory of a tensor without gaps; None for one with gaps, or that may be empty."""
    sizes = tuple(t.shape)
    if not all(known(n > 0) for n in sizes) or not is_dense(sizes, t.stride()):
        return None
    start = t.storage_offset() * t.element_size()
    return start, start + prod(sizes) * t.element_size()
