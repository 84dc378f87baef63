"""What is known of the device that a graph will run on: the numbers that block sizes and fusions are chosen by.

Upstream: ``torch._inductor.runtime.hints.DeviceProperties``.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Hw:
    """``capability`` is 90 for an H100 or H200. ``shared``: bytes of shared memory that one block may take."""

    kind: str = "cuda"
    sms: int = 132
    capability: int = 90
    shared: int = 227 << 10
    cache: int = 50 << 20
    warp: int = 32

    def identity(self) -> str:
        """What is part of the key of everything made for this device."""
        return repr(self)


CPU = Hw("cpu", 1, 0, 0, 1 << 18, 1)
REFERENCE = Hw()
"""An H100: what kernels are made for where there is no GPU."""
TINY = Hw(sms=1)
"""Few large programs: for Triton's interpreter, which takes as long for a large block as for a small one."""


@functools.cache
def hardware(device: torch.device) -> Hw:
    """The record of ``device``; ``REFERENCE`` for a GPU that is not there."""
    if device.type != "cuda":
        return CPU
    if not torch.cuda.is_available():
        return REFERENCE
    found = torch.cuda.get_device_properties(device)
    shared = getattr(found, "shared_memory_per_block_optin", REFERENCE.shared)
    return Hw("cuda", found.multi_processor_count, found.major * 10 + found.minor, shared, getattr(found, "L2_cache_size", REFERENCE.cache))
