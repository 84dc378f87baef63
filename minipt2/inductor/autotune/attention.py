"""The search space of the attention template: tiles that fit the GPU, in the order in which a model of it expects them to be fast.

=============  ==================================  ==========================================================================
what varies    values                              bound
=============  ==================================  ==========================================================================
m              16 to 256 queries, powers of two    the power of two that holds the queries, at least 16
r              32 to 128 keys, powers of two       the power of two that holds the keys, at least 16
warps          4; 8 from 128 queries on            ``HELD`` numbers in a thread: scores, weights, result
stages         1 to 4                              shared memory: the queries, and blocks of keys and values a stage
=============  ==================================  ==========================================================================

The model counts, for the blocks of keys that the busiest SM walks: products against the tensor cores' rate, exponentials against theirs, bytes
against the L2 cache's. It only orders: what is tried is measured. Upstream: ``torch._inductor.template_heuristics.triton`` (``FlexConfig``).
"""
from __future__ import annotations

import itertools
from typing import Iterator

from ..codegen.triton_attention import AttentionTile, rest
from ..codegen.triton_blocks import power
from ..hardware import Hw
from ..scheduler.attention import Attention
from .descent import one_step
from .template_space import CACHE_RATE, RESERVED, START, products_rate, varied

MOST = 20
"""Tiles tried of one attention."""
PER_SHAPE, PER_WARPS = 4, 3
"""Of one m x r, of those with as many warps: those of more stages first."""
HELD = 192
"""Numbers in a thread's 255 registers."""
QUERIES, KEYS, WARPS, STAGES = (16, 32, 64, 128, 256), (16, 32, 64, 128), (4, 8), (1, 2, 3, 4)
EXPONENTIALS, OTHERS = 25.0, 200.0
"""Exponentials of an SM in a nanosecond, and additions and the like."""
STEP = 150.0
"""Nanoseconds of a step besides: barriers, and what of a load is not hidden. On an H200, 64 queries and keys of 64 elements in bfloat16: 59 us of
all programs in 2 stages, 53 in 3."""


def tiles(a: Attention, hw: Hw) -> list[AttentionTile]:
    """At most ``MOST`` tiles that launch on ``hw``, those first that should be fastest."""
    ranked = sorted(_all(a, hw), key=lambda t: (expected(t, a, hw), t.m, t.r, t.warps, -t.stages))
    return varied(ranked, lambda t: [((t.m, t.r), PER_SHAPE), ((t.m, t.r, t.warps), PER_WARPS)], MOST)


def _all(a: Attention, hw: Hw) -> Iterator[AttentionTile]:
    return (t for t in itertools.starmap(AttentionTile, itertools.product(QUERIES, KEYS, WARPS, STAGES)) if launchable(t, a, hw))


def launchable(t: AttentionTile, a: Attention, hw: Hw) -> bool:
    """Whether ``hw`` has the shared memory and the registers for ``t``, and there is work for every stage and warp."""
    steps = -(-a.keys // t.r)
    return (t.m <= max(power(a.shape[2]), 16) and min(_wide(a.keys), 32) <= t.r <= _wide(a.keys) and _held(t, a, hw) <= HELD and _shared(t, a) <= hw.shared
            and t.stages <= max(steps, 1) and t.warps <= max(t.m // 16, 4) and t.m * max(t.r, _wide(a.shape[3])) >= 2 * hw.warp * t.warps and a.sizes[0] <= 65535)


def _wide(n: int) -> int:
    return max(power(n), 16)


def _held(t: AttentionTile, a: Attention, hw: Hw) -> float:
    """Numbers of 32 bits in a thread: a block of scores, its weights in half precision, the result; a few of each row."""
    return t.m * (1.5 * t.r + _wide(a.shape[3])) / (hw.warp * t.warps) + 16


def _shared(t: AttentionTile, a: Attention) -> int:
    item = a.query.dtype.itemsize
    return (t.m * _wide(a.depth) + t.stages * t.r * (_wide(a.depth) + _wide(a.shape[3]))) * item + RESERVED


def expected(t: AttentionTile, a: Attention, hw: Hw) -> float:
    """Nanoseconds of the busiest SM, roughly."""
    rate = products_rate(hw)
    if t.m < 64:
        rate *= t.m / 128  # a warp group multiplies 64 rows at a time
    wide = _wide(a.depth) + _wide(a.shape[3])
    work = t.m * t.r * wide / rate + t.m * t.r / EXPONENTIALS + t.m * (6 * t.r + _wide(a.shape[3])) / OTHERS  # a score takes six, the result one a step
    step = max(work, t.r * wide * a.query.dtype.itemsize / CACHE_RATE)
    blocks, steps = -(-a.shape[2] // t.m), a.keys // t.r + (rest(a.keys, t.r) / t.r if a.keys % t.r else 0)
    if a.causal:  # half of the blocks, and those that the diagonal cuts through
        steps = min(steps, (a.shape[2] / 2 + t.m) / t.r)
    threads = hw.warp * t.warps
    resident = max(1, min(hw.shared // _shared(t, a), int(65536 // (threads * min(_held(t, a, hw) + 48, 255))), 2048 // threads))
    each = -(-a.sizes[0] * blocks // hw.sms)
    # what one program waits for, others of the same SM do not
    return each * steps * (step + STEP / min(resident, each) / t.stages) + START * -(-each // resident)


def around(t: AttentionTile, a: Attention, hw: Hw) -> list[AttentionTile]:
    """Tiles that differ from ``t`` in one coordinate, by one step of it."""
    found = one_step(t, m=QUERIES, r=KEYS, warps=(2, *WARPS, 16), stages=STAGES)
    return [f for f in found if launchable(f, a, hw)]
