"""Pages of the site that are written from tables in the package: ``python -m minipt2.report.pages`` in the project's folder writes them.

``PAGES`` maps a path under ``site/`` to the function that makes its text; tests compare the files with it.
"""
from __future__ import annotations

import sys
from pathlib import Path
from typing import Callable

from ..catalogue import REASONS
from ..dynamo.bytecode.opcodes import ACCOUNT
from ..dynamo.opcodes import HANDLERS
from ..dynamo.opcodes.refused import REFUSED

_GROUPS = {
    "MP1": "A tensor's data decide", "MP2": "A Python value", "MP3": "A call", "MP4": "A kind of code",
    "MP5": "Captured, but not compiled ahead of time", "MP9": "Limits of the rewriting itself",
}


def break_index() -> str:
    """The catalogue of reasons as tables that link to a page each."""
    lines = ["# Why a graph broke", "",
             "`minipt2.explain(fn)(*args)` and the errors of `fullgraph=True` name a reason by its number. Each has a page with a program that",
             "meets it and one that does not."]
    for prefix, title in _GROUPS.items():
        lines += ["", f"## {title}", "", "| | reason | what to do |", "| --- | --- | --- |"]
        lines += [f"| [{code}]({code}.md) | {r.title} | {r.advice} |" for code, r in REASONS.items() if code.startswith(prefix)]
    return "\n".join(lines) + "\n"


def opcode_page() -> str:
    """Every opcode of every supported CPython, what it is read as, and who follows it."""
    lines = ["# Opcodes", "",
             "What `minipt2.dynamo` does with each bytecode instruction of CPython. `decode` first turns the raw instructions of a version into",
             "canonical ones (third column); those have a handler, or break the graph. Forms that the interpreter specialises or instruments at",
             "run time are never seen: a code object shows the plain ones.", "",
             "| opcode | CPython | read as | followed by |", "| --- | --- | --- | --- |"]
    for raw in sorted({raw for table in ACCOUNT.values() for raw in table}):
        versions = [version for version, table in ACCOUNT.items() if raw in table]
        parts = list(dict.fromkeys(part for version in versions for part in ACCOUNT[version][raw]))
        followed = "; ".join(dict.fromkeys(map(_followed, parts))) or "the interpreter's own: in no function's code"
        read_as = "" if parts == [raw] else ", ".join(f"`{part}`" for part in parts)
        lines.append(f"| `{raw}` | {', '.join(f'{a}.{b}' for a, b in versions)} | {read_as} | {followed} |")
    return "\n".join(lines) + "\n"


def _followed(op: str) -> str:
    if op in REFUSED:
        code, what = REFUSED[op]
        return f"graph break [{code}](../breaks/{code}.md): {what}"
    handler = HANDLERS[op]
    return f"`{handler.__module__.rpartition('.')[2]}.{handler.__name__}`"


PAGES: dict[str, Callable[[], str]] = {"breaks/index.md": break_index, "reference/opcodes.md": opcode_page}


def write(site: Path) -> None:
    """Write every page under ``site``."""
    for name, make in PAGES.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(make())


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "site"))
