"""``minipt2 course``: the instructor's command line.

    minipt2 course new DIR --term "Autumn"        a repository for students: stubs and tests, no solutions
    minipt2 course autograder 2 3.4 -o hw3.zip    a Gradescope autograder for exercises or chapters
    minipt2 course autograder 2 -o hw.zip --format classroom50   the same for GitHub Classroom 50 (or junit)
    minipt2 course prove [ID ...]                 stub, reference and mutants of every exercise
    minipt2 course mutate ID                      mutants made by rule; those that no test notices
    minipt2 course leakscan DIR                   solutions in a repository, its pages, bytecode and history
    minipt2 course similar SUBMISSIONS            submissions that resemble one another, for a human to look at
"""
from __future__ import annotations

import argparse
from pathlib import Path
from typing import Callable

from rich.console import Console
from rich.markup import escape

from . import leaks, mutate, proof, show, similar, starter, tasks
from .tasks import NoSuchExercise, Task, pick


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="minipt2 course", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    top.add_argument("--exercises", type=Path, help="folder with the exercises (default: those of the package)")
    commands = top.add_subparsers(dest="command", required=True)
    new = commands.add_parser("new", help="write the repository that students start from")
    new.add_argument("folder", type=Path)
    new.add_argument("ids", nargs="*", help="exercises or chapters (default: all)")
    new.add_argument("--term", default="this term")
    new.add_argument("--policy", choices=starter.POLICIES, default="tutor", help="what assistants may do (default: tutor)")
    new.add_argument("--package", default="", help="how pip finds minipt2: \"minipt2 @ git+https://...\", a wheel's address (default: this copy's git origin)")
    grader = commands.add_parser("autograder", help="write an autograder")
    grader.add_argument("ids", nargs="+", help="exercises or chapters")
    grader.add_argument("-o", "--out", type=Path, default=Path("autograder.zip"))
    grader.add_argument("--variants", type=Path, help="folder with private tests (test_2_3.py)")
    grader.add_argument("--format", choices=starter.FORMATS, default="gradescope", help="whose (default: gradescope)")
    mutants = commands.add_parser("mutate", help="make mutants of a reference by rule, and show those that no test notices")
    mutants.add_argument("id", help="an exercise")
    mutants.add_argument("--most", type=int, default=30, help="mutants to check (default: 30)")
    mutants.add_argument("--seed", type=int, default=0, help="chooses among more of them (default: 0)")
    commands.add_parser("prove", help="the three-way proof").add_argument("ids", nargs="*")
    commands.add_parser("leakscan", help="look for solutions").add_argument("folder", type=Path)
    commands.add_parser("similar", help="compare submissions").add_argument("folder", type=Path)
    return top


def main(argv: list[str]) -> int:
    """Run one command; returns the exit code: 0, 1 for what was found, 64 for what cannot be done."""
    args, out = parser().parse_args(argv), show.console()
    try:
        known = tasks.all_tasks(args.exercises or tasks.home())
        return _COMMANDS[args.command](args, known, out)
    except (NoSuchExercise, starter.Refused, FileNotFoundError) as error:
        out.print(escape(str(error)))
        return 64


def chosen(known: dict[str, Task], ids: list[str]) -> list[Task]:
    """Exercises by number or by chapter, in the order of the course; all when none is named. Raises NoSuchExercise."""
    if not ids:
        return list(known.values())
    found: dict[str, Task] = {}
    for name in ids:
        members = [t for t in known.values() if name.isdigit() and t.chapter == int(name)]
        found.update({t.id: t for t in members or [pick(known, name)]})
    return sorted(found.values(), key=lambda t: t.order)


def _new(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    picked = chosen(known, args.ids)
    package = args.package or starter.origin()
    starter.new(args.folder, picked, term=args.term, policy=args.policy, package=package)
    found = leaks.scan(args.folder, known)
    out.print(escape(f"{args.folder}: {len(picked)} exercises, {len(found)} leaks; students install {package!r}"))
    if package == "minipt2":
        out.print("this copy has no address that students could install from: say one with --package, or write it into requirements.txt")
    return _report(found, out)


def _autograder(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    picked = chosen(known, args.ids)
    for task in picked:  # stub scores nothing, reference all, mutants less: or nothing is built
        wrong = proof.faults(task, set(known))
        if wrong:
            raise starter.Refused(f"{task.id} is not in order: {wrong[0]}")
    names = starter.autograder(args.out, picked, args.variants, args.format)
    out.print(escape(f"{args.out}: {len(picked)} exercises, {sum(n.startswith('variants/') for n in names)} private variants, {len(names)} files"))
    return 0


def _prove(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    return 1 if sum(proof.prove(task, set(known), False, out) for task in chosen(known, args.ids)) else 0


def _mutate(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    task = pick(known, args.id)
    found = mutate.proposals(task)
    todo = mutate.chosen(found, args.most, args.seed)
    alive = 0
    for proposal, outcome in mutate.run(task, todo):
        alive += outcome.passed
        noticed = next((t.name for t in outcome.tests if not t.passed), outcome.kind)
        out.print(escape(f"{'SURVIVES' if outcome.passed else 'caught'}  {proposal.describe()}" + f"  by {noticed}" * (not outcome.passed)))
    out.print(escape(f"{task.id}: {alive} of {len(todo)} mutants survive ({len(found)} there are); each needs a test, or means the same"))
    return 1 if alive else 0


def _leakscan(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    return _report(leaks.scan(args.folder, known), out)


def _report(found: list[leaks.Leak], out: Console) -> int:
    for leak in found:
        out.print(escape(f"{leak.place}: part of the solution of {leak.task}"))
    return 1 if found else 0


def _similar(args: argparse.Namespace, known: dict[str, Task], out: Console) -> int:
    for pair in similar.pairs(args.folder, known):
        out.print(escape(f"{pair.likeness:.2f}  {pair.shared} statements  {pair.a}  {pair.b}"))
    return 0


_COMMANDS: dict[str, Callable[[argparse.Namespace, dict[str, Task], Console], int]] = {
    "new": _new, "autograder": _autograder, "prove": _prove, "mutate": _mutate, "leakscan": _leakscan, "similar": _similar,
}
