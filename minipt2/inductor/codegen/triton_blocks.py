"""How many elements a Triton program takes, and with how many warps: the first guess, by a few rules.

============  ===========================================================  ======================================================
kernel        elements of a program                                        why
============  ===========================================================  ======================================================
pointwise     32 bytes a thread of the widest operand, 128 threads or so   two vector loads an operand in flight
              fewer where that leaves SMs without a program                small tensors are bound by latency
transposing   256 bytes of the side that jumps, 32 of the other            measured: 96 % of a copy; 32 x 32: 90 %, half types 79 %
              three sides where operands lie along three loops: 32 along   measured: 80 % of a copy in float32, 67 % in half types; with
              the innermost, 16 along the others                           two sides 45 % and 26 %; 16 each: 68 % and 55 %
              three, one of them a single iteration, where a remainder     measured: 98 % of a copy, 92 % with two sides; no more than an
              would hide vectors                                           eighth beyond the end
              all of a loop of 3 to 15 that comes last in one operand,     measured: 12 heads 98 % of a copy, 8 channels 95 %, 3 channels
              beside a piece of the innermost: 2048 elements               98 %; in one axis 27 %, 33 % and 89 %
rows          a whole row up to ``PERSISTENT`` elements, read once         later stages find it in registers
              several short rows together, 1024 elements or more           a warp for a row of 64 would idle
              longer rows in pieces of 4096                                2 vector loads a thread in flight
              of a half type from 16384 to 65536: in registers, two        measured: softmax and layer norm of 32768 94 to 96 % of a
              elements in each, in pieces of 8 elements a thread           copy (73 % with a register each), layer norm of 65536 84 %
              walked twice: in pieces of 16384                             one program an SM, whose row stays in the cache
              a softmax of one operand: of 32768, in half types of 8192    few pieces bring few new maxima; of a half type three walks,
              of which five stay in registers                              of which two read what is left: 90 % of 65536, in pairs 83 %
              a few long rows shared by programs, results put together     all SMs at work; a second, small kernel
channels      whole rows of up to 512: 2 vector loads a thread             vectors beside them are read once for several rows
positions     the same, 1 vector load a thread                             windows and padding are worked out once a row
columns       128 bytes wide, 64 rows or fewer at a time; no more          whole cache lines; 4 programs for most SMs and 5 for some
              than 4 programs an SM share columns                          lost a sixth
============  ===========================================================  ======================================================

Counted, not measured, where the table gives no figure; ``max-autotune`` searches around it. Upstream:
``torch._inductor.runtime.triton_heuristics``.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ..hardware import Hw
from ..scheduler.affine import Index
from ..scheduler.nodes import walk
from ..sizes import hint
from .c_openmp_plan import Plan
from .triton_rewalk import first_read, in_pairs, online
from .triton_tiles import NARROW, hides_vectors, short_side, third_side

PERSISTENT = 32768
"""Longest row that a program holds in registers; half of it where more than ``FEW_LOADS`` operands lie along the row."""
FEW_LOADS = 2
MANY_LOADS = 6
"""Operands along a column from which on a thread takes half as many elements: registers would leave few threads to an SM."""
HELD = 32
"""Elements of a row that a thread holds, before more warps take part."""
LONG = 4096
"""Elements of a row that are worth a program of their own, where rows are too few."""
WALKED_AGAIN = 16384
"""Elements at a time of a row that is walked more than once; of a softmax that is walked twice, twice as many: on rows of 65536 in float32 90 % of a
copy, where 16384 gave 73 % and 4096 half."""
STAYING = 5
"""Pieces of half that length that stay in registers, where one operand of a half type is walked three times: 87 % of a copy, without them 79 %."""
FIRST_CACHE = 1 << 17
"""Bytes of a row that stay in an SM's own cache."""
MOST_SPLIT = 1024
POSITIONS = 4
"""Masks and numbers made of positions from which on they are worth a row of their own."""
FAR = 8192
"""Pieces of a single row from which on it is worth twice as many programs."""
MOST_CHANNELS = 512
"""Channels of a row that a tile takes; where vectors of a channel each are read, all of them, so that a tile lies in one piece."""
SIDE = 16
"""Elements along the outer sides of a tile with three; twice as many along the innermost: 8192 in all."""
MOST_Y = 65535
"""Most programs along the second axis of a grid."""


@dataclass(frozen=True)
class Blocks:
    """``x``, ``y``, ``z``: pointwise elements of a program; ``r``: elements of a row at a time. ``split``: programs that share one row."""

    x: int
    r: int = 0
    y: int = 0
    warps: int = 4
    split: int = 1
    stages: int = 1
    z: int = 0
    held: int = 0
    """Pieces of a row walked more than once that stay in registers, the first ones."""
    ahead: bool = False
    """Whether a walk over a row asks for its next piece before it works on this one."""
    back: bool = False
    """Whether programs begin at the end (``triton_order``)."""

    def persistent(self, plan: Plan) -> bool:
        """Whether a row fits in one step."""
        return self.r >= plan.length and self.split == 1

    def chunk(self, plan: Plan) -> int:
        """Elements of a row that each of the programs sharing it takes, a multiple of ``r``."""
        return -(-plan.length // (self.split * self.r)) * self.r


def power(n: int) -> int:
    """The least power of two that is not below ``n``."""
    return 1 << max(n - 1, 0).bit_length()


def choose(plan: Plan, hw: Hw, across: str | None = None, deep: bool = True, paired: bool = True) -> Blocks:
    """Blocks for ``plan``; ``across``: the loop of a pointwise nest along which some operand is contiguous while the last one is not.
    ``deep``: whether tiles may have three sides; ``paired``: whether rows may be read as pairs of a half type."""
    if plan.inner:
        return _columns(plan, hw) if plan.column else _rows(plan, hw, paired)
    if across is not None:
        return deep and _deep_tile(plan, across, hw) or _tile(plan, across, hw)
    short = short_side(plan) if deep else None
    if short is not None:
        return _short_tile(plan, short, hw)
    return _channels(plan, hw) or _pointwise(plan, hw)


def _widest(plan: Plan) -> int:
    """Bytes of an element of the widest operand, vectors beside larger ones left out: they stay in the cache."""
    sizes, bytes_of = dict(plan.outer + plan.inner), {p.name: p.dtype.itemsize for p in plan.params}
    reach: dict[str, int] = {}
    for i in walk(plan.instrs):
        if i.op in ("load", "store"):
            reach[i.args[0]] = max(reach.get(i.args[0], 1), prod(hint(sizes.get(v, 1)) for v in i.args[1].names()))
    most = max(reach.values(), default=1)
    return max((bytes_of[name] for name, n in reach.items() if 4 * n >= most), default=4)


def stays_near(plan: Plan) -> bool:
    """Whether walking a row of half types once more costs less than more arithmetic on the first walk: an SM has four units for exponentials, and
    at two bytes an element they are what is short. Measured on softmax over 65536: 82 % of a copy, where an online sum gave 62 %."""
    widest = _widest(plan)
    return widest <= 2 and plan.length * widest <= FIRST_CACHE


def _pointwise(plan: Plan, hw: Hw) -> Blocks:
    vector = max(1, 16 // _widest(plan))
    block = 256 * vector if len(plan.params) <= 4 else 128 * vector
    while block > 128 and plan.rows < block * hw.sms * 2:
        block //= 2
    block = max(min(block, power(plan.rows)), 1)
    return Blocks(block, warps=min(max(block // (64 * vector), 1), 8))


def _channels(plan: Plan, hw: Hw) -> Blocks | None:
    """Rows of channels, where vectors of a channel each, or numbers and masks made of the position alone (windows, padding), serve a whole row."""
    if len(plan.outer) < 2 or not isinstance(plan.outer[-1][1], int):
        return None
    last, n = plan.outer[-1]
    width, every = min(n & -n, MOST_CHANNELS), list(walk(plan.instrs))
    if width < 16 or any(a.stride(last) not in (0, 1) for i in every for a in i.args if isinstance(a, Index)):
        return None
    positions = len(plan.outer) > 2 and sum(i.op in ("masked", "index_expr") for i in every) >= POSITIONS
    vectors = width == n and sum(i.op == "load" and i.args[1].names() == {last} for i in every) > 1
    if not positions and not vectors:
        return None
    vector = max(1, 16 // _widest(plan))
    rows = max(128 * vector * (1 if positions else 2) // width, 1)
    while rows > 1 and plan.rows < rows * width * hw.sms * 2:
        rows //= 2
    return Blocks(width, y=rows, warps=min(max(rows * width // (32 * vector), 1), 4))


def _tile(plan: Plan, across: str, hw: Hw) -> Blocks:
    widest = max(p.dtype.itemsize for p in plan.params)
    x, y = (64 if widest == 1 else 32), min(max(256 // widest, 32), 128)
    while y > 32 and plan.rows < 2 * x * y * hw.sms:
        y //= 2
    x, y = min(x, power(plan.outer[-1][1])), min(y, power(dict(plan.outer)[across]))
    return Blocks(x, y=y, warps=min(max(x * y // 256, 1), 8) if y > 32 else 4)


def _deep_tile(plan: Plan, across: str, hw: Hw) -> Blocks | None:
    """A tile with three sides, where that is worth more than one with two."""
    sizes = dict(plan.outer)
    third = third_side(plan, across)
    if third is not None:
        x, y, z = min(2 * SIDE, power(plan.outer[-1][1])), SIDE, SIDE  # no loop is shorter
        return Blocks(x, y=y, z=z, warps=8)
    if not hides_vectors(plan, across):
        return None
    flat, n = _tile(plan, across, hw), sizes[across]
    reach = {y: -(-n // y) * y for y in (flat.y, flat.y // 2, flat.y // 4) if y >= NARROW}
    return replace(flat, y=next((y for y, end in reach.items() if end <= n + n // 8), min(reach, key=reach.__getitem__)), z=1)


def _short_tile(plan: Plan, short: str, hw: Hw) -> Blocks:
    """All iterations of a short loop beside a piece of the innermost one, 8 elements a thread."""
    y = power(dict(plan.outer)[short])
    x = min(2048 // y, power(plan.outer[-1][1]))
    while x > 64 and plan.rows < x * y * hw.sms * 2:
        x //= 2
    return Blocks(x, y=y, z=1, warps=max(x * y // 256, 1))


def _rows(plan: Plan, hw: Hw, paired: bool) -> Blocks:
    row = power(plan.length)
    loads = [i for i in plan.instrs if i.op == "load" and i.id in plan.in_row]
    split = _split(plan, plan.rows, 2048, hw)
    if split > 1:
        return Blocks(1, 2048, warps=8, split=split)
    if paired and _stays_in_pairs(plan) and (plan.length <= PERSISTENT or len({i.args[:2] for i in loads}) > 1):
        warps = 16 if plan.length <= PERSISTENT else 32
        return Blocks(1, 256 * warps, warps=warps, held=-(-plan.length // (256 * warps)))
    if row <= (PERSISTENT if len(loads) <= FEW_LOADS else PERSISTENT // 2):
        together = max(1, min(1024 // row, power(plan.rows)))
        while together > 1 and -(-plan.rows // together) < hw.sms:
            together //= 2
        widest = max((p.dtype.itemsize for p in plan.params), default=4)
        warps = max(together * row * widest // 1024, 1)  # two vector loads a thread
        return Blocks(together, row, warps=min(warps, max(8, row // (32 * HELD))))
    again = max(plan.stage[i.id] - (i.op == "reduce") for i in plan.instrs if i.op == "reduce" or i.op == "store" and i.id in plan.in_row)
    return _walked_again(plan, len({i.args[:2] for i in loads})) if again else Blocks(1, 4096, warps=16)


def _stays_in_pairs(plan: Plan) -> bool:
    """Whether a long row of a half type, the only one that its first walk reads and later ones read again, fits into registers two by two."""
    again = any(i.op == "store" and i.id in plan.in_row or i.op == "reduce" and plan.stage[i.id] > 1 for i in plan.instrs)
    if not again or not PERSISTENT // 2 <= plan.length <= 2 * PERSISTENT:
        return False
    first = first_read(plan)
    return len(first) == 1 and first <= in_pairs(plan)


def _walked_again(plan: Plan, operands: int) -> Blocks:
    """A row that does not fit into registers, of which ``operands`` are read, and which is read again."""
    piece = min(WALKED_AGAIN, power(plan.length) // 2)
    if operands > 1 or piece < WALKED_AGAIN:
        return Blocks(1, piece, warps=32)
    if stays_near(plan):
        return Blocks(1, piece // 2, warps=32, held=STAYING)
    wide = 2 * WALKED_AGAIN
    return Blocks(1, wide if online(plan) and -plan.length % wide <= plan.length // 8 else piece, warps=32)


def _columns(plan: Plan, hw: Hw) -> Blocks:
    widest = _widest(plan)
    width = min(power(plan.outer[-1][1]), 64 if plan.rows >= 64 * hw.sms or widest <= 2 else 32)
    inner = {v for v, _ in plan.inner}
    many = sum(i.op == "load" and not inner.isdisjoint(i.args[1].names()) for i in walk(plan.instrs)) > MANY_LOADS
    deep = min(power(plan.length), max(1, (4096 if widest <= 2 and not many else 2048) // width))
    split = _split(plan, -(-plan.rows // width), deep, hw)
    return Blocks(width, deep, warps=min(max(width * deep // 256, 1), 8), split=split)


def _split(plan: Plan, programs: int, step: int, hw: Hw) -> int:
    """Programs that share each row, where one for each leaves the device idle; a second kernel puts their results together."""
    once = all(plan.stage[i.id] == 1 for i in plan.instrs if i.op == "reduce")
    again = any(i.op == "store" and i.id in plan.in_row and plan.stage[i.id] for i in plan.instrs)
    if not once or again or programs >= 2 * hw.sms or plan.length * plan.rows < LONG * 16:
        return 1
    wanted = min(4 * hw.sms // programs, plan.length // (2 * step), MOST_SPLIT)
    if not plan.column and programs == 1 and plan.length >= FAR * step:
        wanted = power(8 * hw.sms) // 2
    return _even(wanted, plan.length, step) if wanted > 2 else 1


def _even(wanted: int, length: int, step: int) -> int:
    """``wanted`` or somewhat fewer programs, if their chunks are then equally long: these need no mask."""
    if length % step:
        return wanted
    return next((n for n in range(wanted, wanted * 2 // 3, -1) if length // step % n == 0), wanted)
