"""Symbols of a graph: sizes and numbers that are known when it is called.

Loops meet products of symbols only: a size that is a sum or a quotient (``s0 + 1``, ``(s0 - 1)//2 + 1``) gets a name of its own (``d0``),
computed once a call, so that strides stay products, their division is exact, and generated code reads well. Where a size is known to be a
multiple (``s0 % 2 == 0``), its half is named and the size is twice that. A number used as an operand
becomes a scalar of the kernel (``c0`` an integer, ``x0`` a float), computed by the wrapper as Python computes it.
Upstream: ``torch._inductor.sizevars`` and ``DynamicScalar``.
"""
from __future__ import annotations

from typing import Any, Iterable

import sympy
import torch
from torch import fx

from ...shapes import FloorDiv, value
from ...shapes.poly import Poly, atom, content, divide, expression, poly
from ..sizes import UNKNOWN
from .tensors import Expr

SYMBOLIC = (torch.SymInt, torch.SymFloat)


class Symbols:
    """``inputs``: symbol -> its place among the arguments. ``derived``: symbol -> what it is, each of those before it. ``hints``: values of all."""

    def __init__(self, graph: fx.Graph, fakes: Iterable[Any] | None):
        self.inputs: dict[sympy.Symbol, int] = {}
        self.derived: dict[sympy.Symbol, Expr] = {}
        self.hints: dict[sympy.Symbol, Any] = {}
        self._names: dict[Any, Expr] = {}
        self._sums: dict[sympy.Symbol, Poly] = {}
        self._facts: Any = None
        self._parts: dict[int, Expr] = {}
        """Atoms that only the facts know (the half of an even size), and what they are."""
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        for position, val in enumerate(fakes if fakes is not None else [n.meta.get("val") for n in nodes]):
            if isinstance(val, SYMBOLIC):
                e = val.node.expr
                if not e.is_Symbol or e in self.inputs:  # found meanwhile to be a number, or another input: its place has a name that nobody reads
                    e = sympy.Symbol(f"known{position}", integer=e.is_integer)
                self.inputs[e] = position
                self.hints[e] = UNKNOWN if val.node.hint is None else val.node.hint
                self._facts = val.node.env.facts
        if self.inputs:
            self._know_multiples()
            self._name_sizes(graph)

    def _know_multiples(self) -> None:
        for a, image in self._facts.solved.items():
            linear = [(mono, c) for mono, c in image.items() if mono]
            if atom(a) in self.inputs and len(linear) == 1 and len(linear[0][0]) == 1 and isinstance(atom(linear[0][0][0]), sympy.Dummy):
                (mono, c), = linear
                self._parts[mono[0]] = FloorDiv(atom(a) - image.get((), 0), sympy.Integer(c))

    def _poly(self, e: Expr) -> Poly:
        """``e`` in terms of what is not known to be made of something else."""
        image = self._facts.image(poly(e)) if self._facts is not None else poly(e)
        known = all(a in self._parts for mono in image for a in mono if isinstance(atom(a), sympy.Dummy))
        return image if known else poly(e)

    def _name_sizes(self, graph: fx.Graph) -> None:
        """Sums first that are sizes themselves, so that products of them are recognised."""
        sizes: dict[Expr, None] = {}
        for node in graph.nodes:
            val = node.meta.get("val")
            for v in val if isinstance(val, (tuple, list)) else (val,):
                for n in getattr(v, "shape", ()):
                    if isinstance(n, torch.SymInt):
                        sizes[n.node.expr] = None
        for e in sorted(sizes, key=lambda e: max(map(len, self._poly(e)))):
            self.size(e)

    def size(self, x: Any) -> Expr:
        """A size or stride (an int, a SymInt or an expression) as a product."""
        if isinstance(x, int):
            return sympy.Integer(x)
        e = x if isinstance(x, sympy.Expr) else x.node.expr
        if e.is_Integer:
            return e
        found = self._names.get(e)
        if found is None:
            found = self._names[e] = self._product(self._poly(e))
        return found

    def sizes(self, xs: Iterable[Any]) -> tuple[Expr, ...]:
        return tuple(map(self.size, xs))

    def index(self, x: Any) -> Expr:
        """A position (a start, an offset) as a sum of products."""
        e = x if isinstance(x, sympy.Expr) else x.node.expr
        return sympy.Add(*[c * sympy.Mul(*map(self._atom, mono)) for mono, c in self._poly(e).items()])

    def scalar(self, x: Any) -> sympy.Symbol:
        """A number as a scalar of kernels: an integer, or a float, by the symbol's assumptions."""
        e = x if isinstance(x, sympy.Expr) else x.node.expr
        whole = bool(e.is_integer) and not isinstance(x, torch.SymFloat)
        if e.is_Symbol and not whole:
            return e
        return self._named(("scalar", e, whole), e, "c" if whole else "x", integer=True) if whole else self._named(
            ("scalar", e, whole), e, "x", real=True, integer=False)

    def number(self, x: Any) -> Any:
        """An argument of a lowering: positions stay expressions, floats become scalars."""
        if isinstance(x, torch.SymFloat):
            return self.scalar(x)
        return self.index(x) if isinstance(x, torch.SymInt) else x

    def _product(self, p: Poly) -> Expr:
        factor, rest = content(p) or 1, p
        result: Expr = sympy.Integer(factor)
        rest = {mono: c // factor for mono, c in p.items()}
        for symbol, sum_ in self._sums.items():
            while len(rest) > 1 and (quotient := divide(rest, sum_)) is not None:
                result, rest = result * symbol, quotient
        if len(rest) == 1:
            (mono, c), = rest.items()
            return result * c * sympy.Mul(*map(self._atom, mono))
        common = [a for a in set(next(iter(rest))) if all(a in mono for mono in rest)]
        if common:
            shared = {tuple(common): 1}
            return result * sympy.Mul(*map(self._atom, common)) * self._product(divide(rest, shared))
        symbol = self._named(frozenset(rest.items()), expression(rest), "d", integer=True, nonnegative=True)
        self._sums[symbol] = rest
        return result * symbol

    def _atom(self, number: int) -> Expr:
        e = self._parts.get(number, atom(number))
        return e if e.is_Symbol else self._named(e, e, "d", integer=True, nonnegative=e.is_nonnegative)

    def _named(self, key: Any, e: Expr, prefix: str, **assumptions: Any) -> sympy.Symbol:
        known = self._names.get(key)
        if known is None:
            count = sum(s.name[0] == prefix for s in self.derived)
            known = self._names[key] = sympy.Symbol(f"{prefix}{count}", **assumptions)
            self.derived[known] = e
            self.hints[known] = value(e, {s: self.hints.get(s, UNKNOWN) for s in e.free_symbols})
        return known
