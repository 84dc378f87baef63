"""Loops that make an operand of a contraction, done where a template loads it: the prologue.

Before: kernel of ``w = int8.to(bfloat16) * scale``; ``mm(x, w)``. After: one step that reads the int8 and makes a tile of ``w`` in registers, each
time it needs one. That pays where the loops read no more bytes than ``w`` has, and are cheap: they are done again for every tile of the other side.
Upstream: prologue fusion, ``torch._inductor.scheduler.Scheduler.can_fuse_vertical`` and ``check_prologue_fusion_heuristics_fusable``.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterator, Mapping, Sequence

from ..ir import Buffer, Instr, Ref
from .affine import Index
from .attention import Attention
from .contraction import Contraction, Operand
from .costs import cost
from .flat import flatten
from .fusion import Group
from .nodes import map_indices, walk

DEAREST = 24
"""Cost of an element beyond which making it once and storing it is better."""
ALONE = frozenset(("indirect", "valid", "random_bits", "reduce", "masked"))
"""Instructions that a prologue does not have: they set flags, are drawn once, or need a scope of their own."""
Axes = dict[str, list[tuple[str, int]]]


@dataclass(frozen=True)
class Prologue:
    """``value`` of ``instrs``, over loops ``axes`` (outermost first) that make the operand's batch ``z``, its place along the result ``edge``, and ``k``."""

    instrs: tuple[Instr, ...]
    value: Ref
    axes: Axes
    reads: frozenset[str]
    unit: int
    """Of the group whose place it takes."""


def prologue(group: Group, o: Operand, sizes: Mapping[str, int], removed: set[str], buffers: Mapping[str, Buffer]) -> Prologue | None:
    """What ``group`` does for one element of ``o``, whose dimensions (z, edge, k) have ``sizes`` and ``o.strides``; None where that is no prologue."""
    if group.reduces or group.scatters() or group.written() - removed != {o.buffer}:
        return None
    instrs = flatten(group.nodes, group.domain, removed).instrs
    if instrs[-1].op != "store" or any(i.op == "store" or i.op in ALONE for i in walk(instrs[:-1])):
        return None
    (*others, store), loops = _cut(instrs, group.domain.sizes, o)
    axes = _axes(store.args[1], loops, o, sizes)
    loads = [i for i in others if i.op == "load"]
    if axes is None or not loads or sum(cost(i.op, i.dtype) for i in others) > DEAREST or _bytes(loads, axes, buffers) > o.dtype.itemsize:
        return None
    return Prologue(tuple(others), store.args[2], axes, frozenset(i.args[0] for i in loads), group.unit)


def _cut(instrs: list[Instr], loops: Mapping[str, int], o: Operand) -> tuple[list[Instr], dict[str, int]]:
    """``instrs`` and their loops, with a loop that runs over several dimensions of ``o`` (one over 20 * 17 numbers of a matrix) cut where they meet."""
    index, mapping, cut = instrs[-1].args[1], {}, {}
    for var, size in loops.items():
        c = index.stride(var)
        inside = {s for s in o.strides if 0 < c < s < c * size and s % c == 0 and c * size % s == 0}
        steps = [c, *sorted(inside), c * size]
        pieces = {f"{var}_{k}" if inside else var: (step, end // step) for k, (step, end) in enumerate(zip(steps, steps[1:]))} if c else {var: (0, size)}
        cut.update((name, n) for name, (_, n) in pieces.items())
        mapping[var] = Index(0, {name: step // c if c else 1 for name, (step, _) in pieces.items()})
    return list(map_indices(instrs, lambda e: e.subs(mapping, cut))), cut


def _bytes(loads: Sequence[Instr], axes: Axes, buffers: Mapping[str, Buffer]) -> int:
    """What is read for an element of a tile. What is the same along a side of the tile is read once for the side."""
    sides = [{v for v, _ in axes[axis]} for axis in ("edge", "k") if axes[axis]]
    return sum(buffers[i.args[0]].layout.dtype.itemsize for i in loads if all(side & set(map(str, i.args[1].names())) for side in sides))


def _axes(index: Index, loops: Mapping[str, int], o: Operand, sizes: Mapping[str, int]) -> Axes | None:
    """Which loops, outermost first, walk each dimension of ``o``, given where an element is stored; None unless each walks one dimension, and all of it."""
    if index.const != o.offset or not all(isinstance(t, str) and t in loops and isinstance(c, int) for t, c in index.terms.items()):
        return None
    walked = {axis: s for axis, s in zip(sizes, o.strides) if sizes[axis] > 1 and s}
    dims = sorted(((s, axis) for axis, s in walked.items()), reverse=True)
    found: dict[str, list[tuple[int, str]]] = {axis: [] for axis in sizes}
    for var, c in index.terms.items():
        axis = next((axis for s, axis in dims if s <= c < s * sizes[axis]), None)
        if axis is None or c % walked[axis]:
            return None
        found[axis].append((c // walked[axis], var))
    if sum(map(len, found.values())) != len(loops):
        return None  # a loop that does not move the store
    for axis, steps in found.items():
        length = 1
        for step, var in sorted(steps):
            if step != length:
                return None
            length *= loops[var]
        if length != (sizes[axis] if axis in walked else 1):
            return None
    return {axis: [(var, loops[var]) for _, var in sorted(steps, reverse=True)] for axis, steps in found.items()}


def with_prologues(c: Contraction, made: Mapping[str, Group], removed: set[str], buffers: Mapping[str, Buffer]) -> tuple[Contraction, list[Group]]:
    """``c`` with those of its operands made in the template that may be, and the groups that this takes the place of. ``made``: the group that
    makes a buffer that nobody but ``c`` reads."""
    if c.window is not None or c.a.buffer == c.b.buffer:
        return c, []
    z, m, n = c.sizes
    taken = []
    for side, edge in (("a", m), ("b", n)):
        o: Operand = getattr(c, side)
        # strides of (z, edge, k): ``b`` lies as (z, k, n)
        seen = o if side == "a" else replace(o, strides=(o.strides[0], o.strides[2], o.strides[1]))
        group = made.get(o.buffer)
        loops = prologue(group, seen, {"z": z, "edge": edge, "k": c.k}, removed, buffers) if group is not None else None
        if group is not None and loops is not None:
            c = replace(c, **{f"make_{side}": loops})
            taken.append(group)
    return c, taken


def prologues(c: Contraction | Attention) -> Iterator[tuple[str, Prologue]]:
    """(``lhs`` or ``rhs``, what makes it) of a contraction."""
    if isinstance(c, Contraction):
        yield from ((name, loops) for name, loops in (("lhs", c.make_a), ("rhs", c.make_b)) if loops is not None)
