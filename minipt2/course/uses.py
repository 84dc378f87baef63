"""What a student may call that stands in other files: the names which the exercise's file imports from the package, with their heads.

Works on text alone, as ``regions`` does, so that neither torch nor the package need be imported.
"""
from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import Iterator

from .tasks import PACKAGE, Task

HOPS = 3
"""Modules that a name may be handed on through."""
MEMBERS = 12
"""Methods and fields of a class that are named."""
Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | None


def imported(task: Task) -> list[str]:
    """One line of Markdown for each name: how it is called, what it does, where it stands."""
    home = (PACKAGE / task.file).resolve()
    return [_line(name, asked, place, node) for name, asked, place, node in _names(home) if asked != "exercise"]


def _names(home: Path) -> Iterator[tuple[str, str, Path, Definition]]:
    """(name here, name there, file, definition) of what ``home`` imports from the package; of a module itself the definition is None."""
    for node in _tree(home).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            for alias in node.names:
                found = _find(_module(home, node), alias.name, HOPS)
                if found is not None:
                    yield alias.asname or alias.name, alias.name, *found


@lru_cache(maxsize=256)
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _module(home: Path, node: ast.ImportFrom) -> Path:
    """The file or package that a relative import names."""
    base = home.parent
    for _ in range(node.level - 1):
        base = base.parent
    return base.joinpath(*(node.module or "").split(".")) if node.module else base


def _find(place: Path, name: str, hops: int) -> tuple[Path, Definition] | None:
    """Where ``name`` of the module ``place`` is defined."""
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if file.exists():
        for node in _tree(file).body:
            if name in _defined(node):
                return file, node  # type: ignore[return-value]
            if isinstance(node, ast.ImportFrom) and node.level and hops and any((a.asname or a.name) == name for a in node.names):
                there = next(a.name for a in node.names if (a.asname or a.name) == name)
                return _find(_module(file, node), there, hops - 1)
    inner = place / name
    found = next((f for f in (inner.with_suffix(".py"), inner / "__init__.py") if f.exists()), None)
    return (found, None) if found else None


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _line(name: str, asked: str, place: Path, node: Definition) -> str:
    here = f"`minipt2/{place.relative_to(PACKAGE).as_posix()}`"
    if node is None:
        return f"- `{name}`: the module {here}. {_sentence(_tree(place))}".rstrip()
    said = _sentence(node) if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else _under(place, node)
    head = name
    if isinstance(node, ast.FunctionDef):
        head = f"{name}({ast.unparse(node.args)}){' -> ' + ast.unparse(node.returns) if node.returns else ''}"
    elif isinstance(node, ast.ClassDef) and (members := _members(node)):
        said = f"{said} It has {', '.join(f'`{m}`' for m in members)}.".strip()
    known = f" ({asked} there)" if asked != name else ""
    return f"- `{head}`, in {here}{known}" + (f": {said}" if said else ".")


def _members(node: ast.ClassDef) -> list[str]:
    names = [n.name if isinstance(n, ast.FunctionDef) else n.target.id for n in node.body
             if isinstance(n, ast.FunctionDef) or isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    public = list(dict.fromkeys(n for n in names if not n.startswith("_")))
    return public[:MEMBERS] + ["…"] * (len(public) > MEMBERS)


def _sentence(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    """The first sentence of a docstring, its marks as Markdown's."""
    return _first(ast.get_docstring(node) or "")


def _under(place: Path, node: ast.stmt) -> str:
    """What the string under an assignment says."""
    body = _tree(place).body
    after = body[body.index(node) + 1:][:1]
    said = after[0].value.value if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant) else ""
    return _first(said) if isinstance(said, str) else ""


def _first(text: str) -> str:
    text = " ".join(text.split("\n\n")[0].split()).replace("``", "`")
    return text.partition(". ")[0].rstrip(".") + "." if text else ""
