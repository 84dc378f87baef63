"""Which loop goes inside which: by the strides of the memory the nest walks.

Upstream: ``torch._inductor.scheduler``'s loop reordering and ``ir.pick_loop_order``.
"""
from __future__ import annotations

from math import log2
from typing import Any, Iterable, Mapping, Sequence

from ...exercise import exercise
from ..sizes import hint
from .affine import Index, Opaque
from .nodes import Access


@exercise("5.6")
def loop_order(sizes: Mapping[str, Any], accesses: Sequence[Access]) -> list[str]:
    """Variables from outermost to innermost: the innermost walks contiguously for most bytes."""
    # >>> 5.6
    # of two equal choices the one that stores contiguously: loads can be turned in registers
    weights = [(a.index, _bytes(a, sizes) * (1 if a.mode == "load" else 1.25)) for a in _distinct(accesses) if a.bytes]
    costs = {v: (sum(w * _step(index, v) for index, w in weights), -hint(sizes[v])) for v in sizes}
    rank = {v: k for k, v in enumerate(sizes)}
    return sorted(sizes, key=lambda v: (*costs[v], -rank[v]), reverse=True)
    # <<< 5.6


def innermost(sizes: Mapping[str, Any], accesses: Sequence[Access]) -> str | None:
    order = loop_order(sizes, accesses)
    return order[-1] if order else None


def _distinct(accesses: Iterable[Access]) -> list[Access]:
    return list({(a.buffer, a.index, a.mode == "load"): a for a in accesses}.values())


def _bytes(access: Access, sizes: Mapping[str, Any]) -> float:
    total = float(access.bytes)
    for v in access.index.names():
        total *= hint(sizes.get(v, 1))
    return total


def _step(index: Index, v: str) -> float:
    """Cost of a byte when ``v`` is the inner loop: nothing if it stays, one if the next follows, more the further it jumps."""
    stride = index.stride(v)
    if stride == 0:
        return 6.0 if any(not isinstance(t, (str, Opaque)) and v in t.arg.names() for t in index.terms) else 0.0
    jump = abs(hint(stride))
    return 1.0 if jump == 1 else min(jump, 8) + 0.1 * log2(jump)  # beyond a cache line further is no dearer; the rest orders outer loops
