"""Contractions and attentions with the loops that read their results: what one template may compute, and the step that it becomes.

Before: ``mm -> c``; kernel of ``gelu(c + bias)``. After: one step that holds ``c`` in registers and stores ``gelu(c + bias)`` only; loops that make
an operand may come along too (``operands``).
The law is that of ``fusion``: the loops must read ``c`` where they stand, and nothing may have to run in between. ``c`` is stored too where
anybody else reads it. Whether the template is faster than the library's kernel and a loop is for the caller of ``contract`` to find out.
Upstream: ``torch._inductor.scheduler.Scheduler.can_fuse`` for templates, ``finalize_multi_template_buffers``.
"""
from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterator, Mapping, Sequence

from ..ir import Buffer, Computed, Extern, Program
from .affine import Index
from .attention import Attention, attention_of
from .contraction import AXES, Contraction, contraction_of
from .flat import flatten
from .fusion import Group, attempt
from .graph import Order
from .kernels import Kernel, Schedule
from .operands import with_prologues
from .policy import Policy


@dataclass(eq=False)
class Template(Kernel):
    """``flat`` loads ``contraction.product`` and stores what follows from it. ``axes``: loop variables, outermost first, with their sizes that
    make batch, rows and columns of the product. ``tile``: the configuration that was chosen for it."""

    contraction: Contraction | Attention
    axes: dict[str, list[tuple[str, int]]]
    tile: Any = None

    def operands(self) -> set[str]:
        return set(self.contraction.operands)

    def flat_reads(self) -> set[str]:
        """What the loops after the product read."""
        return super().reads() - {self.contraction.product}

    def reads(self) -> set[str]:
        return self.flat_reads() | self.operands()

    def in_place_pairs(self) -> dict[str, list[str]]:
        """Operands are read by other programs, long after."""
        others = self.operands() | {self.contraction.product}
        return {name: [o for o in over if o not in others] for name, over in super().in_place_pairs().items()}


@dataclass(eq=False)
class Candidate:
    """A template that could take the place of an extern call, of the loops ``before`` it that make its operands, and of those ``after`` it (None:
    it only makes the call's result)."""

    step: Template
    before: list[Kernel]
    after: Kernel | None
    group: Group
    removed: set[str] = field(default_factory=set)


Choose = Callable[[Sequence[Candidate], Schedule], Sequence[Any]]
"""A tile for each candidate, or None where the extern call stays; the schedule has layouts, and no steps."""


@dataclass
class Contractor:
    """Finds templates among ``groups`` and puts those in place that ``choose`` wants."""

    program: Program
    steps: Sequence[Computed | Extern]
    graph: Order
    fresh: Iterator[int]
    policy: Policy
    buffers: Mapping[str, Buffer]

    def contract(self, groups: list[Group], removed: set[str], choose: Choose) -> tuple[list[Group], dict[int, Any]]:
        """(groups with what became one template in one group, (contraction, tile) of each template's group by unit)."""
        found = self.candidates(groups, removed)
        if not found:
            return groups, {}
        tiles = choose([c for c, _ in found], Schedule(self.program, [], dict(self.buffers), removed))
        taken: dict[int, Any] = {}
        by_unit = {g.unit: g for g in groups}
        for (candidate, after), tile in zip(found, tiles):
            if tile is not None:
                self._put(candidate, after, tile, by_unit, taken)
        return sorted(by_unit.values(), key=lambda g: self.graph.place[g.unit]), taken

    def candidates(self, groups: Sequence[Group], removed: set[str]) -> list[tuple[Candidate, Group | None]]:
        """Every contraction, the last first, each with the loops that may follow in its registers."""
        found: list[tuple[Candidate, Group | None]] = []
        claimed: set[int] = set()
        for k in reversed(range(len(self.steps))):
            step = self.steps[k]
            c = contraction_of(step, self.buffers) or attention_of(step, self.buffers) if isinstance(step, Extern) else None
            if c is None or c.made in removed:
                continue
            alone = Group.of(c.node(self.buffers, self.fresh), k, self.graph, self.fresh, frozenset(), self.policy)
            after, joined = self._reader(alone, c, [g for g in groups if g.unit not in claimed])
            if after is not None:
                claimed.add(after.unit)
            c, before = self._made_here(c, k, after, groups, claimed, removed)
            claimed.update(g.unit for g in before)
            gone = removed | self._unseen(c, after, groups)
            kernels = [Kernel(g, flatten(g.nodes, g.domain, removed)) for g in (*before, *([after] if after else []))]
            found.append((Candidate(template(joined, c, gone), kernels[:len(before)], kernels[-1] if after else None, joined, gone), after))
        return found

    def _made_here(self, c: Contraction | Attention, unit: int, after: Group | None, groups: Sequence[Group], claimed: set[int],
                   removed: set[str]) -> tuple[Contraction | Attention, list[Group]]:
        """``c`` with the operands that its template makes itself, and the groups that did."""
        if isinstance(c, Attention):
            return c, []
        made = {o.buffer: g for o in (c.a, c.b) for g in [self._only_maker(o.buffer, c, groups)]
                if g is not None and g is not after and g.unit not in claimed and self._may_wait(g.unit, unit)}
        with_loops, before = with_prologues(c, made, removed, self.buffers)
        if after is not None and not with_loops.operands.isdisjoint(after.written()):  # other programs read it still
            return c, []
        return with_loops, before

    def _only_maker(self, name: str, c: Contraction, groups: Sequence[Group]) -> Group | None:
        """The one group that touches ``name``, where nobody but ``c`` reads what it writes there."""
        touching = [g for g in groups if name in g.touched()]
        results = {name for s in self.steps if isinstance(s, Extern) and s is not c.extern for name in s.writes()}
        alone = len(touching) == 1 and not self._seen_outside(name, c)
        # what reads another call's result belongs behind that
        return touching[0] if alone and results.isdisjoint(touching[0].touched()) else None

    def _may_wait(self, unit: int, until: int) -> bool:
        return self.graph.place[unit] < self.graph.place[until] and self.graph.between(unit, until) is not None

    def _reader(self, alone: Group, c: Contraction | Attention, groups: Sequence[Group]) -> tuple[Group | None, Group]:
        """The nearest loops that read the result where it is made, and both in one group."""
        place = self.graph.place
        readers = [g for g in groups if any(a.buffer == c.made and a.mode == "load" for a in g.accesses())]
        for g in sorted(readers, key=lambda g: place[g.unit]):
            # what writes into an operand has to wait for all programs
            joined = attempt(alone, g) if not g.reduces and not g.scatters() and c.operands.isdisjoint(g.written()) else None
            if joined is not None and axes_of(joined) is not None:
                return g, joined
        return None, alone

    def _unseen(self, c: Contraction | Attention, after: Group | None, groups: Sequence[Group]) -> set[str]:
        """The result itself, where the loops ``after`` are all that reads it."""
        name = c.made
        others = any(name in g.touched() for g in groups if g is not after)
        return set() if after is None or others or self._seen_outside(name, c) else {name}

    def _seen_outside(self, name: str, c: Contraction | Attention) -> bool:
        """Whether ``name`` is the caller's, or another call than ``c``'s reads or writes it."""
        program = self.program
        lasting = {o.ref.buffer for o in program.outputs if o.ref is not None} | {b.name for b in (*program.inputs, *program.constants)}
        return name in lasting or any(isinstance(s, Extern) and s is not c.extern and name in s.reads() | s.writes() for s in self.steps)

    def _put(self, candidate: Candidate, after: Group | None, tile: Any, by_unit: dict[int, Group], taken: dict[int, Any]) -> None:
        c = candidate.step.contraction
        unit = next(k for k, s in enumerate(self.steps) if s is c.extern)
        group = Group.of(c.node(self.buffers, self.fresh), unit, self.graph, self.fresh, frozenset(), self.policy)
        if after is not None:
            joined = attempt(group, after)
            if joined is None:  # an earlier choice stands in the way
                return
            self.graph.merge(unit, after.unit)
            del by_unit[after.unit]
            group = joined
        for side in ("make_a", "make_b"):
            loops = getattr(c, side, None)
            if loops is not None and self._may_wait(loops.unit, unit):
                self.graph.merge(loops.unit, unit)
                del by_unit[loops.unit]
                unit = group.unit = loops.unit
            elif loops is not None:  # an earlier choice stands in the way
                c = replace(c, **{side: None})
        by_unit[unit] = group
        taken[unit] = (c, tile)


def template(group: Group, c: Contraction | Attention, removed: set[str], tile: Any = None) -> Template:
    """The step of a group that begins with ``c``'s product."""
    axes = axes_of(group)
    assert axes is not None
    return Template(group, flatten(group.nodes, group.domain, removed), c, axes, tile)


def axes_of(group: Group) -> dict[str, list[tuple[str, int]]] | None:
    """Loop variables of batch, rows and columns; None where the loops have others too."""
    sizes = group.domain.sizes
    axes = {axis: _variables(mark.index, sizes) for axis, mark in zip(AXES, group.nodes[0].accesses)}
    named = [v for vars in axes.values() for v, _ in vars]
    return axes if sorted(named) == sorted(sizes) and not group.domain.reduced else None


def _variables(index: Index, sizes: Mapping[str, Any]) -> list[tuple[str, int]]:
    return [(v, sizes[v]) for v, _ in sorted(index.terms.items(), key=lambda item: -item[1])]


def without_product(step: Template) -> Template:
    """The same with loads of the product as instructions of their own."""
    instrs = [i._replace(op="product", args=i.args[1:]) if i.op == "load" and i.args[0] == step.contraction.product else i
              for i in step.flat.instrs]
    return replace(step, flat=replace(step.flat, instrs=instrs))
