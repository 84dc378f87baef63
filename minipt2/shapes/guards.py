"""Recorded facts -> guards: the smallest list from which all of them follow, readable, and as Python over what was passed.

A size's range comes first, merged into one guard (``2 <= s0 <= 1024``), then that sizes which share a symbol are equal, then the rest. A
fact that follows from the others is left out. Upstream: ``ShapeEnv.produce_guards``.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Mapping, Sequence

import sympy

from .facts import Facts, decide, learn
from .functions import python, relation
from .poly import atom, number_of
from .readable import ends
from .relations import normal, single

if TYPE_CHECKING:
    from .env import Source

Ranges = Mapping[sympy.Symbol, tuple[float, float]]


@dataclass(frozen=True)
class Recorded:
    """A fact that was relied on, and the user's lines that did."""

    fact: sympy.Basic
    frames: tuple


@dataclass(frozen=True)
class ShapeGuard:
    """One condition on sizes. ``sources``: where each symbol comes from; ``twin``: for a size that must equal that of the symbol."""

    fact: sympy.Basic
    sources: Mapping[sympy.Symbol, "Source"]
    frames: tuple = ()
    twin: "Source | None" = None

    def test(self, read: Callable[["Source"], str]) -> str:
        """Python text (``math`` in scope) that is true when the guard holds; ``read`` gives text for a source."""
        if self.twin is not None:
            return f"{read(self.twin)} == {read(self.sources[self.fact])}"
        return condition(self.fact, lambda symbol: read(self.sources[symbol]))

    def places(self) -> list["Source"]:
        """Where the numbers compared come from."""
        return [*self.sources.values(), *([] if self.twin is None else [self.twin])]

    def __str__(self) -> str:
        """``s0 % 8 == 0 with s0 = L['x'].size(1)``"""
        if self.twin is not None:
            return f"{self.twin.name()} == {self.fact.name} with {self._where()}"
        return f"{condition(self.fact)} with {self._where()}"

    def _where(self) -> str:
        symbols = sorted(self.fact.free_symbols, key=lambda s: s.name)
        return ", ".join(f"{s.name} = {self.sources[s].name()}" for s in symbols)


def condition(fact: sympy.Basic, names: Callable[[sympy.Symbol], str] = lambda s: s.name) -> str:
    """Text of a fact; both bounds of a symbol read ``2 <= s0 <= 8``."""
    if isinstance(fact, sympy.And):
        low, high = sorted(fact.args, key=lambda a: relation(a) == "<=")
        return f"{low.rhs} <= {python(low.lhs, names)} <= {high.rhs}"
    return python(fact, names)


def minimal(recorded: Sequence[Recorded], ranges: Ranges, sources: Mapping[sympy.Symbol, list["Source"]]) -> list[ShapeGuard]:
    """The guards of an environment. Symbols without a source are nobody's to guard."""
    first = {s: all_[0] for s, all_ in sources.items() if all_}
    parts = [Recorded(part, r.frames) for r in recorded for part in ends(r.fact) or (r.fact,)]
    kept = [r for r in parts if r.fact.free_symbols <= first.keys()]
    limits = [Recorded(fact, ()) for s, (low, high) in ranges.items() if s in first for fact in _ends(s, low, high)]
    needed: list[Recorded] = []
    for group in _related(kept + limits):
        needed += _without_implied(group)
    bounds = _merged([r for r in needed if _is_bound(r.fact)], first)
    twins = [ShapeGuard(s, {s: first[s]}, (), other) for s, all_ in sources.items() for other in dict.fromkeys(all_[1:]) if other != all_[0]]
    rest = [r for r in kept if r in needed and not _is_bound(r.fact)]
    return bounds + twins + [ShapeGuard(r.fact, {s: first[s] for s in r.fact.free_symbols}, r.frames) for r in rest]


def _related(facts: list[Recorded]) -> list[list[Recorded]]:
    """Facts that share symbols, directly or through others, together."""
    groups: list[tuple[set, list[Recorded]]] = []
    for r in facts:
        symbols, members = set(r.fact.free_symbols), [r]
        for group in [g for g in groups if g[0] & symbols]:
            groups.remove(group)
            symbols, members = symbols | group[0], group[1] + members
        groups.append((symbols, members))
    return [members for _, members in groups]


def _without_implied(group: list[Recorded]) -> list[Recorded]:
    """``group`` without what follows from the rest of it; earlier facts, which later ones often sharpen, go first."""
    for r in list(group):
        others = [k for k in group if k is not r]
        if others and decide(_knowing(others), r.fact):
            group = others
    return group


def _knowing(recorded: Sequence[Recorded]) -> Facts:
    facts = Facts()
    for r in recorded:
        learn(facts, r.fact)
    return facts


def _ends(symbol: sympy.Symbol, low: float, high: float) -> list[sympy.Basic]:
    out = [sympy.Ge(symbol, int(low), evaluate=False)] if math.isfinite(low) else []
    return out + [sympy.Le(symbol, int(high), evaluate=False)] if math.isfinite(high) else out


def _is_bound(fact: sympy.Basic) -> bool:
    """Whether it is an inequality about a single symbol."""
    p = normal(fact)
    return p is not None and p[0] == ">=" and single(p[1]) is not None and len(fact.free_symbols) == 1 and atom(single(p[1])[0]).is_Symbol


def _merged(bounds: list[Recorded], first: Mapping) -> list[ShapeGuard]:
    """All bounds of a symbol as one guard."""
    found: dict[sympy.Symbol, list[Recorded]] = {}
    for r in bounds:
        found.setdefault(*r.fact.free_symbols, []).append(r)
    out = []
    for symbol in first:
        if symbol in found:
            low, high = _knowing(found[symbol]).ranges[number_of(symbol)]
            frames = tuple(f for r in found[symbol] for f in r.frames)
            out.append(ShapeGuard(_between(symbol, low, high), {symbol: first[symbol]}, frames))
    return out


def _between(symbol: sympy.Symbol, low: float, high: float) -> sympy.Basic:
    if low == high:
        return sympy.Eq(symbol, int(low), evaluate=False)
    ends = _ends(symbol, low, high)
    return ends[0] if len(ends) == 1 else sympy.And(*ends, evaluate=False)
