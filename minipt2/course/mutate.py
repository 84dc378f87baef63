"""Mutants of a reference, made by rule: operators, bounds and orders. One that no test notices asks for a test (or is no fault at all).

Upstream has no counterpart; the rules are the classic ones of mutation testing (DeMillo et al., 1978).
"""
from __future__ import annotations

import ast
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Iterator

from . import process, regions
from .tasks import Task
from .verdict import Outcome

_SWAPS: dict[type, tuple[str, str]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "//"), ast.FloorDiv: ("//", "*"), ast.Div: ("/", "*"), ast.Mod: ("%", "//"),
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"), ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"),
}
_NAMES = {"min": "max", "max": "min", "all": "any", "any": "all"}


@dataclass(frozen=True)
class Proposal:
    """One change of a reference: from ``start`` to ``end`` (offsets in the package's file) stands ``new``. ``kind``: operator, bound or order."""

    kind: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        return text[:self.start] + self.new + text[self.end:]

    def describe(self) -> str:
        short = lambda t: " ".join(t.split())[:70]  # noqa: E731
        return f"line {self.line}, {self.kind}: {short(self.old)}  ->  {short(self.new)}"


class _Source:
    """Offsets in a text of nodes' places, which ``ast`` counts in bytes of a line."""

    def __init__(self, text: str):
        self.text, self.lines = text, text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]


def proposals(task: Task) -> list[Proposal]:
    """Every mutant of the exercise's reference, in the order of its lines. All of them are programs."""
    source, found = _Source(task.source), regions.of(task.source, task.id)
    inside = [n for n in ast.walk(ast.parse(task.source)) if hasattr(n, "lineno")
              and any(r.start < n.lineno and n.end_lineno <= r.end for r in found)]
    made = {p for node in inside for p in (*_operators(source, node), *_bounds(source, node), *_orders(source, node))}
    return sorted((p for p in made if p.old != p.new and _compiles(p.applied(task.source))), key=lambda p: (p.start, p.end, p.new))


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def _between(source: _Source, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Proposal]:
    """The operator that stands between two operands."""
    start, end = source.span(left)[1], source.span(right)[0]
    at = source.text.find(old, start, end)
    if at >= 0 and source.text[start:end].count(old) == 1:
        yield Proposal("operator", left.end_lineno, at, at + len(old), old, new)  # type: ignore[attr-defined]


def _operators(source: _Source, node: ast.AST) -> Iterator[Proposal]:
    if isinstance(node, ast.BinOp) and type(node.op) in _SWAPS:
        yield from _between(source, node.left, node.right, *_SWAPS[type(node.op)])
    elif isinstance(node, ast.Compare):
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
            yield from _between(source, left, right, *_SWAPS[type(op)])
    elif isinstance(node, ast.BoolOp):
        for left, right in zip(node.values, node.values[1:]):
            yield from _between(source, left, right, *_SWAPS[type(node.op)])
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        start, end = source.span(node)
        yield Proposal("operator", node.lineno, start, end, source.text[start:end], source.text[slice(*source.span(node.operand))])
    elif isinstance(node, ast.Name) and node.id in _NAMES:
        start, end = source.span(node)
        yield Proposal("operator", node.lineno, start, end, node.id, _NAMES[node.id])


def _bounds(source: _Source, node: ast.AST) -> Iterator[Proposal]:
    """A number one larger or smaller, a truth turned about."""
    if isinstance(node, ast.Constant) and type(node.value) in (bool, int):
        start, end = source.span(node)
        news = [str(not node.value)] if isinstance(node.value, bool) else [str(node.value + 1), f"({node.value - 1})" if node.value < 1 else str(node.value - 1)]
        for new in news:
            yield Proposal("bound", node.lineno, start, end, source.text[start:end], new)


def _orders(source: _Source, node: ast.AST) -> Iterator[Proposal]:
    """Two neighbours exchanged: arguments of a call, items of a display, statements; a statement left out; a loop the other way."""
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield from _exchanged(source, node.args)
    elif isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
        yield from _exchanged(source, node.elts)
    elif isinstance(node, ast.For):
        start, end = source.span(node.iter)
        yield Proposal("order", node.lineno, start, end, source.text[start:end], f"reversed(list({source.text[start:end]}))")
    elif isinstance(node, (ast.Expr, ast.AugAssign, ast.Continue, ast.Break)) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        start, end = source.span(node)
        yield Proposal("order", node.lineno, start, end, source.text[start:end], "pass")


def _exchanged(source: _Source, nodes: list[ast.expr]) -> Iterator[Proposal]:
    for a, b in zip(nodes, nodes[1:]):
        if isinstance(a, ast.Starred) or isinstance(b, ast.Starred):
            continue
        (start, middle), (other, end) = source.span(a), source.span(b)
        text = source.text
        yield Proposal("order", a.lineno, start, end, text[start:end], text[other:end] + text[middle:other] + text[start:middle])


def chosen(found: list[Proposal], most: int, seed: int) -> list[Proposal]:
    """At most ``most`` of them, spread over the reference; the same for the same seed."""
    picked = found if len(found) <= most else random.Random(seed).sample(found, most)
    return sorted(picked, key=lambda p: p.start)


def run(task: Task, todo: Iterable[Proposal]) -> Iterator[tuple[Proposal, Outcome]]:
    """Check each mutant; ``outcome.passed`` means that no test noticed it."""
    with tempfile.TemporaryDirectory(prefix="minipt2-mutate-") as name:
        path = Path(name) / "answer.py"
        for proposal in todo:
            path.write_text(regions.answer(proposal.applied(task.source), task.id))
            yield proposal, process.check(task, path, examine=False, pytest_arguments=("-x",))
