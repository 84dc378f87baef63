"""Solutions where students could find them: in files, notebooks, pages, compiled bytecode and the history of a repository.

``scan(folder)`` compares by ``fingerprints`` with every reference of the package, so renaming variables or reformatting hides nothing.
"""
from __future__ import annotations

import ast
import functools
import html
import importlib.util
import json
import marshal
import subprocess
import types
from pathlib import Path
from typing import Iterator, NamedTuple

from . import fingerprints, regions
from .tasks import Task

_TEXT_LIMIT = 20_000_000
IDIOM = 3


class Leak(NamedTuple):
    """A statement of exercise ``task``'s reference, found at ``place``."""

    place: str
    task: str


def references(tasks: dict[str, Task]) -> dict[str, set[str]]:
    """Fingerprint of a statement to the exercises whose references have it.

    What ``IDIOM`` of them share is no solution of any, nor is what stands around exercises, too, where students read it (``context.py``).
    """
    known: dict[str, set[str]] = {}
    around = {mark for text in {task.source for task in tasks.values()} for mark in _around(text)}
    for task in tasks.values():
        for mark in _of_task(task):
            known.setdefault(mark, set()).add(task.id)
    return {mark: ids for mark, ids in known.items() if len(ids) < IDIOM and mark not in around}


@functools.cache
def _around(source: str) -> frozenset[str]:
    return frozenset(fingerprints.of_text(regions.hollow(source)))


@functools.cache
def _of_task(task: Task) -> frozenset[str]:
    lines, marks = task.source.splitlines(), set()
    for region in regions.of(task.source, task.id):
        wrapped = "def _():\n" + _indented("\n".join(lines[region.start:region.end]))  # so that return may stand in it
        marks |= fingerprints.of_tree(ast.parse(wrapped))
    return frozenset(marks)


def _indented(body: str) -> str:
    first = next(line for line in body.splitlines() if line.strip())
    cut = len(first) - len(first.lstrip())
    return "\n".join("    " + line[cut:] for line in body.splitlines())


def bytecodes(tasks: dict[str, Task]) -> dict[tuple, str]:
    """Compiled form of every reference function to its exercise."""
    return {compiled: task.id for task in tasks.values() for compiled in _compiled_task(task)}


@functools.cache
def _compiled_task(task: Task) -> list[tuple]:
    return [_compiled(code) for code in _codes(compile(task.source, task.file, "exec")) if code.co_qualname in task.target]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _compiled(code: types.CodeType) -> tuple:
    return code.co_code, code.co_names


def scan(folder: Path, tasks: dict[str, Task]) -> list[Leak]:
    """Everything under ``folder``, its git history included."""
    known, compiled = references(tasks), bytecodes(tasks)
    found: set[Leak] = set()
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and ".git" not in p.relative_to(folder).parts):
        place = str(path.relative_to(folder))
        if path.suffix == ".pyc":
            found |= {Leak(place, number) for number in _in_bytecode(path, compiled)}
        elif path.stat().st_size < _TEXT_LIMIT:
            found |= {Leak(place, number) for mark in _marks(path) for number in known.get(mark, ())}
    for line in _history(folder):
        found |= {Leak("git history", number) for mark in fingerprints.of_line(line) for number in known.get(mark, ())}
    return sorted(found)


def _marks(path: Path) -> set[str]:
    try:
        text = path.read_text()
    except UnicodeDecodeError:
        return set()
    if path.suffix == ".ipynb":
        return _in_notebook(text)
    if path.suffix in (".html", ".htm"):
        text = html.unescape(text)
    return fingerprints.of_text(text)


def _in_notebook(text: str) -> set[str]:
    try:
        cells = json.loads(text).get("cells", [])
    except ValueError:
        return fingerprints.of_text(text)
    return {mark for cell in cells for mark in fingerprints.of_text("".join(cell.get("source", [])))}


def _in_bytecode(path: Path, compiled: dict[tuple, str]) -> set[str]:
    data = path.read_bytes()
    if data[:4] != importlib.util.MAGIC_NUMBER:
        return set()  # of another CPython: what it says cannot be compared
    try:
        code = marshal.loads(data[16:])
    except (ValueError, EOFError, TypeError):
        return set()
    return {compiled[_compiled(c)] for c in _codes(code) if _compiled(c) in compiled}


def _history(folder: Path) -> Iterator[str]:
    if not (folder / ".git").exists():
        return
    log = subprocess.run(["git", "-C", str(folder), "log", "--all", "-p", "--no-color", "--format="], capture_output=True, text=True, errors="replace")
    yield from {line for line in log.stdout.splitlines() if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))}
