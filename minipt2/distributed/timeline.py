"""When is the last bucket there? A backward that makes gradients and a link that sends one bucket after the other.

Upstream has no counterpart; the model is that of Li et al., "PyTorch Distributed" (VLDB 2020), figure 5.
"""
from __future__ import annotations

from typing import NamedTuple, Sequence

from ..exercise import exercise


class Sent(NamedTuple):
    """One bucket on the link, in seconds since the backward began."""

    start: float
    end: float


@exercise("9.6")
def finish(ready: Sequence[float], sizes: Sequence[int], bandwidth: float, latency: float = 0.0) -> list[Sent]:
    """When each bucket is sent: not before it is ready (seconds), and not before the link has sent those that were ready earlier.

    sizes: bytes of each bucket. bandwidth: bytes a second. latency: seconds that each bucket costs besides. The result is in the order of
    ``ready``; of buckets that are ready at once the earlier in the list goes first.
    """
    # >>> 9.6
    free, sent = 0.0, {}
    for k in sorted(range(len(ready)), key=lambda k: (ready[k], k)):
        start = max(free, ready[k])
        free = start + latency + sizes[k] / bandwidth
        sent[k] = Sent(start, free)
    return [sent[k] for k in range(len(ready))]
    # <<< 9.6
