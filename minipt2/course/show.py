"""How the checker speaks: with rich on a terminal, in plain lines when piped. One function per thing shown."""
from __future__ import annotations

import os
import sys
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .tasks import Task
from .verdict import Outcome, TestResult
from .workspace import Workspace

_COLOURS = {"pass": "green", "not started": "dim", "inconclusive": "yellow", "vacuous": "magenta"}


def console() -> Console:
    """Colours and tables on a terminal; plain and unwrapped otherwise (and under NO_COLOR, plain colours)."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(file=sys.stdout, highlight=False, width=int(os.environ.get("COLUMNS", 200)), soft_wrap=True, no_color=True, force_terminal=False)


def listing(out: Console, place: Workspace) -> None:
    """All exercises with their state."""
    if not out.is_terminal:
        for task in place.tasks.values():
            out.print(escape(f"{task.id}\t{_state(place, task)}\t{task.title}\tminipt2/{task.file}\t{', '.join(task.target)}"))
        return
    table = Table("", "exercise", "state", "in", "lines", "minutes", "after", box=None, header_style="bold")
    chapter = -1
    for task in place.tasks.values():
        if task.chapter != chapter:
            chapter = task.chapter
            table.add_section()
        state = _state(place, task)
        table.add_row(task.id, task.title, f"[{_COLOURS.get(state, 'red')}]{state}", f"{task.file} {', '.join(task.target)}",
                      str(task.reference_lines), str(task.minutes), ", ".join(task.prereqs))
    out.print(table)


def _state(place: Workspace, task: Task) -> str:
    entry = place.state(task)
    return "pass" if entry["passed"] else entry["kind"]


def outcome(out: Console, task: Task, result: Outcome) -> None:
    """A verdict: which file it is about, and for each failing test the call, the expected and the found."""
    colour = _COLOURS.get(result.kind, "red")
    out.print(f"[bold]{task.id} {escape(task.title)}[/]  [{colour}]{result.kind}[/]  {len(result.tests)} tests, {result.seconds:.1f} s")
    out.print(f"  checked {escape(result.file)}")
    if result.kind == "not started":
        out.print(f"  next: {escape(result.message)}\n  stuck: minipt2 learn hint {task.id}")
        return
    if result.message and not any(test.message == result.message for test in result.tests):
        out.print(_indented(result.message))
    for test in result.tests:
        _test(out, test)
    if result.kind == "crash" or result.kind == "vacuous":
        out.print(_indented(result.output.strip()[-1500:]), soft_wrap=True)


def _test(out: Console, test: TestResult) -> None:
    colour = _COLOURS.get(test.kind, "red")
    mark = "ok" if test.passed else "--"
    kind = "" if test.passed else f"  [{colour}]{test.kind}[/]"
    _hanging(out, f"  [{colour}]{mark}[/]", f"{escape(test.name)}{kind}{escape('  ' + test.says) if test.says else ''}")
    if test.passed:
        return
    rows = [("your line", test.place), ("last call", test.call), ("expected", test.expected), ("found", test.found), ("", test.message)]
    for label, text in rows:
        if text:
            _hanging(out, "      ", f"{label + ': ' if label else ''}{escape(text.strip())}")


def _hanging(out: Console, mark: str, text: str) -> None:
    """``text`` beside ``mark``; on a terminal what does not fit goes on below the text, not below the mark."""
    if out.is_terminal:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(mark, text)
        out.print(grid)
    else:
        out.print(f"{mark} " + text.replace("\n", "\n       "))


def _indented(text: str) -> str:
    return escape("  " + text.strip().replace("\n", "\n  "))


def status(out: Console, place: Workspace) -> None:
    """Progress by chapter, and which exercises stand on the package's own pieces."""
    chapters: dict[int, list[Task]] = {}
    for task in place.tasks.values():
        chapters.setdefault(task.chapter, []).append(task)
    done = {task.id for task in place.tasks.values() if place.state(task)["passed"]}
    for chapter, members in chapters.items():
        passed = [t.id for t in members if t.id in done]
        out.print(f"chapter {chapter}  {'#' * len(passed)}{'.' * (len(members) - len(passed))}  {len(passed)} of {len(members)}"
                  f"{'  ' + ', '.join(passed) if passed else ''}")
    out.print(f"{len(done)} of {len(place.tasks)} exercises pass")
    following = place.next_task()
    if following:
        missing = [p for p in following.prereqs if p not in done]
        out.print(f"next: minipt2 learn check {following.id}  ({escape(following.title)}, {place.answer(following)})")
        if missing:
            out.print(f"  it stands on {', '.join(missing)}, for which the package's own functions are used")


def rows(out: Console, header: str, lines: list[tuple[str, bool, str]]) -> None:
    """Findings of the doctor: name, whether it is well, what it means."""
    out.print(f"[bold]{header}[/]")
    for name, well, text in lines:
        out.print(f"  [{'green' if well else 'yellow'}]{'ok' if well else '--'}[/] {escape(name)}: {escape(text)}")


def as_data(result: Outcome) -> dict[str, Any]:
    """An outcome for --json."""
    return {**vars(result), "tests": [vars(test) for test in result.tests]}
