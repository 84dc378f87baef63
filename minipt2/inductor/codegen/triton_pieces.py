"""Products of float32 numbers on tensor cores that multiply bfloat16, with float32's accuracy.

A float32 number has 24 significant bits, one of bfloat16 has 8 and the same range of exponents: ``a`` is exactly ``a1 + a2 + a3``, each what rounding
leaves of it. Of the nine products of pieces six are made, ``a1 b3 + a2 b2 + a3 b1``, ``a1 b2 + a2 b1`` and ``a1 b1`` in this order, small ones first; what the
others would add is below 2**-24 of ``a b``. The second and third pieces are kept 2**8 and 2**16 times as large, so that those of the smallest numbers
are not lost either. Tensor cores cut off instead of rounding where they add, by which a long sum would drift towards zero: each block of k is
added up from zero, and then to the accumulator by an ordinary addition. Pieces of infinity and NaN are no numbers to add up, and a number near the
largest may round to infinity: a tile with such a result is made again, of the numbers as they are, in order, which gives infinity and NaN where eager
does (but for sums whose parts alone are beyond the largest number: there the order decides, as among the library's own kernels).
On an H200, 4096 summands: root mean square of the error over the sum of absolute products, in 2**-24: normal numbers 0.09 (cuBLAS 0.24), those of one
sign 2.7 (3.7), magnitudes from 2**-30 to 2**30 1.4 (1.2), subnormal ones 0.14 (0.24); added up in the tensor cores all along: 11, 320, 54. All figures
are in ``site/results/float32_h200.json``.

The pieces of one operand are cut in registers, each time a program loads a tile; those of the other lie in memory, where a program before has put them
(``triton_cut``), or are cut likewise: see ``CUTS``. The method: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations" (2019); on adding up outside of tensor cores, Ootomo and Yokota (2022). Upstream has none; CUTLASS's
``OpMultiplyAddFastF32`` (three products in TF32) is nearest.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..scheduler.contraction import Contraction, Operand

CUTS = {"registers": (), "rhs": ("rhs",), "lhs": ("lhs",)}
"""By ``Tile.cut``: the operands whose pieces lie in memory. The left operand of ``tl.dot`` may be in registers, the right one has to be in shared memory.
Pieces of both in memory: 8 % faster on an H200, and less than it takes to cut the larger operand."""
ROUND = 16
"""Elements: pieces begin at multiples of it, so that several are loaded at a time."""
PARTS = {"u": ("lhs1", "lhs2", "lhs3"), "v": ("rhs1", "rhs2", "rhs3")}
"""Names of a tile's pieces."""


@dataclass
class Pieces:
    """How a program multiplies the operands of ``contraction`` in pieces; ``cut``: of its tile."""

    contraction: Contraction
    cut: str

    @property
    def before(self) -> dict[str, Operand]:
        """The operands whose pieces lie in memory. What a program makes itself it cuts itself."""
        c = self.contraction
        made = {"lhs": c.make_a, "rhs": c.make_b}
        return {name: operand(c, name)[0] for name in CUTS[self.cut] if made[name] is None}

    def lying(self, tile: str, name: str, o: Operand) -> list[tuple[str, str, Operand]]:
        """(value, pointer, operand) of what is loaded for a tile of ``o``."""
        if name not in self.before:
            return [(tile, name, o)]
        step = extent(self.contraction, name)
        return [(value, memory(name), replace(o, offset=k * step)) for k, value in enumerate(PARTS[tile])]

    def multiply(self, left: str, right: str) -> list[str]:
        """Statements that add the product of tiles ``left`` and ``right`` to ``acc``."""
        lying = {{"lhs": "u", "rhs": "v"}[name] for name in self.before}
        cut = [f"{', '.join(PARTS[tile])} = pieces({tile})" for tile in (left, right) if tile not in lying]
        return [*cut, f"acc += product_of_pieces({', '.join((*PARTS[left], *PARTS[right]))})"]


def memory(name: str) -> str:
    """The pointer to an operand's pieces."""
    return f"{name}_pieces"


def operand(c: Contraction, name: str) -> tuple[Operand, tuple[int, int, int]]:
    """``lhs`` or ``rhs``, and its sizes."""
    z, m, n = c.sizes
    return (c.a, (z, m, c.k)) if name == "lhs" else (c.b, (z, c.k, n))


def span(c: Contraction, name: str) -> int:
    """Elements of memory from the first of an operand to its last."""
    o, sizes = operand(c, name)
    dims: list[tuple[int, Any]] = list(zip(sizes, o.strides))
    if c.window is not None:
        assert name == "rhs", "an image is cut in registers"
        dims += zip(c.window.taps, c.window.tap_strides)
    return 1 + sum((size - 1) * stride for size, stride in dims)


def extent(c: Contraction, name: str) -> int:
    """Elements from one piece of an operand to the next."""
    return -(-span(c, name) // ROUND) * ROUND


def dense(c: Contraction, name: str) -> bool:
    """Whether an operand's elements fill the memory they lie in: they are cut as they lie."""
    o, sizes = operand(c, name)
    taps = prod(c.window.taps) if c.window else 1
    return span(c, name) <= 1.25 * taps * prod(size for size, stride in zip(sizes, o.strides) if stride or size == 1)
