"""Grade a student's folder: one model of scores, written as Gradescope's results.json, JUnit XML, Markdown, and GitHub Classroom 50's result.json.

An exercise's points are shared among its tests; an instructor's private variants (``DIR/test_2_3.py``: other shapes, dtypes, seeds) count
as tests whose results students see after publication only.
"""
from __future__ import annotations

import argparse
import datetime
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Iterable, Mapping
from xml.etree import ElementTree

from rich.console import Console
from rich.markup import escape

from . import process, show
from .tasks import Task, pick
from .verdict import Outcome, TestResult
from .workspace import Workspace


@dataclass(frozen=True)
class Score:
    """One line of a grade: a test of an exercise, or the exercise as a whole where none of its tests ran."""

    task: Task
    test: TestResult
    score: float
    most: float


def scores(task: Task, outcome: Outcome) -> list[Score]:
    """The points of an exercise shared equally among its tests. No test ran, or the run broke off: no points."""
    tests = outcome.tests or [TestResult(task.title, outcome.kind, message=outcome.message)]
    broken = any(t.kind in ("crash", "timeout", "out of memory", "vacuous") for t in tests)
    each = task.points / len(tests)
    return [Score(task, test, each if test.passed and not broken else 0.0, each) for test in tests]


def total(graded: Iterable[Score]) -> tuple[float, float]:
    rows = list(graded)
    return sum(r.score for r in rows), sum(r.most for r in rows)


def gradescope(graded: list[Score], seconds: float) -> str:
    """``results.json`` as Gradescope reads it: https://gradescope-autograders.readthedocs.io/en/latest/specs/."""
    tests = [{
        "name": f"{r.task.id} {r.task.title}: {r.test.name}", "score": round(r.score, 4), "max_score": round(r.most, 4),
        "status": "passed" if r.test.passed else "failed", "output": _text(r.test),
        "visibility": "after_published" if r.test.hidden else "visible",
    } for r in graded]
    return json.dumps({"score": round(total(graded)[0], 4), "execution_time": round(seconds, 1), "visibility": "visible",
                       "stdout_visibility": "hidden", "tests": tests}, indent=1) + "\n"


def classroom50(graded: list[Score], environment: Mapping[str, str]) -> str:
    """``result.json`` of GitHub Classroom 50 (https://github.com/foundation50/classroom50): integers, a test for each exercise.

    environment: what its runner sets: CLASSROOM, ASSIGNMENT, SUBMISSION_TAG, COMMIT_URL, RELEASE_URL, REVIEW_URL. Raises KeyError without.
    """
    tests = []
    for rows in _by_task(graded).values():
        got, most = total(rows)
        tests.append({"test-name": f"{rows[0].task.id} {rows[0].task.title}", "passed": all(r.test.passed for r in rows),
                      "score": int(got + 1e-6), "max-score": round(most)})
    data = {"schema": "classroom50/result/v1", "classroom": environment["CLASSROOM"], "assignment": environment["ASSIGNMENT"],
            "submission": environment["SUBMISSION_TAG"], "commit": environment["COMMIT_URL"], "release": environment["RELEASE_URL"],
            "review": environment.get("REVIEW_URL") or environment["COMMIT_URL"],
            "datetime": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "score": sum(t["score"] for t in tests), "max-score": sum(t["max-score"] for t in tests), "tests": tests}
    return json.dumps(data, indent=1) + "\n"


def _by_task(graded: list[Score]) -> dict[str, list[Score]]:
    by_task: dict[str, list[Score]] = {}
    for r in graded:
        by_task.setdefault(r.task.id, []).append(r)
    return by_task


def junit(graded: list[Score]) -> str:
    """JUnit XML: a suite per exercise."""
    root = ElementTree.Element("testsuites", name="minipt2")
    suites: dict[str, ElementTree.Element] = {}
    for r in graded:
        suite = suites.get(r.task.id)
        if suite is None:
            suite = suites[r.task.id] = ElementTree.SubElement(root, "testsuite", name=f"{r.task.id} {r.task.title}", tests="0", failures="0")
        suite.set("tests", str(int(suite.get("tests", "0")) + 1))
        case = ElementTree.SubElement(suite, "testcase", classname=r.task.slug, name=r.test.name, time=f"{r.test.seconds:.3f}")
        if not r.test.passed:
            suite.set("failures", str(int(suite.get("failures", "0")) + 1))
            ElementTree.SubElement(case, "failure", message=r.test.kind).text = _printable(_text(r.test))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def markdown(graded: list[Score]) -> str:
    """A table by exercise, and what failed."""
    lines = ["# Grade", "", "| exercise | points | of | state |", "| --- | --- | --- | --- |"]
    for rows in _by_task(graded).values():
        got, most = total(rows)
        failed = [r.test.kind for r in rows if not r.test.passed]
        lines.append(f"| {rows[0].task.id} {rows[0].task.title} | {got:.1f} | {most:.0f} | {failed[0] if failed else 'pass'} |")
    got, most = total(graded)
    lines += [f"| **total** | **{got:.1f}** | **{most:.0f}** | |", ""]
    for r in graded:
        if not r.test.passed and not r.test.hidden and r.test.kind != "not started":
            lines += [f"### {r.task.id} {r.test.name}: {r.test.kind}", "", "```", _text(r.test), "```", ""]
    return "\n".join(lines)


def _text(test: TestResult) -> str:
    parts = [test.says, f"your line: {test.place}" if test.place else "", f"last call: {test.call}" if test.call else "",
             f"expected: {test.expected}" if test.expected else "", f"found: {test.found}" if test.found else "", test.message]
    return "\n".join(filter(None, parts)) or test.kind


def _printable(text: str) -> str:
    """XML 1.0 has no way to write control characters."""
    return "".join(c if c in "\t\n\r" or ord(c) >= 32 else "?" for c in text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", help="a student's folder (default: --dir), then exercises or chapters (default: all)")
    parser.add_argument("--out", type=Path, default=Path("grade"), help="folder for results.json, junit.xml and grade.md (default: grade)")
    parser.add_argument("--exercises", type=Path, help="grade with the tests of this folder, whatever the submission brings along")
    parser.add_argument("--classroom50", type=Path, metavar="FILE", help="write GitHub Classroom 50's result.json too, from its runner's environment")
    parser.add_argument("--variants", type=Path, help="folder with an instructor's private tests (test_2_3.py)")


def chosen(place: Workspace, wanted: list[str]) -> list[Task]:
    """Exercises by number or by chapter. Raises NoSuchExercise."""
    if not wanted:
        return list(place.tasks.values())
    found: list[Task] = []
    for name in wanted:
        members = [t for t in place.tasks.values() if name.isdigit() and t.chapter == int(name)]
        found += members or [pick(place.tasks, name)]
    return found


def grade(place: Workspace, todo: list[Task], variants: Path | None = None) -> tuple[list[Score], list[Outcome]]:
    """Check the answers of ``todo``; a missing file is an exercise not started."""
    graded, outcomes = [], []
    for task in todo:
        hidden = [variants / task.test_file.name] if variants and (variants / task.test_file.name).exists() else []
        path = place.answer(task)
        outcome = process.check(task, path, hidden) if path.exists() else Outcome(task.id, "not started", str(path))
        outcomes.append(outcome)
        graded += scores(task, outcome)
    return graded, outcomes


def write(folder: Path, graded: list[Score], seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("results.json", gradescope(graded, seconds)), ("junit.xml", junit(graded)), ("grade.md", markdown(graded))):
        (folder / name).write_text(text)


def run(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    """``minipt2 learn grade``: exit code 0 when everything could be graded, whatever the marks; 70 where a test of ours is at fault."""
    todo = chosen(place, args.ids)
    graded, outcomes = grade(place, todo, args.variants)
    write(args.out, graded, sum(o.seconds for o in outcomes))
    if args.classroom50:
        args.classroom50.write_text(classroom50(graded, os.environ))
    for task, outcome in zip(todo, outcomes):
        if outcome.kind != "not started":
            show.outcome(out, task, outcome)
    got, most = total(graded)
    out.print(escape(f"{got:.1f} of {most:.0f} points; written to {args.out}/results.json, junit.xml, grade.md"))
    return 70 if any(o.kind == "vacuous" for o in outcomes) else 0
