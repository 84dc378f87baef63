"""A student's folder: one file per exercise, and the progress in one JSON file beside them."""
from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

from . import regions, tasks, uses
from .tasks import Task
from .verdict import Outcome

PROGRESS = "progress.json"


class Workspace:
    """``folder/N_M_name/`` for each exercise, with ``README.md``, ``answer.py`` and ``context.py``; ``folder/progress.json``."""

    def __init__(self, folder: Path, exercises: Path | None = None):
        """``exercises``: where tasks and tests are, whatever the folder itself brings along (grading)."""
        self.folder = folder.resolve()
        self.tasks = tasks.all_tasks(exercises or tasks.home(self.folder))
        self.warning = ""
        self.progress = self._read()

    @property
    def exists(self) -> bool:
        """Whether ``learn start`` has been here."""
        return any(self.answer(task).exists() for task in self.tasks.values())

    def answer(self, task: Task) -> Path:
        return self.folder / task.slug / "answer.py"

    def start(self) -> list[Task]:
        """Write the files that are not there yet; returns the exercises they belong to. Nothing that exists is touched."""
        return [task for task in self.tasks.values() if self.write_stub(task)]

    def write_stub(self, task: Task) -> bool:
        path = self.answer(task)
        if path.exists():
            return False
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(regions.stub(task.source, task.id))
        (path.parent / "README.md").write_text(readme(task, self.tasks))
        (path.parent / "context.py").write_text(regions.hollow(task.source))
        return True

    def reset(self, task: Task) -> Path | None:
        """Start an exercise anew; returns where the old answer is kept."""
        path, backup = self.answer(task), None
        if path.exists():
            backup = path.with_name(f"answer.{time.strftime('%Y%m%d-%H%M%S')}.bak.py")
            number = 1
            while backup.exists():
                backup, number = backup.with_name(f"{backup.name.removesuffix('.bak.py')}-{number}.bak.py"), number + 1
            shutil.move(path, backup)
        self.write_stub(task)
        self.progress["exercises"].pop(task.id, None)
        self.save()
        return backup

    def record(self, outcome: Outcome) -> None:
        """Note a verdict; a pass stays noted as the best one."""
        entry = self._entry(outcome.task)
        if outcome.kind == "not started":
            return
        entry.update(kind=outcome.kind, checks=entry["checks"] + 1, passed=entry["passed"] or outcome.passed)
        self.save()

    def hint(self, task: Task) -> tuple[int, str]:
        """The next hint of an exercise, counted; after the last one, the last one again."""
        entry = self._entry(task.id)
        entry["hints"] = min(entry["hints"] + 1, len(task.hints))
        self.save()
        return entry["hints"], task.hints[entry["hints"] - 1]

    def state(self, task: Task) -> dict[str, Any]:
        return dict(self._entry(task.id))

    def next_task(self, after: Task | None = None) -> Task | None:
        """The first exercise that has not passed: of those behind ``after``, if there is one among them."""
        left = [task for task in self.tasks.values() if not self.state(task)["passed"]]
        return next((task for task in left if after is not None and task.order > after.order), left[0] if left else None)

    def _entry(self, number: str) -> dict[str, Any]:
        fresh = {"kind": "not started", "checks": 0, "hints": 0, "passed": False}
        return self.progress["exercises"].setdefault(number, fresh)

    def _read(self) -> dict[str, Any]:
        path = self.folder / PROGRESS
        if not path.exists():
            return {"version": 1, "exercises": {}}
        try:
            data = json.loads(path.read_text())
            for entry in data["exercises"].values():
                entry["kind"], entry["checks"] + 0, entry["hints"] + 0, entry["passed"]
            return data
        except (ValueError, KeyError, TypeError, AttributeError):
            kept = path.with_suffix(".damaged.json")
            path.replace(kept)
            self.warning = f"{path} was damaged and is kept as {kept.name}; progress starts anew, your answers are untouched"
            return {"version": 1, "exercises": {}}

    def save(self) -> None:
        """All or nothing: a run interrupted while writing leaves the old file."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / PROGRESS
        new = path.with_suffix(f".{os.getpid()}.tmp")
        new.write_text(json.dumps(self.progress, indent=1, sort_keys=True) + "\n")
        new.replace(path)


def readme(task: Task, known: dict[str, Task]) -> str:
    """What a student reads beside the stub."""
    several = len(task.target) > 1
    before = ", ".join(f"{p} {known[p].title}" if p in known else p for p in task.prereqs)
    lines = [f"# {task.id} {task.title}", "", task.statement.strip(), "",
             f"Write {'the bodies' if several else 'the body'} of `{'`, `'.join(task.target)}` in `answer.py`, between the marks. "
             f"{'They take the place of those' if several else 'It takes the place of the one'} in `minipt2/{task.file}`, and the whole compiler "
             "runs on what you write. `context.py` is that file with the bodies of exercises left out, to read: all its names can be used, and "
             "you need not import them.", "",
             f"About {task.reference_lines} lines, {task.minutes} minutes. Before it: {before or 'nothing'}.", "",
             "```", f"minipt2 learn check {task.id}", f"minipt2 learn hint {task.id}", "```"]
    if others := uses.imported(task):
        lines += ["", "From other files of the package (`python -m minipt2 learn doctor` says where it lies) `answer.py` sees:", "", *others]
    if task.predict:
        lines += ["", f"Predict before you run: {task.predict}"]
    return "\n".join(lines) + "\n"
