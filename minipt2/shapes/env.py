"""``ShapeEnv``: the symbols of one captured frame, what is known about them, and what compiled code relies on.

In: sizes and numbers with the places they come from (``symbol``, ``number``, ``unbacked``), and questions (``evaluate``). Out: SymInts
to compute with, answers, and in the end the guards. A question that earlier facts decide costs nothing and leaves no trace; any other
is answered for the sizes at hand, and the answer becomes a fact. Upstream: ``torch.fx.experimental.symbolic_shapes.ShapeEnv``.
"""
from __future__ import annotations

import math
from contextlib import contextmanager
from typing import Any, Callable, Iterable, Iterator, Protocol

import sympy
import torch

from ..errors import Unsupported
from ..exercise import exercise
from .arithmetic import CALLS, combine, result_type
from .facts import Facts, decide, learn
from .functions import python, relation, value
from .guards import Recorded, ShapeGuard, minimal
from .known import plain
from .poly import atom, expression
from .readable import readable
from .relations import negated
from .symint import Node


class Source(Protocol):
    """Where a number comes from."""

    def name(self) -> str: ...


class UnknownSize(Unsupported):
    """A question about a size that depends on data, which no fact decides. ``fact``: the question as text."""

    def __init__(self, fact: str):
        super().__init__("MP103", f"whether {fact} depends on a tensor's data")
        self.fact = fact


class LateGuard(Exception):
    """A fact that is not known was needed when the guards had been compiled already."""


class ShapeEnv:
    """See the module. ``where()`` gives the user's lines of the moment, innermost last, for guards to name."""

    def __init__(self, where: Callable[[], tuple] = tuple):
        self.where = where
        self.facts = Facts()
        self.sources: dict[sympy.Symbol, list[Source]] = {}
        self.hints: dict[sympy.Symbol, int | float] = {}
        self.marked: set[sympy.Symbol] = set()
        self.recorded: list[Recorded] = []
        self.asserted: list[Recorded] = []
        self.version = 0
        self.memo: dict[Any, dict] = {}
        """What functions of these symbols gave (``known.memo``)."""
        self._by_size: dict[int, list[sympy.Symbol]] = {}
        self._ranges: dict[sympy.Symbol, tuple[float, float]] = {}
        self._nodes: dict[tuple, Node] = {}
        self._replacements: dict[sympy.Basic, sympy.Basic] = {}
        self._answers: dict[sympy.Basic, bool] = {}
        self._frozen = False
        self._counts = {"s": 0, "n": 0, "f": 0, "u": 0}

    # -- symbols ---------------------------------------------------------------------------------------------------
    @exercise("8.3")
    def symbol(self, size: int, source: Source, *, marked: bool = False, min: int | None = None, max: int | None = None,
               apart: Iterable[torch.SymInt] = ()) -> "torch.SymInt | int":
        """The size of a dimension. 0 and 1 stay numbers, and equal sizes share a symbol; neither for a ``marked`` one, which has its own.

        ``apart``: SymInts that it shall not share with, as they are other dimensions of the same tensor, equal by chance.
        """
        # >>> 8.3
        if not marked:
            if size in (0, 1):
                return size
            for known in self._by_size.get(size, ()):
                if not any(known in n.node.expr.free_symbols for n in apart):
                    self.sources[known].append(source)
                    return self._wrapped(known)
        low = min if min is not None else 2 if size >= 2 else size
        symbol = self._new("s", size, source, low, math.inf if max is None else max, integer=True, positive=True if low > 0 else None)
        if marked:
            self.marked.add(symbol)
        else:
            self._by_size.setdefault(size, []).append(symbol)
        return self._wrapped(symbol)
        # <<< 8.3

    def stride(self, stride: int, source: Source) -> "torch.SymInt | int":
        """The stride of a dimension; it has a symbol of its own, as it equals sizes and other strides by chance alone. 0 and 1 stay numbers."""
        return stride if stride in (0, 1) else self._wrapped(self._new("s", stride, source, 2, integer=True, positive=True))

    def number(self, number: int | float, source: Source) -> "torch.SymInt | torch.SymFloat | float":
        """A Python number that varies: any int, any finite float (others stay as they are)."""
        if isinstance(number, float):
            return self._wrapped(self._new("f", number, source, real=True), float) if math.isfinite(number) else number
        return self._wrapped(self._new("n", number, source, integer=True))

    def unbacked(self, low: int | None = 0, high: int | None = None, kind: type = int) -> "torch.SymInt | torch.SymFloat":
        """A size (or another number) that depends on data: no hint, and nobody's input."""
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        assumptions = {"real": True} if kind is float else {"integer": True}
        return self._wrapped(self._new("u", None, None, *ends, **assumptions), kind)

    def count(self, kind: str) -> int:
        """How many symbols there are of a kind: ``s`` sizes, ``n`` and ``f`` numbers, ``u`` what depends on data."""
        return self._counts[kind]

    def _new(self, kind: str, hint: Any, source: Source | None, low: float = -math.inf, high: float = math.inf, **assumptions: Any) -> sympy.Symbol:
        symbol = sympy.Symbol(f"{kind}{self._counts[kind]}", **assumptions)
        self._counts[kind] += 1
        self.sources[symbol] = [source] if source is not None else []
        if hint is not None:
            self.hints[symbol] = hint
        if symbol.is_integer:
            self._ranges[symbol] = (low, high)
            self.facts.give(symbol, low, high, source is None)
        return symbol

    def _wrapped(self, symbol: sympy.Symbol, pytype: type = int) -> Any:
        return plain(self.node(symbol, pytype))

    # -- nodes -----------------------------------------------------------------------------------------------------
    def node(self, expr: sympy.Basic, pytype: type, hint: Any = None) -> Node:
        """The one node of an expression; ``hint``: its value, where that is at hand."""
        key = (expr, pytype)
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(expr, self, pytype, self.hint(expr) if hint is None else hint)
        return found

    def constant(self, number: int | float | bool) -> Node:
        key = (number, type(number))
        found = self._nodes.get(key)
        if found is None:
            found = self._nodes[key] = Node(sympy.sympify(number), self, type(number), number)
        return found

    def apply(self, op: str, *nodes: Node) -> Node:
        """The node of ``op`` (a row of ``functions.OPAQUE``, a comparison, ``add`` …) on nodes. Decides nothing but signs of dividends."""
        constant = all([n.is_constant() for n in nodes])  # before hints are read: knowing may have given one
        hints = [n.hint for n in nodes]
        hint = CALLS[op](*hints) if None not in hints else None
        if constant:
            return self.constant(hint)
        kinds = [n.pytype for n in nodes]
        return self.node(combine(self, op, [n.expr for n in nodes], kinds), result_type(op, kinds), hint)

    def hint(self, expr: sympy.Basic) -> Any:
        """The value of an expression for the sizes at hand; None where it depends on data."""
        try:
            return value(expr, self.hints)
        except KeyError:
            return None

    def replace(self, expr: sympy.Basic) -> sympy.Basic:
        """``expr`` with sizes known to be equal written as one, and known ones as numbers."""
        return expr.xreplace(self._replacements) if self._replacements else expr

    def text(self, expr: sympy.Basic) -> str:
        return python(expr)

    # -- questions -------------------------------------------------------------------------------------------------
    @exercise("8.2")
    def evaluate(self, fact: sympy.Basic) -> bool:
        """The truth of ``fact`` for the sizes at hand; recorded unless it follows. Raises ``UnknownSize``, ``LateGuard``."""
        # >>> 8.2
        known = self.implied(fact)
        if known is not None:
            return known
        holds = self.hint(fact)
        if holds is None:
            raise UnknownSize(self.text(fact))
        self._record(fact if holds else negated(fact))
        return holds
        # <<< 8.2

    def implied(self, fact: sympy.Basic) -> bool | None:
        """The truth of ``fact`` if what is known decides it. Never records."""
        found = self._answers.get(fact)
        if found is None:
            found = decide(self.facts, fact)
            if found is not None:
                self._answers[fact] = found
        return found

    def evaluate_sym_node(self, node: Node, size_oblivious: bool = False, fallback_value: bool | None = None) -> bool:
        """``evaluate`` as torch's meta kernels call it: ``fallback_value`` answers what depends on data."""
        if fallback_value is not None and node.hint is None and self.implied(node.expr) is None:
            return fallback_value
        return self.evaluate(node.expr)

    def _maybe_evaluate_static(self, fact: sympy.Basic) -> bool | None:
        return self.implied(fact)

    def specialize(self, node: Node) -> Any:
        """The number that ``node`` is, from now on. Raises Unsupported for one that depends on data."""
        if not node.is_constant():
            if node.hint is None:
                raise Unsupported("MP102", f"Python needs the number {self.text(node.expr)}, which depends on a tensor's data")
            self.evaluate(sympy.Eq(node.expr, sympy.sympify(node.hint), evaluate=False))
        return node.hint

    def expect(self, fact: sympy.Basic) -> bool:
        """``torch._check(fact)``: like ``evaluate``, but of sizes that depend on data it is believed, to be checked when they are there."""
        if self.hint(fact) is not None:
            return self.evaluate(fact)
        known = self.implied(fact)
        if known is None:
            self.asserted.append(Recorded(fact, self.where()))
            self._learn(fact)
        return known is not False

    def assume(self, fact: sympy.Basic) -> None:
        """``fact`` holds by itself: whoever made the symbols says so. No guard comes of it."""
        if self.implied(fact) is None:
            self._learn(fact)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Within, a fact that does not follow raises ``LateGuard`` instead of being recorded."""
        before, self._frozen = self._frozen, True
        try:
            yield
        finally:
            self._frozen = before

    def guards(self) -> list[ShapeGuard]:
        """What must hold of sizes for the compiled code to be right: none of them follows from the others."""
        return minimal(self.recorded, self._ranges, self.sources)

    # -- facts -----------------------------------------------------------------------------------------------------
    @exercise("8.2")
    def _record(self, fact: sympy.Basic) -> None:
        """``fact`` is true of the sizes at hand. Of an ``or`` the first true part is enough."""
        # >>> 8.2
        if isinstance(fact, sympy.And):
            for part in fact.args:
                self.evaluate(part)
        elif isinstance(fact, sympy.Or):
            self._record(next(part for part in fact.args if self.hint(part)))
        elif isinstance(fact, sympy.Not):
            self._record(negated(fact.args[0]))
        else:
            if self._frozen:
                raise LateGuard(self.text(fact))
            self.recorded.append(Recorded(readable(self.facts, fact), self.where()))
            self._learn(fact)
        # <<< 8.2

    def _learn(self, fact: sympy.Basic) -> None:
        learn(self.facts, fact)
        self._answers[fact] = True
        self._answers[negated(fact)] = False
        replaced = {}
        for a, image in self.facts.solved.items():
            if atom(a).is_Symbol and not any(isinstance(atom(b), sympy.Dummy) or atom(b).has(sympy.Dummy) for mono in image for b in mono):
                replaced[atom(a)] = expression(image)
        if relation(fact) == "==" and fact.lhs.is_Symbol and fact.rhs.is_Float:
            replaced[fact.lhs] = fact.rhs
        if any(self._replacements.get(s) != e for s, e in replaced.items()):
            self._replacements = {**self._replacements, **replaced}
            self.version += 1
