"""Which submissions resemble one another: shared statements, those of the starter and of the reference not counted. For a human to look at."""
from __future__ import annotations

import itertools
from pathlib import Path
from typing import NamedTuple

from . import fingerprints, leaks, regions
from .tasks import Task

class Pair(NamedTuple):
    """Two submissions: shared statements over all statements of both (1 is equal), and how many are shared."""

    likeness: float
    shared: int
    a: str
    b: str


def pairs(submissions: Path, tasks: dict[str, Task], least: float = 0.3) -> list[Pair]:
    """Each folder in ``submissions`` is one student's. Most alike first; never a verdict: short exercises have few ways to be written."""
    common = set(leaks.references(tasks)) | {m for t in tasks.values() for m in fingerprints.of_text(regions.stub(t.source, t.id))}
    own = {folder.name: _own(folder) - common for folder in sorted(submissions.iterdir()) if folder.is_dir()}
    found = []
    for a, b in itertools.combinations(own, 2):
        shared, everything = own[a] & own[b], own[a] | own[b]
        if len(everything) and len(shared) / len(everything) >= least:
            found.append(Pair(len(shared) / len(everything), len(shared), a, b))
    return sorted(found, reverse=True)


def _own(folder: Path) -> set[str]:
    marks: set[str] = set()
    for path in folder.rglob("answer.py"):
        marks |= fingerprints.of_text(path.read_text(errors="replace"))
    return marks
