"""The decisions of the scheduler that differ between kinds of device.

Upstream: ``torch._inductor.choices.InductorChoices`` and the reduction heuristics of ``ir.Reduction.num_splits``.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable

CACHE_BYTES = 1 << 18
"""Later stages of a column reduction pay off only while the rows they walk again are still in cache."""
TILE = 64
ROW, FEW_ROWS = 8192, 132
"""On a GPU: a row that a program holds in registers; programs below which a device of that many SMs stands idle."""
SHORT_COLUMN, TALL_COLUMN, COLUMN_TILE = 256, 4096, 32


@dataclass(frozen=True)
class Policy:
    """``rewalk(rows, length, contiguous)``: why a kernel should not walk ``length`` reduced elements of ``rows`` results a second time,
    empty if it should; ``contiguous``: along the reduced elements. ``welford``: mean and variance are one reduction to the code generator.
    ``alone_from``: bytes from which an intermediate is a tensor of its own, allocated and freed when its time is, and not a part of the arena.
    ``places``: in how many places elementwise work may read one buffer (the windows over an element) and still join a reduction."""

    rewalk: Callable[[float, float, bool], str]
    welford: bool = False
    alone_from: float = math.inf
    places: float = math.inf


def _cpu(rows: float, length: float, contiguous: bool) -> str:
    if not contiguous and length * TILE * 4 > CACHE_BYTES:
        return "the second walk over a column would miss the cache"
    return ""


def _gpu(rows: float, length: float, contiguous: bool) -> str:
    """A kernel that walks again cannot share a row among programs: there must be rows enough, or short ones."""
    if contiguous:
        few = length > ROW and rows < FEW_ROWS
    else:
        few = length > SHORT_COLUMN and (length > TALL_COLUMN or rows < FEW_ROWS * COLUMN_TILE)
    return "too few programs would walk long rows twice" if few else ""


CPU = Policy(_cpu)
MOST_PLACES = 3
"""Places of a window up to which it is read beside a reduction. Measured: the backward of 3 x 3 max pooling in one kernel with the sums of a batch norm
takes four times as long as its bytes."""
GPU = Policy(_gpu, welford=True, alone_from=1 << 22, places=MOST_PLACES)
"""A call holds its arena from end to end, which beside all that was saved for a backward would double the peak; the device's allocator hands large
blocks out in less time than a kernel takes to fill them."""
