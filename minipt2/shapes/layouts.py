"""Questions about sizes and strides that torch asks of symbolic tensors: contiguous, channels last, dense.

Sizes and strides are ints or SymInts. Nothing is decided here: what is not known to be so is not so, which costs a copy at most, where a
guard would cost compilations. Upstream: ``c10/core/Contiguity.h``.
"""
from __future__ import annotations

from typing import Sequence

from .known import known, positive, same


def contiguous(sizes: Sequence, strides: Sequence, order: Sequence[int] | None = None) -> bool:
    """Whether memory is one run without holes, the last dimension (the first of ``order``) innermost."""
    if any(same(n, 0) for n in sizes):
        return True
    expected = 1
    for d in order if order is not None else range(len(sizes) - 1, -1, -1):
        if same(sizes[d], 1):
            continue
        if not same(strides[d], expected):
            return False
        expected = expected * sizes[d]
    return True


def channels_last(sizes: Sequence, strides: Sequence, rank: int, exact: bool) -> bool:
    """Whether the channels (dimension 1) are innermost; ``exact``: without holes, else only in that order."""
    if len(sizes) != rank:
        return False
    order = [1, *range(rank - 1, 1, -1), 0]
    if exact:
        return contiguous(sizes, strides, order)
    if same(strides[1], 0):
        return False
    least = 0
    for d in order:
        if same(sizes[d], 0) or not known(strides[d] >= least) or d == 0 and same(least, strides[1]):
            return False
        least = strides[d] * positive(sizes[d])
    return True


def dense(sizes: Sequence, strides: Sequence) -> bool:
    """Whether elements fill a piece of memory, each once, in whatever order of dimensions."""
    left = [(n, s) for n, s in zip(sizes, strides) if not same(n, 1)]
    if any(same(n, 0) for n, _ in left):
        return True
    expected = 1
    while left:
        found = next((k for k, (_, s) in enumerate(left) if same(s, expected)), None)
        if found is None:
            return False
        expected = expected * left.pop(found)[0]
    return True
