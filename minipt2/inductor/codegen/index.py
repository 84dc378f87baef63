"""Index arithmetic of generated code: loops that are one, and indices as text.

Upstream: ``torch._inductor.sizevars.simplify_loops`` and ``codegen.common.ExprPrinter``.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

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


def text(index: Index, name: Callable[[str], str] = str) -> str:
    """C for an index; ``name`` maps variables to C identifiers."""
    parts = []
    for term, c in sorted(index.terms.items(), key=lambda tc: (-_magnitude(tc[1]), str(tc[0]))):
        t = _term(term, name)
        parts.append(t if c == 1 else f"{c}*{t}")
    if index.const != 0 or not parts:
        parts.append(str(index.const))
    return " + ".join(parts).replace("+ -", "- ")


def _magnitude(c: Any) -> int:
    return abs(c) if isinstance(c, int) else 1 << 62


def _term(term: Any, name: Callable[[str], str]) -> str:
    if isinstance(term, str):
        return name(term)
    if isinstance(term, Opaque):
        raise NotImplementedError(f"index expression {term.expr}")
    return f"(({text(term.arg, name)}) {'/' if isinstance(term, Quot) else '%'} {term.k})"
