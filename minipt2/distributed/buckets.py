"""Gradients travel in buckets: one all-reduce for many parameters, started while the rest of the backward still runs.

Upstream: ``torch/csrc/distributed/c10d/reducer.cpp`` (``compute_bucket_assignment_by_size``).
"""
from __future__ import annotations

from typing import Sequence

import torch

from ..exercise import exercise

FIRST = 1 << 20
"""Bytes of the first bucket of a kind at most: it starts the link early."""


@exercise("9.1")
def assign(ready: Sequence[torch.Tensor], cap: int) -> list[list[torch.Tensor]]:
    """Group parameters, in the order in which their gradients are ready, into buckets of at most ``cap`` bytes.

    A bucket holds one dtype and device; the first one of each such kind at most ``FIRST`` bytes. A parameter is never split: one that is
    larger than the bucket is alone in it. Buckets come in the order in which they are complete: full ones as they fill, then the rest.
    """
    # >>> 9.1
    done: list[list[torch.Tensor]] = []
    filling: dict[tuple, list[torch.Tensor]] = {}
    begun: set[tuple] = set()
    for p in ready:
        kind = p.dtype, p.device
        bucket = filling.setdefault(kind, [])
        limit = cap if kind in begun else min(cap, FIRST)
        if bucket and sum(q.nbytes for q in bucket) + p.nbytes > limit:
            done.append(bucket)
            begun.add(kind)
            bucket = filling[kind] = []
        bucket.append(p)
    return done + [bucket for bucket in filling.values() if bucket]
    # <<< 9.1
