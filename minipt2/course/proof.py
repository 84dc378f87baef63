"""The proof of the course: for every exercise the stub says only that it is not written, the reference passes, every mutant is caught.

    python -m minipt2.course.proof [--quick] [ID ...]
"""
from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterator

from rich.console import Console
from rich.markup import escape

from . import lint, process, regions, show, tasks
from .tasks import Mutant, Task
from .verdict import Outcome


def static_faults(task: Task, known: set[str]) -> Iterator[str]:
    """What is wrong with an exercise before anything is run."""
    if len(task.hints) != 3 or not all(hint.strip() for hint in task.hints):
        yield "needs three hints: a question, an invariant, an outline"
    if len(task.mutants) < 2:
        yield "needs two mutants or more"
    yield from (f"stands on {p}, which is no exercise before it" for p in task.prereqs
                if p not in known or tuple(map(int, p.split("."))) >= task.order)
    if not task.test_file.exists():
        yield f"has no {task.test_file.name}"
    tree = ast.parse(task.source)
    marked = [name for name, node in _functions(tree) if any(ast.unparse(d) == f"exercise('{task.id}')" for d in node.decorator_list)]
    if sorted(marked) != sorted(task.target):
        yield f"@exercise stands on {marked}, the task names {list(task.target)}"
    for mutant in task.mutants:
        try:
            regions.replaced(task.source, task.id, mutant.find, mutant.replace)
        except regions.BadMarks as error:
            yield f"mutant {mutant.why!r}: {error}"
    try:
        stub, answer = regions.stub(task.source, task.id), regions.answer(task.source, task.id)
        ast.parse(stub)
    except (regions.BadMarks, SyntaxError) as error:
        yield str(error)
        return
    if not regions.is_subsequence(stub, task.source) or not regions.is_subsequence(stub, answer):
        yield "the stub does not only remove lines"
    problem = lint.signature(ast.parse(stub), task, Path("stub"))
    if problem:
        yield problem.message
    named = {node.name for node in ast.walk(ast.parse(task.test_file.read_text())) if isinstance(node, ast.FunctionDef)}
    yield from (f"mutant {m.why!r} must fail {t}, which is no test" for m in task.mutants for t in m.must_fail if t.split("[")[0] not in named)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{n.name}", n) for n in node.body if isinstance(n, ast.FunctionDef))


def _run(task: Task, text: str, folder: Path, arguments: tuple[str, ...] = ()) -> Outcome:
    path = folder / f"answer_{task.id.replace('.', '_')}.py"
    path.write_text(text)
    return process.check(task, path, examine=False, pytest_arguments=arguments)


def _why(outcome: Outcome) -> str:
    failing = [f"{t.name} [{t.kind}] {t.place} {t.message or t.expected + ' / ' + t.found}"[:600] for t in outcome.tests if not t.passed]
    return f"{outcome.kind}: {outcome.message} {'; '.join(failing)}"


def stub_fault(task: Task, folder: Path) -> str:
    """The stub must fail by saying that it is not written, in every test, and by nothing else."""
    outcome = _run(task, regions.stub(task.source, task.id), folder)
    if not outcome.tests or any(test.kind != "not started" for test in outcome.tests):
        return f"stub: {_why(outcome)} {outcome.output[-300:]}"
    return ""


def reference_fault(task: Task, folder: Path) -> str:
    outcome = _run(task, regions.answer(task.source, task.id), folder)
    return "" if outcome.passed else f"reference: {_why(outcome)} {outcome.output[-300:]}"


def mutant_fault(task: Task, mutant: Mutant, folder: Path) -> str:
    """A mutant must fail each of the tests that it names."""
    try:
        text = regions.answer(regions.replaced(task.source, task.id, mutant.find, mutant.replace), task.id)
    except regions.BadMarks as error:
        return f"mutant: {error}"
    outcome = _run(task, text, folder)
    if outcome.kind in ("syntax error", "import error", "bad signature", "vacuous"):
        return f"mutant {mutant.why!r}: {_why(outcome)}"
    caught = [test.name for test in outcome.tests if not test.passed]
    missed = [name for name in mutant.must_fail if not any(c == name or c.split("[")[0] == name for c in caught)]
    return f"mutant {mutant.why!r} survives {missed}; fails {caught}" if missed or not mutant.must_fail else ""


def faults(task: Task, known: set[str], *, quick: bool = False) -> list[str]:
    """All that is wrong with one exercise. ``quick``: without the mutants but the first."""
    found = list(static_faults(task, known))
    if found:
        return found
    with tempfile.TemporaryDirectory(prefix="minipt2-proof-") as name:
        folder = Path(name)
        found = [stub_fault(task, folder), reference_fault(task, folder)]
        found += [mutant_fault(task, m, folder) for m in (task.mutants[:1] if quick else task.mutants)]
    return [fault for fault in found if fault]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m minipt2.course.proof", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ids", nargs="*", help="exercises or chapters (default: all)")
    parser.add_argument("--quick", action="store_true", help="one mutant each")
    parser.add_argument("--exercises", type=Path, help="folder with the exercises (default: those of the package)")
    args, out = parser.parse_args(argv), show.console()
    known = tasks.all_tasks(args.exercises or tasks.home())
    wanted = [t for t in known.values() if not args.ids or t.id in args.ids or str(t.chapter) in args.ids]
    return 1 if sum(prove(task, set(known), args.quick, out) for task in wanted) or not wanted else 0


def prove(task: Task, known: set[str], quick: bool, out: Console) -> int:
    """Print the verdict on one exercise; returns the number of faults."""
    start = time.perf_counter()
    found = faults(task, known, quick=quick)
    out.print(f"{'[red]--[/]' if found else '[green]ok[/]'} {task.id} {escape(task.title)}  {len(task.mutants)} mutants, {time.perf_counter() - start:.1f} s")
    for fault in found:
        out.print(escape(f"     {fault}"))
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
