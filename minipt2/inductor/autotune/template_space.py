"""The search space of a template: tiles that fit the GPU, in the order in which a model of it expects them to be fast.

=============  ==================================  ==========================================================================
what varies    values                              bound
=============  ==================================  ==========================================================================
m, n           16 to 256, powers of two            the power of two that holds the product's rows, columns; 2**15 elements
k              32, 64, 128                         the power of two that holds k (of one tap, for a convolution of many channels), at least 16
warps          4, 8                                ``HELD`` elements of the accumulator a thread, so that it does not spill
stages         2 to 5                              shared memory: every stage holds a block of both operands
group          8 rows of tiles in a band           varied by coordinate descent only
split          1, 2, 3, 4, 8, 16 parts of k        more than 1 where tiles are fewer than SMs (in float32 also where they are a few more): at
                                                   least ``SHARE`` steps for each part, parts that stay in the L2 cache, and no batch
cut            float32 alone: the pieces of the    in registers alone where loops of the program make that operand, or it has gaps;
               smaller operand lie in memory, or   sides up to 128, k up to 32, half of the accumulator: a block has one of its own
               all are cut in registers
=============  ==================================  ==========================================================================

The model counts, for the tiles that the busiest SM gets: the products it makes against the tensor cores' rate, the bytes it loads against the
L2 cache's, a start of every wave, and what parts of k write and a second kernel reads. It only orders: what is tried is measured.
Upstream: ``torch._inductor.template_heuristics.triton``.
"""
from __future__ import annotations

import itertools
from collections import Counter
from math import prod
from typing import Callable, Iterable, Iterator, Sequence, TypeVar

import torch

from ..codegen.triton_blocks import power
from ..codegen.triton_pieces import CUTS, dense, span
from ..codegen.triton_template_plan import GROUP, Tile, tf32_allowed
from ..hardware import Hw
from ..scheduler.contraction import Contraction
from .descent import one_step

T = TypeVar("T")

MOST, MOST_CUT = 28, 6
"""Tiles tried of one template; of one in float32, which takes longer to compile (the tile is made again where it is not finite)."""
PER_SHAPE, PER_DEPTH, PER_WARPS = 5, 3, 2
"""Of one m x n (whole or in parts), of those with one k, of those with as many warps: so that the space is not all of one shape. At most half of
the tiles are in parts."""
HELD = 128
"""Elements of the accumulator in a thread's 255 registers."""
LARGEST = 1 << 15
SIDES, DEPTHS, WARPS, STAGES, SPLITS = (16, 32, 64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4, 5), (1, 2, 3, 4, 8, 16)
SHARE, WAVES = 4, 3
RESERVED = 1 << 10
"""Shared memory that the compiler takes besides."""
CACHE_RATE = 100.0
"""Bytes that an SM reads from the L2 cache in a nanosecond."""
STEP = 60.0
"""Nanoseconds of a step besides: barriers and addresses."""
LATENCY = 800.0
"""Nanoseconds that a load takes, shared by the steps that are loaded ahead and by the programs of an SM."""
START = 2000.0
"""Nanoseconds until a program's first operands are there, and for its stores."""
PIECES, PRODUCTS, WIDEST_CUT, DEEPEST_CUT, BFLOAT16 = 6, 8.5, 128, 32, 80
"""Bytes of a float32 number in pieces; the products made for one of such numbers, six, at the speed of one that does nothing else; largest side and
most k of a tile; the first capability whose tensor cores take bfloat16."""
TURNS, CUTTING, PIECES_RATE, CUT_RATE = 400.0, 5.0, 55.0, 3500.0
"""Nanoseconds in which a program waits for its six products, one after the other, which others on its SM fill; that it takes to cut a thread's
number, twice that where the pieces then have to go to shared memory; bytes that an SM reads from the L2 cache in one, and that the GPU moves while it
cuts. On an H200 (8192 x 3072 x 768, one operand cut before) a step of 128 x 128 x 32 in 8 warps takes 1.65 us, of 64 x 128 x 32 in 4 warps 0.72,
of 128 x 64 x 32 0.88; of twice the k more than twice that."""
SECOND, PARTS_RATE = 2500.0, 2000.0
"""Nanoseconds that a second kernel takes to begin and to end; bytes of parts that the GPU writes or reads in one."""


def tiles(c: Contraction, hw: Hw) -> list[Tile]:
    """At most ``MOST`` tiles that launch on ``hw``, those first that should be fastest."""
    ranked = sorted(_all(c, hw), key=lambda t: (expected(t, c, hw), t.m, t.n, t.k, t.warps, -t.stages, t.split))
    return varied(ranked, _kinds, MOST_CUT if c.a.dtype is torch.float32 else MOST)


def cuts(c: Contraction, hw: Hw) -> list[str]:
    """Values of ``Tile.cut``. For float32 none where TF32 is allowed (a compiled call would not follow torch's setting when that changes, and the
    library's kernels are faster then), or where tensor cores do not take bfloat16; without pieces no template beats the library."""
    if c.a.dtype is not torch.float32:
        return [""]
    if tf32_allowed(c) or hw.capability < BFLOAT16:
        return []
    made = {"lhs": c.make_a or c.window, "rhs": c.make_b}
    smallest = min((name for name, loops in made.items() if loops is None and dense(c, name)), key=lambda name: span(c, name), default=None)
    return ["registers"] if smallest is None else ["registers", smallest]


def _kinds(t: Tile) -> list[tuple[tuple, int]]:
    """What ``t`` is one of, and how many of these are tried."""
    shared = t.split > 1
    kinds = (shared,), (t.m, t.n, shared, t.cut), (t.m, t.n, shared, t.cut, t.k), (t.m, t.n, shared, t.cut, t.k, t.warps)
    if t.cut:
        return list(zip(kinds, (MOST_CUT - 2, 2, 1, 1)))
    return list(zip(kinds, (MOST // 2 if shared else MOST, PER_SHAPE, PER_DEPTH, PER_WARPS)))


def varied(ranked: Iterable[T], kinds: Callable[[T], Sequence[tuple[tuple, int]]], most: int) -> list[T]:
    """The first ``most`` of ``ranked``, without those of whose ``kinds`` there are as many as there may be."""
    seen: Counter[tuple] = Counter()
    kept = []
    for t in ranked:
        own = kinds(t)
        if all(seen[kind] < limit for kind, limit in own):
            seen.update([kind for kind, _ in own])
            kept.append(t)
    return kept[:most]


def _all(c: Contraction, hw: Hw) -> Iterator[Tile]:
    rows, columns = (max(power(n), 16) for n in c.sizes[1:])
    depth = max(power(c.walked), 16)
    for m, n, k, warps, stages, split, cut in itertools.product(SIDES, SIDES, {min(k, depth) for k in DEPTHS}, WARPS, STAGES, SPLITS, cuts(c, hw)):
        t = Tile(m, n, k, warps, stages, split=split, cut=cut)
        if m <= rows and n <= columns and launchable(t, c, hw):
            yield t


def launchable(t: Tile, c: Contraction, hw: Hw) -> bool:
    """Whether ``hw`` has the shared memory and the registers for ``t``, and there is work for every stage and warp."""
    held = t.m * t.n / (hw.warp * t.warps)
    if t.cut and (max(t.m, t.n) > WIDEST_CUT or t.k > DEEPEST_CUT or held > HELD // 2):
        return False
    return (t.m * t.n <= LARGEST and 2 <= held <= HELD and _shared(t, c) <= hw.shared and t.stages <= max(_steps(t, c), 2) and t.k >= 16
            and min(t.m, t.n) >= 16 and t.warps * hw.warp <= 1024 and c.sizes[0] <= 65535 and (t.split == 1 or _shares(t, c, hw)))


def _steps(t: Tile, c: Contraction) -> int:
    """Of one program."""
    return -(-(-(-c.walked // t.k) * (c.depth // c.walked)) // t.split)


def _shares(t: Tile, c: Contraction, hw: Hw) -> bool:
    """Whether programs may share the summands of a tile: SMs stand idle, and there is enough for each."""
    waves, cache = (WAVES, hw.cache) if t.cut else (1, hw.cache // 2)
    return c.sizes[0] == 1 and _tiles(t, c) <= waves * hw.sms and _steps(t, c) >= SHARE and _parts(t, c) <= cache


def _parts(t: Tile, c: Contraction) -> int:
    """Bytes of all parts of the product, in float32."""
    return t.split * prod(c.sizes) * torch.float32.itemsize


def _tiles(t: Tile, c: Contraction) -> int:
    return c.sizes[0] * prod(-(-n // side) for n, side in zip(c.sizes[1:], (t.m, t.n)))


def _shared(t: Tile, c: Contraction) -> int:
    return t.k * (t.stages * _bytes(t, c) + (t.n * PIECES if t.cut == "registers" else 0)) + RESERVED


def _bytes(t: Tile, c: Contraction) -> int:
    """That are loaded for one k of a tile."""
    item = c.a.dtype.itemsize
    return sum(side * (PIECES if t.cut == name else item) for name, side in (("lhs", t.m), ("rhs", t.n)))


def products_rate(hw: Hw) -> float:
    """Products a nanosecond of one SM, in half precision."""
    return 3750.0 if hw.capability >= 90 else 1400.0


def expected(t: Tile, c: Contraction, hw: Hw) -> float:
    """Nanoseconds of the busiest SM, roughly."""
    item, left = c.a.dtype.itemsize, t.n if t.turned else t.m
    rate = products_rate(hw) * 2 / item if not t.cut else products_rate(hw) / PRODUCTS
    if left < 64:
        rate /= 2  # a warp group multiplies 64 rows at a time
    programs = _tiles(t, c) * t.split
    threads = hw.warp * t.warps
    held = t.m * t.n // threads
    registers = threads * min(2 * held + 96 if t.cut else held + 64, 255)
    resident = max(1, min(hw.shared // _shared(t, c), 65536 // registers, 2048 // threads))
    each = -(-programs // hw.sms)
    steps = _steps(t, c)
    step = t.k * max(t.m * t.n / rate, _bytes(t, c) / (PIECES_RATE if t.cut else CACHE_RATE))
    stall = LATENCY / ((t.stages - 1) * min(resident, each))
    put_together = SECOND + 2 * _parts(t, c) / PARTS_RATE if t.split > 1 else 0.0
    if t.cut:
        step += TURNS / min(resident, each) ** 2 + CUTTING * t.k / threads * (left + (2 * t.n if t.cut == "registers" else 0))
    cut = sum(SECOND + span(c, name) * (item + PIECES) / CUT_RATE for name in CUTS[t.cut]) if t.cut else 0.0
    return each * steps * (max(step, stall) + STEP) + START * -(-each // resident) + put_together + cut


def around(t: Tile, c: Contraction, hw: Hw) -> list[Tile]:
    """Tiles that differ from ``t`` in one coordinate, by one step of it."""
    found = one_step(t, m=SIDES, n=SIDES, k=(16, *DEPTHS), warps=(2, *WARPS, 16), stages=(1, *STAGES, 6), group=(1, 4, GROUP, 16), split=SPLITS)
    rows, columns = (max(power(n), 16) for n in c.sizes[1:])
    return [f for f in found if f.m <= rows and f.n <= columns and launchable(f, c, hw)]
