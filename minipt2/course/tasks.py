"""Exercises as data: ``task.toml`` files and where they are found."""
from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from . import regions

PACKAGE = Path(__file__).resolve().parent.parent
NUMBER = re.compile(r"\d+\.\d+")


class NoSuchExercise(LookupError):
    """An exercise that does not exist, or a folder without exercises."""


@dataclass(frozen=True)
class Mutant:
    """One fault seeded into the reference: ``find`` replaced by ``replace`` must make every test of ``must_fail`` fail."""

    find: str
    replace: str
    why: str
    must_fail: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One exercise. ``file`` is relative to ``minipt2/``; ``target`` names the function (or several, for one exercise in parts) in it."""

    id: str
    title: str
    file: str
    target: tuple[str, ...]
    statement: str
    folder: Path
    hints: tuple[str, ...]
    mutants: tuple[Mutant, ...]
    prereqs: tuple[str, ...] = ()
    minutes: int = 30
    budget_s: float = 30.0
    memory_mb: int = 4000
    points: int = 10
    targets: tuple[str, ...] = ("cpu",)
    predict: str = ""
    note: str = ""
    visibility: str = "visible"
    tests: tuple[str, ...] = field(default=())

    @property
    def chapter(self) -> int:
        return int(self.id.split(".")[0])

    @property
    def order(self) -> tuple[int, int]:
        chapter, number = self.id.split(".")
        return int(chapter), int(number)

    @property
    def slug(self) -> str:
        return self.folder.name

    @property
    def test_file(self) -> Path:
        return self.folder / f"test_{self.id.replace('.', '_')}.py"

    @property
    def module(self) -> str:
        return "minipt2." + self.file.removesuffix(".py").replace("/", ".")

    @cached_property
    def source(self) -> str:
        """Text of the package's file."""
        return (PACKAGE / self.file).read_text()

    @cached_property
    def reference_lines(self) -> int:
        return sum(bool(line.strip()) for line in regions.body(self.source, self.id).splitlines())


_NAMES = {f.name for f in fields(Task)} - {"folder"}


def load(folder: Path) -> Task:
    """The exercise in ``folder``. Raises ValueError that names the file and the key."""
    path = folder / "task.toml"
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: {error}") from None
    unknown = set(data) - _NAMES
    if unknown:
        raise ValueError(f"{path}: no key {sorted(unknown)[0]!r}; there are {', '.join(sorted(_NAMES))}")
    data["mutants"] = tuple(Mutant(m["find"], m["replace"], m["why"], tuple(m["must_fail"])) for m in data.get("mutants", ()))
    if isinstance(data.get("target"), str):
        data["target"] = [data["target"]]
    for name, value in data.items():
        if isinstance(value, list):
            data[name] = tuple(value)
    try:
        return Task(folder=folder, **data)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


def home(workspace: Path | None = None) -> Path:
    """Where the exercises lie: in the student's folder, or else beside the package. Raises NoSuchExercise."""
    places = [workspace / "exercises"] if workspace else []
    places += [PACKAGE.parent / "exercises", PACKAGE / "course" / "exercises"]
    for place in places:
        if place.is_dir() and any(place.glob("*/task.toml")):
            return place
    raise NoSuchExercise(f"no exercises in {places[0]}; run minipt2 learn from a folder made by 'minipt2 learn start DIR'")


def all_tasks(folder: Path) -> dict[str, Task]:
    """Every exercise under ``folder`` by its number, in the order of the course."""
    found = sorted((load(path.parent) for path in folder.glob("*/task.toml")), key=lambda task: task.order)
    return {task.id: task for task in found}


def pick(tasks: dict[str, Task], wanted: str) -> Task:
    """The exercise ``wanted`` ("5.3", or a part of its folder's name). Raises NoSuchExercise with the nearest ones."""
    if wanted in tasks:
        return tasks[wanted]
    named = [task for task in tasks.values() if wanted.lower() in task.slug.lower() or wanted.lower() in task.title.lower()]
    if len(named) == 1:
        return named[0]
    near = ", ".join(t.id for t in named or tasks.values())
    raise NoSuchExercise(f"no exercise {wanted!r}; there are {near}")
