"""Recorded facts -> guards: the smallest list from which all of them follow, readable, and as Python over what was passed.

A size's range comes first, merged into one guard (``2 <= s0 <= 1024``), then that sizes which share a symbol are equal, then the rest. A
fact that follows from the others is left out. Upstream: ``ShapeEnv.produce_guards``.
"""
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import sympy

from .facts import Facts
from .functions import python, relation
from .poly import number_of, poly

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

    def __str__(self) -> str:
        """``s0 % 8 == 0 with s0 = L['x'].size(1)``"""
        if self.twin is not None:
            return f"{self.twin.name()} == {self.fact.name} with {self._where()}"
        return f"{condition(self.fact)} with {self._where()}"

    def _where(self) -> str:
        symbols = sorted(self.fact.free_symbols, key=lambda s: s.name)
        return ", ".join(f"{s.name} = {self.sources[s].name()}" for s in symbols)


def condition(fact: sympy.Basic, names: Callable[[sympy.Symbol], str] = lambda s: s.name) -> str:
    """Text of a fact; an ``and`` of two bounds reads ``2 <= s0 <= 8``."""
    if isinstance(fact, sympy.And) and all(relation(a) == ">=" for a in fact.args) and len(fact.args) == 2:
        low, high = sorted(fact.args, key=lambda a: not a.rhs.is_Integer)
        if low.rhs.is_Integer and high.lhs.is_Integer and low.lhs == high.rhs:
            return f"{low.rhs} <= {python(low.lhs, names)} <= {high.lhs}"
    return python(fact, names)


def minimal(recorded: Sequence[Recorded], ranges: Ranges, sources: Mapping[sympy.Symbol, list["Source"]]) -> list[ShapeGuard]:
    """The guards of an environment. Symbols without a source are nobody's to guard."""
    from .env import decide, learn

    first = {s: all_[0] for s, all_ in sources.items() if all_}
    kept = [r for r in recorded if r.fact.free_symbols <= first.keys()]
    for r in list(kept):
        others = [k for k in kept if k is not r]
        if decide(_knowing(ranges, others, learn), r.fact):
            kept = others
    bounds, kept = _merged(ranges, kept, first)
    twins = [ShapeGuard(s, {s: first[s]}, (), other) for s, all_ in sources.items() for other in dict.fromkeys(all_[1:]) if other != all_[0]]
    return bounds + twins + [ShapeGuard(r.fact, {s: first[s] for s in r.fact.free_symbols}, r.frames) for r in kept]


def _knowing(ranges: Ranges, recorded: Sequence[Recorded], learn: Callable) -> Facts:
    facts = Facts()
    for symbol, (low, high) in ranges.items():
        facts.give(symbol, low, high)
    for r in recorded:
        learn(facts, r.fact)
    return facts


def _merged(ranges: Ranges, recorded: list[Recorded], first: Mapping) -> tuple[list[ShapeGuard], list[Recorded]]:
    """Bounds of single symbols, the given and the recorded ones together; and the facts that are more than that."""
    from .env import learn

    alone: dict[sympy.Symbol, list[Recorded]] = {s: [] for s in ranges if s in first}
    rest = []
    for r in recorded:
        symbol = next(iter(r.fact.free_symbols)) if len(r.fact.free_symbols) == 1 else None
        is_bound = symbol in alone and relation(r.fact) in ("<", "<=", ">", ">=") and poly(r.fact.lhs - r.fact.rhs).keys() <= {(number_of(symbol),), ()}
        (alone[symbol] if is_bound else rest).append(r)
    fixed = {r.fact.lhs for r in rest if relation(r.fact) == "==" and r.fact.rhs.is_Integer}
    out = []
    for symbol, found in alone.items():
        low, high = _knowing({symbol: ranges[symbol]}, found, learn).ranges[number_of(symbol)]
        fact = _between(symbol, low, high)
        if fact is not None and symbol not in fixed:
            out.append(ShapeGuard(fact, {symbol: first[symbol]}, tuple(f for r in found for f in r.frames)))
    return out, rest


def _between(symbol: sympy.Symbol, low: float, high: float) -> Any:
    if low == high:
        return sympy.Eq(symbol, int(low), evaluate=False)
    ends = []
    if math.isfinite(low):
        ends.append(sympy.Ge(symbol, int(low), evaluate=False))
    if math.isfinite(high):
        ends.append(sympy.Ge(sympy.Integer(int(high)), symbol, evaluate=False))
    return None if not ends else ends[0] if len(ends) == 1 else sympy.And(*ends, evaluate=False)
