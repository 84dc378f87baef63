"""Programs compared by what they say, not by how they are written: statements with names numbered in the order they appear.

What the leak scan and the comparison of submissions rest on. Comments, layout, docstrings and annotations do not count, nor do the names of
variables; names of called functions, attributes, constants and the shape of the tree do.
"""
from __future__ import annotations

import ast
import builtins
import io
import tokenize
from typing import Iterable, Iterator

LEAST_TOKENS = 12
"""Shorter statements say too little: everyone writes ``i += 1``."""
_BUILTINS = frozenset(dir(builtins))
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


class _Numbered(ast.NodeTransformer):
    """Names become v0, v1 ... in the order they are met."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def new(self, name: str) -> str:
        return name if name in _BUILTINS else self.names.setdefault(name, f"v{len(self.names)}")

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.new(node.id), node.ctx)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(self.new(node.arg), None)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """What is called keeps its name: without it, calls of all functions would be alike."""
        func = node.func if isinstance(node.func, ast.Name) else self.visit(node.func)
        return ast.Call(func, [self.visit(a) for a in node.args], [self.visit(k) for k in node.keywords])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if node.value is None:
            return ast.Pass()
        return self.visit(ast.Assign([node.target], node.value))


def tokens(text: str) -> int:
    """Number of tokens that are not layout."""
    skipped = (tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)
    return sum(t.type not in skipped for t in tokenize.generate_tokens(io.StringIO(text).readline))


def _heads(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Every statement, compound ones without what they contain."""
    for node in nodes:
        for part in _BODIES:
            yield from _heads(getattr(node, part, ()))
        if isinstance(node, ast.stmt) and not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
            yield node


def _alone(node: ast.stmt) -> ast.stmt:
    fields = {name: ([ast.Pass()] if name == "body" else []) if name in _BODIES else value for name, value in ast.iter_fields(node)}
    return type(node)(**fields)


def of_tree(tree: ast.AST, least: int = LEAST_TOKENS) -> set[str]:
    """Fingerprints of the statements of a syntax tree that have ``least`` tokens or more."""
    found = set()
    for node in _heads([tree]):
        text = ast.unparse(ast.fix_missing_locations(_alone(node)))
        if tokens(text.removesuffix(":\n    pass")) >= least:
            again = ast.parse(text)
            found.add(ast.dump(_Numbered().visit(again)))
    return found


def of_text(text: str) -> set[str]:
    """Of a Python file; of anything else, line by line, whatever is a statement."""
    try:
        return of_tree(ast.parse(text))
    except (SyntaxError, ValueError):
        pass
    found: set[str] = set()
    for line in text.splitlines():
        found |= of_line(line)
    return found


def of_line(line: str) -> set[str]:
    """Of one line that may be Python: leading signs of a diff or a quotation are ignored, a head gets a body."""
    line = line.strip().lstrip("+->").strip()
    if len(line) < LEAST_TOKENS:
        return set()
    for text in (line, f"{line} pass", line.rstrip(",")):
        try:
            return of_tree(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError):
            continue
    return set()
