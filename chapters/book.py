"""Chapters as programs: what their text claims is executed.

    python -m chapters.book check [CHAPTER ...]    run the chapters and compare outputs and numbers with the text
    python -m chapters.book write [CHAPTER ...]    the same, and write what comes out into the text
    python -m chapters.book notebooks DIR          export every chapter as a notebook

A chapter is ``chapters/NN_name/README.md``. In it

    ```python run            is executed, in one namespace for the whole chapter; what it prints stands in the
    ```text output           block after it;
    17<!--= count -->        is a number (or word) that must be what the expression gives;
    ```predict               asks ("question:", "answer:" an expression, "is:" its value, "because:");
    <!-- code: FILE::NAME -->    shows a function or class of the package, by name: nothing is pasted;
    <!-- figure: NAME -->, <!-- table: NAME -->    draws one of ``chapters.figures``;
    <!-- exercises -->, <!-- demo -->    list this chapter's exercises and its demo.
"""
from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
import textwrap
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.M | re.S)
VALUE = re.compile(r"(?P<said>[^\s*(|<>`]+)(?P<close>[*`]*)<!--= (?P<expr>.+?) -->")
DIRECTIVE = re.compile(r"^<!-- (?P<kind>code|figure|table|exercises|demo)(?:: (?P<what>\S+))? -->$", re.M)


@dataclass
class Claim:
    """Something the text says at ``line``, and what came out."""

    line: int
    said: str
    found: str
    start: int
    end: int
    """Where it stands in the text."""


@dataclass
class Chapter:
    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "README.md"

    @property
    def number(self) -> int:
        return int(self.folder.name.partition("_")[0])

    @cached_property
    def text(self) -> str:
        return self.file.read_text()

    @property
    def title(self) -> str:
        return self.text.partition("\n")[0].removeprefix("# ")

    def run(self) -> list[Claim]:
        """Execute the chapter from top to bottom; every claim with what came out. An exception is the chapter's own fault and is raised."""
        namespace: dict[str, Any] = {"__name__": f"chapter_{self.number}"}
        claims: list[Claim] = []
        printed: str | None = None
        for found in sorted([*FENCE.finditer(self.text), *VALUE.finditer(self.text)], key=lambda m: m.start()):
            line = self.text.count("\n", 0, found.start()) + 1
            groups = found.groupdict()
            if "expr" in groups:
                if not self._inside_fence(found.start()):
                    value = str(eval(groups["expr"], namespace))
                    claims.append(Claim(line, groups["said"], value, found.start("said"), found.end("said")))
            elif groups["info"] == "python run":
                printed = self._execute(groups["body"], line, namespace)
            elif groups["info"] == "text output":
                assert printed is not None, f"{self.file}:{line}: an output without a program before it"
                claims.append(Claim(line, groups["body"], printed, found.start("body"), found.end("body")))
                printed = None
            elif groups["info"] == "predict":
                fields = prediction(groups["body"])
                at = found.start("body") + groups["body"].index(f"is: {fields['is']}") + 4
                claims.append(Claim(line, fields["is"], str(eval(fields["answer"], namespace)), at, at + len(fields["is"])))
        return claims

    def _inside_fence(self, position: int) -> bool:
        return any(f.start() < position < f.end() for f in FENCE.finditer(self.text))

    def _execute(self, body: str, line: int, namespace: dict[str, Any]) -> str:
        """What the block prints. Its lines have the numbers they have in the chapter, so that reports name them."""
        file = self.file.relative_to(ROOT).as_posix()
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile("\n" * line + body, file, "exec"), namespace)
        return out.getvalue()

    def write(self) -> int:
        """Put what came out into the text; returns how many claims have changed."""
        text, changed = self.text, 0
        for claim in reversed(self.run()):
            changed += claim.said != claim.found
            text = text[: claim.start] + claim.found + text[claim.end :]
        self.file.write_text(text)
        self.__dict__.pop("text", None)
        return changed


def chapters() -> list[Chapter]:
    """In order."""
    return [Chapter(f.parent) for f in sorted(Path(__file__).parent.glob("[0-9][0-9]_*/README.md"))]


def prediction(body: str) -> dict[str, str]:
    """The fields of a ``predict`` block; a field may go on over several lines."""
    fields: dict[str, str] = {}
    key = ""
    for line in body.splitlines():
        found = re.match(r"(question|answer|is|because): (.*)", line)
        if found:
            key, fields[found[1]] = found[1], found[2]
        else:
            fields[key] += " " + line.strip()
    return fields


# ------------------------------------------------------------------ code by name
def code_of(place: str) -> tuple[str, int]:
    """The source of ``FILE::NAME`` (a dotted name of functions and classes, or of a module's assignment) and its first line."""
    lines, first = _lines_of(place)
    return _shown(lines), first


def outline_of(place: str) -> tuple[str, list[str]]:
    """The same without the bodies of exercises in it, and those exercises: whoever wants to write them can read on."""
    outline, numbers, inside = [], [], False
    for line in _lines_of(place)[0]:
        mark = re.match(r"(\s*)# (>>>|<<<) (\d+\.\d+)", line)
        if mark:
            inside = mark[2] == ">>>"
            if inside:
                outline.append(f"{mark[1]}...  # exercise {mark[3]}")
                numbers.append(mark[3])
        elif not inside:
            outline.append(line)
    return _shown(outline), list(dict.fromkeys(numbers))


def _shown(lines: list[str]) -> str:
    return textwrap.dedent("\n".join(line for line in lines if not re.match(r"\s*(# (>>>|<<<) |@exercise\()", line)))  # marks of the exercises


def _lines_of(place: str) -> tuple[list[str], int]:
    file, _, name = place.partition("::")
    text = (ROOT / file).read_text()
    node: ast.AST = ast.parse(text)
    for part in name.split("."):
        node = next((n for n in ast.iter_child_nodes(node) if part in _names(n)), None) or _missing(place)
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
    lines, end = text.splitlines(), node.end_lineno
    while end < len(lines) and re.match(r"\s+# <<< ", lines[end]):  # the mark behind a function's last statement
        end += 1
    return lines[first - 1 : end], first


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {node.target.id} if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else set()


def _missing(place: str) -> Any:
    raise LookupError(f"the course shows {place}, which is not there any more")


# ------------------------------------------------------------------ exercises
def solved(numbers: list[str]) -> str:
    """The heading of a fold with what students are to write."""
    return f"The package's own (exercise {' and '.join(numbers)} asks for it)"


def exercises(chapter: int) -> list[dict[str, Any]]:
    """What ``exercises/*/task.toml`` says about a chapter's exercises, in order."""
    tasks = [tomllib.loads(f.read_text()) for f in sorted((ROOT / "exercises").glob("*/task.toml"))]
    mine = [t for t in tasks if str(t["id"]).split(".")[0] == str(chapter)]
    return sorted(mine, key=lambda t: [int(k) for k in str(t["id"]).split(".")])


# ------------------------------------------------------------------ notebooks
def notebook(chapter: Chapter) -> dict[str, Any]:
    """The chapter as a notebook (nbformat 4): programs are cells, outputs are left for the reader's own run to make."""
    cells: list[dict[str, Any]] = []
    at = 0
    for found in FENCE.finditer(chapter.text):
        if found["info"] not in ("python run", "text output", "predict"):
            continue
        _prose(cells, chapter.text[at : found.start()])
        at = found.end()
        if found["info"] == "python run":
            cells.append(_cell("code", found["body"], len(cells), execution_count=None, outputs=[]))
        elif found["info"] == "predict":
            _prose(cells, f"**Predict.** {prediction(found['body'])['question']}")
    _prose(cells, chapter.text[at:])
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": kernel, "cells": cells}


def _prose(cells: list[dict[str, Any]], text: str) -> None:
    def shown(found: re.Match) -> str:
        if found["kind"] != "code":
            return ""
        outline, numbers = outline_of(found["what"])
        whole = f"```python\n{code_of(found['what'])[0]}\n```"
        if numbers:
            whole = f"```python\n{outline}\n```\n<details><summary>{solved(numbers)}</summary>\n\n{whole}\n\n</details>"
        return f"`{found['what']}`:\n{whole}"
    text = VALUE.sub(r"\g<said>\g<close>", DIRECTIVE.sub(shown, text)).strip()
    if text:
        cells.append(_cell("markdown", text, len(cells)))


def _cell(kind: str, source: str, k: int, **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "id": f"cell-{k}", "metadata": {}, "source": source.rstrip("\n").splitlines(True), **more}


def write_notebooks(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for chapter in chapters():
        files.append(folder / f"{chapter.folder.name}.ipynb")
        files[-1].write_text(json.dumps(notebook(chapter), indent=1))
    return files


# ------------------------------------------------------------------ command line
def main(argv: list[str]) -> int:
    command, *names = argv or ["check"]
    if command == "notebooks":
        write_notebooks(Path(names[0]))
        return 0
    wrong = 0
    for chapter in chapters():
        if names and not any(chapter.folder.name.startswith(n) for n in names):
            continue
        if command == "write":
            while chapter.write():  # what is written moves the lines below it, which reports name
                pass
            continue
        for claim in chapter.run():
            if claim.said != claim.found:
                wrong += 1
                sys.stderr.write(f"{chapter.file}:{claim.line}: says {claim.said!r}, found {claim.found!r}\n")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
