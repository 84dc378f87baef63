"""Has a tensor's content changed behind its version counter? Some words of each are remembered and compared, in C.

``p.data.add_(...)`` and NumPy views write without telling the version counter. An optimiser step changes nearly every element, so that
evenly spread words tell. A word is 4 bytes (1 in tensors shorter than that).
"""
from __future__ import annotations

import ctypes
from typing import Sequence

import torch

from ...errors import Minipt2Error
from ..cache import compile_c

WORDS = 64
"""Words per tensor: whatever writes a stretch of 1/64 of a tensor or more is noticed, and all of a tensor this short."""

SOURCE = r"""
#include <stdint.h>
#include <string.h>
/* For n addresses: does the word there (of 4 bytes, or 1 where short) still have the value in `kept`? With store, remember it. */
int samples(int64_t n, const void *const *at, const uint8_t *width, uint32_t *kept, int store) {
    uint32_t changed = 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word = 0;
        if (width[i] == 4) memcpy(&word, at[i], 4); else word = *(const uint8_t *)at[i];
        if (store) kept[i] = word; else changed |= word ^ kept[i];
    }
    return changed != 0;
}
"""


class Samples:
    """Remembers sampled words of ``tensors`` at construction; ``same()`` compares. Addresses must still be the tensors' own then."""

    def __init__(self, tensors: Sequence[torch.Tensor]):
        addresses, widths = [], []
        for t in tensors:
            for address, width in _places(t):
                addresses.append(address)
                widths.append(width)
        n = len(addresses)
        self._kept = (ctypes.c_uint32 * n)()
        self._call = None
        if n:
            try:
                self._call = compile_c(SOURCE).samples
            except Minipt2Error:  # no compiler: version counters alone
                return
            self._arguments = (ctypes.c_int64(n), (ctypes.c_void_p * n)(*addresses), (ctypes.c_uint8 * n)(*widths), self._kept)
            self._call(*self._arguments, 1)

    def same(self) -> bool:
        return self._call is None or self._call(*self._arguments, 0) == 0


def _places(t: torch.Tensor) -> list[tuple[int, int]]:
    """Addresses of evenly spread words inside the memory that ``t`` reaches over."""
    if t.layout is not torch.strided or t.numel() == 0 or t.device.type != "cpu":
        return []
    nbytes = (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride()))) * t.element_size()
    width = 4 if nbytes >= 4 else 1
    words = nbytes // width
    chosen = sorted({(2 * k + 1) * words // (2 * WORDS) for k in range(WORDS)})
    return [(t.data_ptr() + word * width, width) for word in chosen if word < words]
