"""Make two loop nests walk the same space: which variable of one is which of the other.

Two nests that touch the same buffer agree on its elements, so the strides with which they walk it pair their variables,
whatever their order or shape: ``x[256*a + b]`` and ``x[2048*i + 256*j + k]`` meet in three loops (8*i + j is a, k is b).
Upstream has no single counterpart; compare ``loop reindexing`` and ``SchedulerNode.merge_loops``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterator, Mapping, NamedTuple, Sequence

from ..sizes import exact, hint, tidy
from .affine import Index


class Dim(NamedTuple):
    """``size`` values of variable ``var`` that lie ``stride`` apart in the shared buffer."""

    stride: Any
    size: Any
    var: str


class Piece(NamedTuple):
    """A loop of the common nest: part of ``a`` (times ``a_mult``) and part of ``b`` (times ``b_mult``)."""

    size: Any
    a: str
    a_mult: Any
    b: str
    b_mult: Any


@dataclass
class Domain:
    """Loop variables with sizes, outermost first, and those that are reduced over."""

    sizes: dict[str, Any]
    reduced: frozenset[str] = field(default_factory=frozenset)


class Alignment(NamedTuple):
    """``a`` and ``b`` map old variables to indices over the new ones; the result's domain is ``domain``."""

    a: dict[str, Index]
    b: dict[str, Index]
    domain: Domain


def align(a: Domain, b: Domain, ia: Index, ib: Index, fresh: Iterator[int]) -> Alignment | None:
    """Align ``b`` with ``a`` through a buffer that they index by ``ia`` and ``ib``. None: the two do not walk one space.

    Where each starts (the constants) does not matter here: parts of one buffer may be walked side by side.
    """
    da, db = _dims(ia, a.sizes), _dims(ib, b.sizes)
    if da is None or db is None:
        return None
    pieces = _pair(da, db, by_stride=True)
    if pieces is None:
        return None
    rest_a = [v for v in a.sizes if not ia.stride(v)]
    rest_b = [v for v in b.sizes if not ib.stride(v)]
    if rest_a and rest_b:
        more = _pair([Dim(0, a.sizes[v], v) for v in rest_a], [Dim(0, b.sizes[v], v) for v in rest_b], by_stride=False)
        if more is None:
            return None
        pieces += more
    elif rest_a and set(rest_a) != a.reduced or rest_b and set(rest_b) != b.reduced:
        return None  # the smaller nest may only miss the reduced dimensions of the larger
    elif (rest_a and b.reduced) or (rest_b and a.reduced):
        return None
    return _build(a, b, pieces, rest_a if not rest_b else [], rest_b if not rest_a else [], fresh)


def _dims(index: Index, sizes: Mapping[str, Any]) -> list[Dim] | None:
    """Innermost last; None when an index is not a plain sum over the nest's variables."""
    if any(t not in sizes for t in index.terms):
        return None
    dims = [Dim(c, sizes[t], t) for t, c in index.terms.items()]
    dims.sort(key=lambda d: -hint(d.stride))  # which dimensions then pair, if any, is decided by equal strides
    return dims


def _pair(da: Sequence[Dim], db: Sequence[Dim], by_stride: bool) -> list[Piece] | None:
    """Walk both lists from the innermost dimension, splitting the longer of two that meet."""
    rest_a, rest_b = list(da), list(db)
    pieces: list[Piece] = []
    done = {"a": 1, "b": 1}
    while rest_a and rest_b:
        a, b = rest_a.pop(), rest_b.pop()
        if by_stride and a.stride != b.stride:
            return None
        n = _common(a.size, b.size)
        if n is None:
            return None
        pieces.append(Piece(n, a.var, done["a"], b.var, done["b"]))
        done["a"] = _advance(rest_a, a, n, done["a"])
        done["b"] = _advance(rest_b, b, n, done["b"])
    return None if rest_a or rest_b else pieces


def _common(n: Any, m: Any) -> Any:
    if n == m:
        return n
    small, large = (n, m) if exact(m, n) is not None else (m, n)
    return small if small != 1 and exact(large, small) is not None else None


def _advance(rest: list[Dim], d: Dim, n: Any, done: Any) -> Any:
    """Put back what is left of ``d`` after its ``n`` innermost values; returns how many values of that variable are done."""
    if d.size == n:
        return 1
    rest.append(Dim(tidy(d.stride * n), exact(d.size, n), d.var))
    return done * n


def _build(a: Domain, b: Domain, pieces: list[Piece], only_a: list[str], only_b: list[str], fresh: Iterator[int]) -> Alignment | None:
    map_a: dict[str, Index] = {}
    map_b: dict[str, Index] = {}
    sizes: dict[str, Any] = {}
    reduced: set[str] = set()
    for p in reversed(pieces):  # outermost first
        kind_a, kind_b = p.a in a.reduced, p.b in b.reduced
        if kind_a != kind_b and a.reduced and b.reduced:
            return None
        whole = p.size == a.sizes[p.a]
        v = p.a if whole else f"{p.a[0]}{next(fresh)}"
        sizes[v] = p.size
        if kind_a or kind_b:
            reduced.add(v)
        if not whole:
            map_a[p.a] = map_a.get(p.a, Index()) + Index(0, {v: p.a_mult})
        map_b[p.b] = map_b.get(p.b, Index()) + Index(0, {v: p.b_mult})
    for v in only_a:
        sizes[v] = a.sizes[v]
        reduced.add(v)
    for v in only_b:
        sizes[v] = b.sizes[v]
        reduced.add(v)
    return Alignment(map_a, map_b, Domain(sizes, frozenset(reduced)))
