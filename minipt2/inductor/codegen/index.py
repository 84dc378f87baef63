"""Index arithmetic of generated code: loops that are one, and indices as text; expressions without needless parentheses.

Upstream: ``torch._inductor.sizevars.simplify_loops`` and ``codegen.common.ExprPrinter``.
"""
from __future__ import annotations

from math import inf
from typing import Any, Callable, Sequence

from ...exercise import exercise
from ..scheduler.affine import Index, Opaque, Quot, merge_runs

Shape = tuple[Any, ...]


def merge_dims(sizes: Shape, strides: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Collapse dimensions every operand walks contiguously: ``(4, 4), [(4, 1)]`` -> ``(16,), [(1,)]``. Broadcasts (stride 0) stay broadcasts."""
    runs = merge_runs(sizes, strides)
    merged = []
    for run in runs:
        n = 1
        for d in run:
            n = n * sizes[d]
        merged.append(n)
    return tuple(merged), [tuple(s[run[-1]] for run in runs) for s in strides]


@exercise("6.6")
def text(index: Index, name: Callable[[str], str] = str, divide: str = "/") -> str:
    """C for an index; ``name`` maps variables to C identifiers. ``divide``: what the language calls division of integers."""
    # >>> 6.6
    parts = []
    for term, c in sorted(index.terms.items(), key=lambda tc: (-_magnitude(tc[1]), str(tc[0]))):
        t = _term(term, name, divide)
        parts.append(t if c == 1 else f"{c}*{t}" if isinstance(c, int) else f"{size_text(c, tight=True)}*{t}")
    if index.const != 0 or not parts:
        parts.append(size_text(index.const))
    return " + ".join(parts).replace("+ -", "- ")
    # <<< 6.6


def _magnitude(c: Any) -> float:
    """Larger strides stand first; those that are arguments before all that are known."""
    return abs(c) if isinstance(c, int) else inf


def size_text(n: Any, tight: bool = False) -> str:
    """C for a size or an offset made of sizes: sums of products of symbols. ``tight``: as a factor."""
    if isinstance(n, int) or n.is_Integer or n.is_Symbol:
        return str(n)
    if n.is_Add:
        text = " + ".join(map(size_text, sorted(n.args, key=lambda t: (t.is_number, str(t))))).replace("+ -", "- ")
        return f"({text})" if tight else text
    c, rest = n.as_coeff_Mul()
    factors = [s for base, power in sorted(rest.as_powers_dict().items(), key=str) for s in [size_text(base, tight=True)] * int(power)]
    return "*".join(factors if c == 1 else ["-" + factors[0], *factors[1:]] if c == -1 else [str(c), *factors])


def at_least(n: Any, limit: int) -> bool:
    """Whether a size is, or may be, so large."""
    return n >= limit if isinstance(n, int) else True


def capped(n: Any, limit: int) -> int:
    """``limit``, or ``n`` where that is known to be smaller."""
    return min(n, limit) if isinstance(n, int) else limit


def _term(term: Any, name: Callable[[str], str], divide: str) -> str:
    if isinstance(term, str):
        return name(term)
    if isinstance(term, Opaque):
        raise NotImplementedError(f"index expression {term.expr}")
    by = size_text(term.k) if isinstance(term.k, int) or term.k.is_Symbol else f"({size_text(term.k)})"
    return f"(({text(term.arg, name, divide)}) {divide if isinstance(term, Quot) else '%'} {by})"


def bare(expr: str) -> str:
    """Without the outer pair of parentheses."""
    if not (expr.startswith("(") and expr.endswith(")")):
        return expr
    level = 0
    for k, ch in enumerate(expr):
        level += (ch == "(") - (ch == ")")
        if level == 0 and k < len(expr) - 1:
            return expr
    return expr[1:-1]
