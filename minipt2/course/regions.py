"""Marked regions of a source file: the stub that students get, the reference, and mutants of it. All by deleting or replacing whole lines.

Works on text alone, so that neither torch nor the package need be imported.
"""
from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Iterator

_MARK = re.compile(r"\s*# (>>>|<<<) (\d+\.\d+)\s*$")
_KEPT_DECORATORS = {"exercise", "staticmethod", "classmethod", "property"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class BadMarks(ValueError):
    """Marks that do not pair up, or stand in the wrong place."""


@dataclass(frozen=True)
class Region:
    """Lines ``start`` to ``end`` (0-based, without the marks themselves) of one exercise's body."""

    number: str
    start: int
    end: int


def regions(text: str) -> list[Region]:
    """All marked regions of ``text``, in order. Raises BadMarks."""
    found, opened = [], None
    for k, line in enumerate(text.splitlines()):
        mark = _MARK.match(line)
        if not mark:
            continue
        sign, number = mark.groups()
        if sign == ">>>":
            if opened:
                raise BadMarks(f"line {k + 1}: {number} begins inside {opened[0]}")
            opened = number, k + 1
        else:
            if not opened or opened[0] != number:
                raise BadMarks(f"line {k + 1}: {number} ends where it has not begun")
            found.append(Region(number, opened[1], k))
            opened = None
    if opened:
        raise BadMarks(f"line {opened[1]}: {opened[0]} is not ended")
    return found


def of(text: str, number: str) -> list[Region]:
    """The regions of exercise ``number``. Raises BadMarks where there is none."""
    found = [region for region in regions(text) if region.number == number]
    if not found:
        raise BadMarks(f"no region {number}")
    return found


def body(text: str, number: str) -> str:
    """The reference's lines of exercise ``number``."""
    lines = text.splitlines()
    return "\n".join("\n".join(lines[r.start:r.end]) for r in of(text, number)) + "\n"


def _functions(tree: ast.Module, found: list[Region]) -> Iterator[tuple[tuple[ast.ClassDef, ...], Function]]:
    """The functions whose bodies the regions are, each with the classes around it."""
    def walk(nodes: list[ast.stmt], around: tuple[ast.ClassDef, ...]) -> Iterator[tuple[tuple[ast.ClassDef, ...], Function]]:
        for node in nodes:
            if isinstance(node, ast.ClassDef):
                yield from walk(node.body, (*around, node))
            elif isinstance(node, Function) and any(node.lineno <= r.start and r.end <= (node.end_lineno or 0) + 1 for r in found):
                yield around, node
    yield from walk(tree.body, ())


def _signature_lines(node: Function) -> range:
    """From ``def`` to the last line of the docstring (or of the signature, where there is no docstring)."""
    first = node.body[0]
    has_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    if not has_docstring:
        raise BadMarks(f"line {node.lineno}: {node.name} needs a docstring: it is all the body that the stub has")
    return range(node.lineno - 1, first.end_lineno or first.lineno)


def _class_head(node: ast.ClassDef) -> range:
    first = node.body[0]
    if ast.get_docstring(node) is not None:
        return range(node.lineno - 1, first.end_lineno or first.lineno)
    return range(node.lineno - 1, max([node.lineno, *(base.end_lineno or 0 for base in node.bases)]))


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) or isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _own_lines(tree: ast.Module, number: str, found: list[Region]) -> list[range]:
    """Line ranges (0-based) that both the stub and the reference answer keep."""
    kept = [range(n.lineno - 1, n.end_lineno or n.lineno) for n in tree.body if _is_import(n)]
    for around, function in _functions(tree, found):
        for node in around:
            kept.append(_class_head(node))
        for decorator in function.decorator_list:
            if ast.unparse(decorator).split("(")[0] in _KEPT_DECORATORS:
                kept.append(range(decorator.lineno - 1, decorator.end_lineno or decorator.lineno))
        kept.append(_signature_lines(function))
    kept += [range(r.start - 1, r.start) for r in found] + [range(r.end, r.end + 1) for r in found]
    return kept


def _select(text: str, number: str, with_body: bool) -> str:
    found = of(text, number)
    tree = ast.parse(text)
    kept = _own_lines(tree, number, found) + ([range(r.start, r.end) for r in found] if with_body else [])
    wanted = {k for span in kept for k in span}
    lines = text.splitlines()
    tops = [_top(node, lines) for _, node in _functions(tree, found)]
    for k in [span.start for span in kept] + tops:  # the blank lines above a part come along
        k -= 1
        while k >= 0 and not lines[k].strip():
            wanted.add(k)
            k -= 1
    return "\n".join(line for k, line in enumerate(lines) if k in wanted).strip("\n") + "\n"


def _top(node: Function, lines: list[str]) -> int:
    """The line (0-based) with which a function begins: its first decorator, or the comment above."""
    k = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
    while k and lines[k - 1].lstrip().startswith("#"):
        k -= 1
    return k


def hollow(text: str) -> str:
    """``text`` without the bodies of all exercises in it: what a student may read around an answer."""
    bodies = {k for region in regions(text) for k in range(region.start, region.end)}
    return "".join(line for k, line in enumerate(text.splitlines(keepends=True)) if k not in bodies)


def stub(text: str, number: str) -> str:
    """What a student starts from: imports, the functions' heads with their docstrings, and the marks. A subsequence of ``text``'s lines."""
    return _select(text, number, with_body=False)


def answer(text: str, number: str) -> str:
    """The stub with the reference's body in it."""
    return _select(text, number, with_body=True)


def replaced(text: str, number: str, find: str, replace: str) -> str:
    """``text`` with ``find``, which must be there once within the exercise's regions, replaced. Raises BadMarks."""
    hits = []
    lines = text.splitlines(keepends=True)
    for r in of(text, number):
        part = "".join(lines[r.start:r.end])
        hits += [(r, part)] * part.count(find)
    if len(hits) != 1:
        raise BadMarks(f"{number}: {find!r} is there {len(hits)} times, not once")
    region, part = hits[0]
    return "".join(lines[:region.start]) + part.replace(find, replace) + "".join(lines[region.end:])


def is_subsequence(part: str, whole: str) -> bool:
    """Whether ``part`` came from ``whole`` by deleting lines."""
    rest = iter(whole.splitlines())
    return all(line in rest for line in part.splitlines())


def missing_marks(text: str, number: str) -> bool:
    """Whether a student deleted the marks (harmless: only said)."""
    return not any(r.number == number for r in regions(text))
