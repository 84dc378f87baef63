"""Kernels whose sizes are arguments: which program runs at which sizes, on what grid, with what arguments. Runs at every new tuple of sizes.

One plan of a kernel serves all sizes; its text is right for any of them, and only its block sizes, the width of its offsets and what is
known of alignment belong to a class of sizes (``size_class``). The first time a class is met, ``codegen.triton_sized`` writes its program,
which is compiled and kept on disk; no graph is lowered again. Within a class a tuple of sizes costs a few look-ups and one table of numbers
that the launcher reads. Imports neither sympy nor the code generator. Upstream: ``torch._inductor.runtime.triton_heuristics`` (grids) and Triton's
specialisation of arguments (``JITFunction``, multiples of 16).
"""
from __future__ import annotations

import base64
import json
from math import prod
from typing import Any, Callable, NamedTuple, Sequence

from . import cache
from .arena import ALIGN
from .runtime import Plan

WIDE_FROM = (1 << 31) - (1 << 17)
"""Bytes or iterations from which on offsets have 64 bits; a block may reach a little beyond the end."""
VECTORS_FROM = 1 << 16
"""Iterations from which on a program of its own for sizes that are multiples of 16 pays: below, a kernel costs its launch."""
POINTER, ARENA, SIZE, SCALAR, FLAGS = range(5)
"""What an argument of a launch is: a pointer of the run, an offset in the arena, a size, a number of the call, the error flags."""


class SizeClass(NamedTuple):
    """What a program depends on. ``symbols``, ``outer``, ``length``: no size of the class is larger; ``length``: iterations of the
    reduction loops. ``wide``: offsets of 64 bits. ``whole``: symbols (by place) that are multiples of 16."""

    symbols: tuple[int, ...]
    outer: tuple[int, ...]
    length: int
    wide: bool
    whole: tuple[int, ...]


def rounded(n: int) -> int:
    """The next of 1 to 16, 20, 24, 28, 32, 40, 48, 56, 64, 80 …: at most a quarter more."""
    if n <= 16:
        return max(n, 1)
    step = 1 << ((n - 1).bit_length() - 3)
    return -(-n // step) * step


def size_class(kernel: dict[str, Any], symbols: Sequence[int], outer: Sequence[int], inner: Sequence[int], nbytes: Sequence[int]) -> SizeClass:
    """``kernel``: its entry in the table. Rows go by powers of two, as the blocks that hold them do; what is known is taken as it is."""
    loops = tuple([rounded(n) if vary else n for n, vary in zip(outer, kernel["outer"])])
    length = prod(inner)
    length = 1 << max(length - 1, 0).bit_length() if kernel["inner"] else length
    count = prod(outer) * prod(inner)
    whole = tuple([k for k, n in enumerate(symbols) if n % 16 == 0]) if count >= VECTORS_FROM else ()
    return SizeClass(tuple(map(rounded, symbols)), loops, length, max(count, *nbytes) >= WIDE_FROM, whole)


class Call(NamedTuple):
    """A launch for one tuple of sizes."""

    program: int
    grid: tuple[int, int]
    args: tuple[tuple[int, int], ...]


class Variants:
    """Programs of the kernels of one graph, by class. ``add(program)``: takes the program in and returns its number."""

    def __init__(self, table: dict[str, Any], add: Callable[[dict[str, Any]], int]):
        self.table, self.add = table, add
        self.known: list[dict[SizeClass, dict[str, Any]]] = [{} for _ in table["kernels"]]
        self.numbers: dict[str, int] = {}
        for kernel, known in zip(table["kernels"], self.known):
            for key, variant in kernel["variants"]:
                known[SizeClass(*[tuple(k) if isinstance(k, list) else k for k in key])] = self._numbered(variant)

    def _numbered(self, variant: dict[str, Any]) -> dict[str, Any]:
        for call in variant["calls"]:
            text = json.dumps(call["program"])
            if text not in self.numbers:
                self.numbers[text] = self.add(call["program"])
            call["number"] = self.numbers[text]
        return variant

    def find(self, k: int, sizes: Sequence[Sequence[int]]) -> dict[str, Any]:
        """The variant of kernel ``k`` for (symbols, outer loops, inner loops, bytes of its operands)."""
        key = size_class(self.table["kernels"][k], *sizes)
        found = self.known[k].get(key)
        if found is None:
            found = self.known[k][key] = self._numbered(self._made(self.table["kernels"][k], key))
        return found

    def _made(self, kernel: dict[str, Any], key: SizeClass) -> dict[str, Any]:
        name = f"{cache.digest(kernel['plan'], repr(key), repr(self.table['hw']))}.variant"
        data = cache.load_bytes(name)
        if data is not None:
            return json.loads(data)
        from .codegen.triton_sized import variant
        made = variant(base64.b64decode(kernel["plan"]), key, self.table["hw"])
        cache.store_bytes(name, json.dumps(made).encode())
        return made

    def plan(self, kernels: Sequence[Sequence[Sequence[int]]], pack: Callable[[list[Call]], Any], nbytes: int, offsets: Sequence[int],
             make_views: Callable[..., tuple]) -> Plan:
        """The plan for one tuple of sizes: ``kernels[k]`` has the numbers of the k-th kernel, ``pack`` makes of a run's launches what its
        function takes. Pieces of workspace lie behind the ``nbytes`` of intermediates, those of one kernel after the other's."""
        start, most, runs, k = _round(nbytes), 0, [], 0
        for run in self.table["runs"]:
            calls: list[Call] = []
            for step in run["steps"]:
                symbols, outer, inner, _ = kernels[k]
                variant = self.find(k, kernels[k])
                places = [(POINTER, at) if kind == "p" else (ARENA, offsets[at]) for kind, at in step["places"]]
                work, end = [], start
                for each in variant["work"]:
                    work.append((ARENA, end))
                    end = _round(end + each * prod(outer))
                given = dict(b=places, w=work, s=[(SIZE, n) for n in symbols], x=[(SCALAR, n) for n in step["scalars"]], e=[(FLAGS, 0)])
                calls += [Call(c["number"], _grid(c["grid"], outer), tuple([given[kind][at] for kind, at in c["args"]])) for c in variant["calls"]]
                most, k = max(most, end - start), k + 1
            runs.append(pack(calls))
        return Plan(start + most if most else nbytes, make_views=make_views, runs=runs)


def _grid(spans: Sequence[Any], outer: Sequence[int]) -> tuple[int, int]:
    """Programs along both dimensions; none where there is nothing to walk."""
    counts = [s if isinstance(s, int) else -(-prod([outer[i] for i in s[0]]) // s[1]) for s in spans]
    return counts[0] if counts else 1, counts[1] if len(counts) > 1 else 1


def _round(size: int) -> int:
    return -(-size // ALIGN) * ALIGN
