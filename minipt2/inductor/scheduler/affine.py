"""``Index``: an index expression as ``const + sum(coefficient * term)``, in plain integers.

The scheduler compares, splits and reorders thousands of index expressions a graph; sympy takes tens of microseconds for what
a dict of integers does in one. A term is the name of a loop variable (``p0``), of an indirect index (``i0``), or an atom that
stays opaque: ``Quot(index, k)`` for ``index // k``, ``Rem(index, k)`` for ``index % k``, ``Opaque(expr)`` for anything else.
Coefficients, divisors and sizes are ints, or sympy expressions of size symbols (``s0``), which are no terms: ``s0*p0 + s0`` has the term ``p0``.
Upstream: ``torch._inductor.sizevars`` and ``dependencies.MemoryDep``.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Iterable, Iterator, Mapping, NamedTuple, Sequence

import sympy

from ...exercise import exercise
from ...shapes import FloorDiv, Mod
from ..sizes import below, exact, is_size, nonnegative, number, tidy


class Index:
    """Immutable sum of terms. Equal sums are equal and hash alike."""

    __slots__ = ("const", "terms", "_hash")

    def __init__(self, const: Any = 0, terms: Mapping[Any, Any] | None = None):
        self.const = const if type(const) is int else tidy(const)
        self.terms: dict[Any, Any] = {t: c for t, c in [(t, c if type(c) is int else tidy(c)) for t, c in terms.items()] if c != 0} if terms else {}
        self._hash: int | None = None

    @staticmethod
    def var(name: str) -> "Index":
        return Index(0, {name: 1})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self.const == other.const and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.const, frozenset(self.terms.items())))
        return self._hash

    def __reduce__(self) -> tuple:
        return Index, (self.const, self.terms)  # hashes of names differ between processes

    def __repr__(self) -> str:
        parts = [str(t) if c == 1 else f"{c}*{t}" for t, c in self.terms.items()]
        return " + ".join(parts + ([str(self.const)] if self.const != 0 or not parts else []))

    def __add__(self, other: "Index") -> "Index":
        terms = dict(self.terms)
        for t, c in other.terms.items():
            terms[t] = terms.get(t, 0) + c
        return Index(self.const + other.const, terms)

    def scale(self, k: Any) -> "Index":
        return Index(self.const * k, {t: c * k for t, c in self.terms.items()})

    def stride(self, name: str) -> Any:
        """Coefficient of a variable; 0 when it does not occur as a plain term."""
        return self.terms.get(name, 0)

    def names(self) -> frozenset[str]:
        """All variables, those inside atoms included."""
        return _names(self)

    def is_affine(self) -> bool:
        return all(isinstance(t, str) for t in self.terms)

    def subs(self, mapping: Mapping[str, "Index"], sizes: Mapping[str, Any]) -> "Index":
        """Replace variables; quotients and remainders are simplified under the new ranges ``sizes``."""
        if not any(n in mapping for n in self.names()):
            return self
        const, terms = self.const, {}
        for t, c in self.terms.items():
            new = mapping.get(t) if isinstance(t, str) else _subs_atom(t, mapping, sizes)
            if new is None:
                terms[t] = terms.get(t, 0) + c
                continue
            const = const + c * new.const
            for u, d in new.terms.items():
                terms[u] = terms.get(u, 0) + c * d
        return _rejoined(Index(const, terms))

    def bounds(self, sizes: Mapping[str, Any]) -> tuple[int, int] | None:
        """Least and greatest value under ``0 <= v < sizes[v]``; None when unknown."""
        lo = hi = self.const
        if not isinstance(lo, int):
            return None
        for t, c in self.terms.items():
            top = _top(t, sizes)
            if top is None or not isinstance(c, int):
                return None
            lo, hi = (lo + c * top, hi) if c < 0 else (lo, hi + c * top)
        return lo, hi


class Quot(NamedTuple):
    """``arg // k`` for a non-negative ``arg``."""

    arg: Index
    k: Any
    sign: str = "//"  # tuples of different classes are equal when their fields are

    def __str__(self) -> str:
        return f"({self.arg})//{self.k}"


class Rem(NamedTuple):
    """``arg % k`` for a non-negative ``arg``."""

    arg: Index
    k: Any
    sign: str = "%"

    def __str__(self) -> str:
        return f"({self.arg})%{self.k}"


class Opaque(NamedTuple):
    """A sympy expression with no integer form here."""

    expr: sympy.Expr

    def __str__(self) -> str:
        return str(self.expr)


ZERO = Index()


@lru_cache(maxsize=65536)
def _names(index: Index) -> frozenset[str]:
    out: set[str] = set()
    for t in index.terms:
        if isinstance(t, str):
            out.add(t)
        elif isinstance(t, Opaque):
            out.update(s.name for s in t.expr.free_symbols if not is_size(s))
        else:
            out |= _names(t.arg)
    return frozenset(out)


def _top(term: Any, sizes: Mapping[str, Any]) -> int | None:
    """Greatest value of a term; its least is 0."""
    if isinstance(term, str):
        n = sizes.get(term)
        return n - 1 if isinstance(n, int) else None
    if isinstance(term, Opaque):
        return None
    inner = term.arg.bounds(sizes)
    if not isinstance(term.k, int):
        return None
    if isinstance(term, Rem):
        return term.k - 1 if inner is None else min(term.k - 1, max(inner[1], 0))
    return None if inner is None else max(inner[1], 0) // term.k


def quot(a: Index, k: Any, sizes: Mapping[str, Any]) -> Index:
    """``a // k``, with multiples of ``k`` taken out and what is smaller than ``k`` dropped."""
    whole, rest = _divide(a, k, sizes)
    if rest is None:
        return whole
    if len(rest.terms) == 1 and rest.const == 0:
        (t, c), = rest.terms.items()
        if c == 1 and isinstance(t, Quot):  # (x // m) // k == x // (m*k)
            return whole + quot(t.arg, t.k * k, sizes)
    return whole + Index(0, {Quot(rest, k): 1})


def rem(a: Index, k: Any, sizes: Mapping[str, Any]) -> Index:
    """``a % k`` likewise."""
    whole, rest = _divide(a, k, sizes)
    return a + whole.scale(-k) if rest is None else Index(0, {Rem(rest, k): 1})


def _divide(a: Index, k: Any, sizes: Mapping[str, Any]) -> tuple[Index, Index | None]:
    """(multiples of ``k`` in ``a``, the rest); the rest is None when it lies in [0, k)."""
    if not all(isinstance(c, int) for c in (k, a.const, *a.terms.values())):
        return _divide_symbolic(a, k, sizes)
    if all(isinstance(c, int) and c % k == 0 for c in a.terms.values()) and a.const % k == 0:
        return Index(a.const // k, {t: c // k for t, c in a.terms.items()}), None
    multiples = {t: c for t, c in a.terms.items() if isinstance(c, int) and c % k == 0}
    rest = Index(a.const % k, {t: c for t, c in a.terms.items() if t not in multiples})
    limits = rest.bounds(sizes)
    if limits is None or limits[0] < 0:  # C rounds towards zero: only non-negative rests may stand alone
        limits = a.bounds(sizes)
        return (ZERO, None) if limits is not None and 0 <= limits[0] and limits[1] < k else (ZERO, a)
    whole = Index(a.const // k, {t: c // k for t, c in multiples.items()})
    return whole, None if limits[1] < k else rest


def _divide_symbolic(a: Index, k: Any, sizes: Mapping[str, Any]) -> tuple[Index, Index | None]:
    """The same where a coefficient or ``k`` is an expression of sizes."""
    multiples = {t: q for t, c in a.terms.items() if (q := exact(c, k)) is not None}
    whole = exact(a.const, k)
    rest = Index(a.const if whole is None else 0, {t: c for t, c in a.terms.items() if t not in multiples})
    limits = extent(rest, sizes)
    if limits is None or not nonnegative(limits[0]):
        limits = extent(a, sizes)
        return (ZERO, None) if limits is not None and nonnegative(limits[0]) and below(limits[1], k) else (ZERO, a)
    return Index(whole or 0, multiples), None if below(limits[1], k) else rest


def extent(index: Index, sizes: Mapping[str, Any]) -> tuple[Any, Any] | None:
    """``bounds`` with limits that may be expressions; None when unknown."""
    lo = hi = index.const
    for t, c in index.terms.items():
        count = _count(t, sizes)
        if count is None:
            return None
        if nonnegative(c):
            hi = hi + c * (count - 1)
        elif nonnegative(-c):
            lo = lo + c * (count - 1)
        else:
            return None
    return tidy(lo), tidy(hi)


def _count(term: Any, sizes: Mapping[str, Any]) -> Any:
    """A number that a term, which starts at 0, never reaches."""
    if isinstance(term, str):
        return sizes.get(term)
    if isinstance(term, Quot):
        limits = extent(term.arg, sizes)
        return None if limits is None else exact(tidy(limits[1] + 1), term.k)
    return term.k if isinstance(term, Rem) else None


def _rejoined(index: Index) -> Index:
    """``c*k*(x // k) + c*(x % k)`` is ``c*x``."""
    for t, c in index.terms.items():
        if isinstance(t, Rem) and index.terms.get(Quot(t.arg, t.k)) == tidy(c * t.k):
            rest = {u: d for u, d in index.terms.items() if u not in (t, Quot(t.arg, t.k))}
            return _rejoined(Index(index.const, rest) + t.arg.scale(c))
    return index


def _subs_atom(atom: Any, mapping: Mapping[str, Index], sizes: Mapping[str, Any]) -> Index | None:
    if isinstance(atom, Opaque):
        symbols = {s: to_sympy(mapping[s.name]) for s in atom.expr.free_symbols if s.name in mapping}
        return from_sympy(atom.expr.xreplace(symbols)) if symbols else None
    if not any(n in mapping for n in atom.arg.names()):
        return None
    arg = atom.arg.subs(mapping, sizes)
    return quot(arg, atom.k, sizes) if isinstance(atom, Quot) else rem(arg, atom.k, sizes)


@lru_cache(maxsize=65536)
def from_sympy(e: sympy.Expr) -> Index:
    """Convert an index expression of the loop IR (``+``, ``*``, ``FloorDiv``, ``Mod`` over integer symbols)."""
    if e.is_Integer:
        return Index(int(e))
    if e.is_Symbol:
        return Index(e) if is_size(e) else Index(0, {e.name: 1})
    if e.is_Add:
        total = ZERO
        for arg in e.args:
            total = total + from_sympy(arg)
        return total
    if e.is_Mul:
        c, rest = e.as_coeff_Mul()
        if c.is_Integer and c != 1:
            return from_sympy(rest).scale(int(c))
        expanded = e.expand()
        if expanded.is_Add:
            return from_sympy(expanded)
        factors = [f for f in e.args if _is_of_sizes(f)]
        if factors:
            return from_sympy(sympy.Mul(*[f for f in e.args if f not in factors])).scale(sympy.Mul(*factors))
    elif _is_of_sizes(e):
        return Index(e)
    elif isinstance(e, (FloorDiv, Mod)) and _is_of_sizes(e.args[1]):
        kind = Quot if isinstance(e, FloorDiv) else Rem
        return Index(0, {kind(from_sympy(e.args[0]), number(e.args[1])): 1})
    return Index(0, {Opaque(e): 1})


@lru_cache(maxsize=65536)
def _is_of_sizes(e: sympy.Expr) -> bool:
    return all(map(is_size, e.free_symbols))


def to_sympy(index: Index) -> sympy.Expr:
    """Back again, for opaque expressions."""
    total = sympy.sympify(index.const)
    for t, c in index.terms.items():
        if isinstance(t, str):
            e = sympy.Symbol(t, integer=True, nonnegative=True)
        elif isinstance(t, Opaque):
            e = t.expr
        else:
            e = (FloorDiv if isinstance(t, Quot) else Mod)(to_sympy(t.arg), sympy.sympify(t.k))
        total = total + c * e
    return total


def atoms(index: Index) -> Iterator[Any]:
    """Quotients and remainders in ``index``, outermost first."""
    for t in index.terms:
        if isinstance(t, (Quot, Rem)):
            yield t
            yield from atoms(t.arg)


def split_point(index: Index, sizes: Mapping[str, Any]) -> tuple[str, Any] | None:
    """(variable, inner size) at which one variable must be split to make progress towards an affine index; None: there is none."""
    for atom in atoms(index):
        for t, c in atom.arg.terms.items():
            n = sizes.get(t) if isinstance(t, str) else None
            f = exact(atom.k, c) if n is not None and nonnegative(c) else None
            if f is not None and f != 1 and exact(n, f) not in (None, 1):
                return t, f
    return None


@exercise("6.1")
def merge_runs(sizes: Sequence[Any], strides: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Groups of neighbouring dimensions (outermost first) that every operand walks as one; ``strides[k]`` are operand k's.

    Dimensions of size 1 belong to no group: their stride means nothing.
    """
    # >>> 6.1
    runs: list[list[int]] = []
    for d, n in enumerate(sizes):
        if n == 1:
            continue
        if runs and all(s[runs[-1][-1]] == s[d] * n for s in strides):
            runs[-1].append(d)
        else:
            runs.append([d])
    return runs
    # <<< 6.1


def mergeable(vars: Sequence[str], sizes: Mapping[str, Any], indices: Iterable[Index]) -> list[list[str]]:
    """Runs of neighbouring variables that every index walks as one; a variable inside a quotient or remainder stays alone."""
    distinct = list(dict.fromkeys(indices))
    strides: list[list[Any]] = [[index.stride(v) for v in vars] for index in distinct]
    pinned = {v for index in distinct for t in index.terms if not isinstance(t, str) for v in Index(0, {t: 1}).names()}
    strides += [[int(v == w) for v in vars] for w in pinned if w in vars]
    return [[vars[d] for d in run] for run in merge_runs([sizes[v] for v in vars], strides)]
