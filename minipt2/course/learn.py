"""``minipt2 learn``: the student's command line.

    minipt2 learn start my-course       a folder with one file per exercise
    cd my-course
    minipt2 learn list                  what there is
    minipt2 learn check 2.3             run the whole compiler on your answer
    minipt2 learn check --all           every exercise that you have begun
    minipt2 learn watch                 check what you save, as you save it
    minipt2 learn hint 2.3              a question, then an invariant, then an outline
    minipt2 learn reset 2.3             start anew (the old answer is kept beside it)
    minipt2 learn status | doctor | grade
"""
from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Callable

from rich.console import Console
from rich.markup import escape

from . import doctor, grade, process, show, tasks
from .tasks import NoSuchExercise, Task, pick
from .verdict import Outcome, exit_code
from .workspace import Workspace


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="minipt2 learn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--dir", type=Path, default=Path("."), help="your folder (default: this one)")
    commands = top.add_subparsers(dest="command", required=True)
    start = commands.add_parser("start", help="make a folder with one file per exercise")
    start.add_argument("folder", type=Path)
    commands.add_parser("list", help="all exercises and their state")
    check = commands.add_parser("check", help="check one exercise (default: the first that does not pass)")
    check.add_argument("id", nargs="?")
    check.add_argument("--all", action="store_true", help="every exercise that was begun")
    check.add_argument("--json", action="store_true", help="write the verdicts as JSON")
    commands.add_parser("watch", help="check each file as it is saved (Ctrl-C ends)")
    for name, text in (("hint", "the next hint"), ("reset", "start an exercise anew; the old answer is kept")):
        commands.add_parser(name, help=text).add_argument("id")
    commands.add_parser("status", help="progress by chapter")
    commands.add_parser("doctor", help="what this machine has and lacks")
    grade.add_arguments(commands.add_parser("grade", help="check everything and write results.json, JUnit XML and Markdown"))
    return top


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code (see ``verdict.EXIT_CODES``)."""
    args, out = parser().parse_args(argv), show.console()
    try:
        if args.command == "doctor":
            found = doctor.findings()
            show.rows(out, "minipt2 doctor", found)
            return 0 if all(well for name, well, _ in found if name in ("Python", "system", "torch")) else 1
        place = _place(args)
        if place.warning:
            out.print(escape(place.warning))
        return _COMMANDS[args.command](args, place, out)
    except NoSuchExercise as error:
        out.print(escape(str(error)))
        return 64
    except KeyboardInterrupt:
        out.print("interrupted; nothing is lost")
        return 130


def _place(args: argparse.Namespace) -> Workspace:
    """The student's folder; ``grade`` may be given it as its first argument."""
    if args.command == "start":
        return Workspace(args.folder)
    if args.command != "grade":
        return Workspace(args.dir)
    if args.ids and Path(args.ids[0]).is_dir():
        args.dir = Path(args.ids.pop(0))
    place = Workspace(args.dir, args.exercises)
    inner = [f for f in place.folder.iterdir() if f.is_dir()] if place.folder.is_dir() and not place.exists else []
    found = [p for p in (Workspace(f, args.exercises or tasks.home(place.folder)) for f in inner) if p.exists]
    return found[0] if len(found) == 1 else place  # an upload that is one folder


def _start(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    made = place.start()
    place.save()
    out.print(escape(f"{place.folder}: {len(made)} exercises written, {len(place.tasks) - len(made)} were there already"))
    first = next(iter(place.tasks.values()))
    out.print(escape(f"next: cd {args.folder}; read {first.slug}/README.md, edit {first.slug}/answer.py; minipt2 learn check {first.id}"))
    return 0


def _list(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    show.listing(out, place)
    return 0


def _check(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    if args.all:
        chosen = [task for task in place.tasks.values() if place.answer(task).exists()]
    elif args.id:
        chosen = [pick(place.tasks, args.id)]
    else:
        chosen = [task for task in [place.next_task()] if task]
    outcomes = []
    for task in chosen:
        outcomes.append(_one(place, task))
        if not args.json and not (args.all and outcomes[-1].kind == "not started"):
            show.outcome(out, task, outcomes[-1])
    if args.json:
        print(json.dumps([show.as_data(o) for o in outcomes], indent=1))
        return exit_code(outcomes)
    if args.all:
        begun = [o for o in outcomes if o.kind != "not started"]
        out.print(f"{sum(o.passed for o in begun)} of {len(begun)} pass, {len(outcomes) - len(begun)} not started")
    if outcomes and all(o.passed for o in outcomes) or args.all:
        _next(place, out, chosen[-1] if len(chosen) == 1 else None)
    return exit_code(outcomes)


def _one(place: Workspace, task: Task) -> Outcome:
    place.write_stub(task)
    result = process.check(task, place.answer(task))
    place.record(result)
    return result


def _next(place: Workspace, out: Console, after: Task | None) -> None:
    following = place.next_task(after)
    if following:
        out.print(f"  next: {following.id} {escape(following.title)}, {escape(str(place.answer(following)))}")


def _watch(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    def stamps() -> dict[str, float]:
        return {task.id: place.answer(task).stat().st_mtime for task in place.tasks.values() if place.answer(task).exists()}
    seen = stamps()
    out.print(f"watching {len(seen)} files in {escape(str(place.folder))}; Ctrl-C ends")
    while True:
        time.sleep(0.5)
        now = stamps()
        for number in [n for n, stamp in now.items() if stamp != seen.get(n)]:
            result = _one(place, place.tasks[number])
            show.outcome(out, place.tasks[number], result)
            if result.passed:
                _next(place, out, place.tasks[number])
        seen = now


def _hint(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    task = pick(place.tasks, args.id)
    number, text = place.hint(task)
    out.print(f"{task.id} hint {number} of {len(task.hints)}: {escape(text)}")
    return 0


def _reset(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    task = pick(place.tasks, args.id)
    backup = place.reset(task)
    out.print(escape(f"{place.answer(task)} is the stub again" + (f"; your answer is kept as {backup.name}" if backup else "")))
    return 0


def _status(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    show.status(out, place)
    return 0


def _grade(args: argparse.Namespace, place: Workspace, out: Console) -> int:
    return grade.run(args, place, out)


_COMMANDS: dict[str, Callable[[argparse.Namespace, Workspace, Console], int]] = {
    "start": _start, "list": _list, "check": _check, "watch": _watch, "hint": _hint, "reset": _reset, "status": _status, "grade": _grade,
}
