"""What an instructor hands out and hands in: a repository without solutions, and an autograder (Gradescope, GitHub Classroom 50, JUnit).

``new`` writes stubs, visible tests, tasks without their mutants (which quote the reference), continuous integration and the rules for
assistants. ``autograder`` writes a zip with the scripts of its format at its root, the package, all tests and the private variants.
"""
from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import Iterable, Sequence

from .tasks import PACKAGE, Task
from .workspace import Workspace

POLICIES = {
    "tutor": "Explain, ask questions, read error messages, suggest invariants and tests. Write no line between `# >>>` and `# <<<` marks, in "
             "whatever form, and do not quote the package's own solution.",
    "pair": "Help as a colleague would. Every exchange that changed an answer is noted by the student in `AI_LOG.md`: what was asked, what was "
            "taken over, what was wrong with it.",
    "open": "No restriction (meant for the final project only).",
}
"""Rules for assistants, from strict to free; an instructor chooses one."""


class Refused(Exception):
    """What would be handed out or graded with is not in order."""


def new(folder: Path, tasks: Iterable[Task], *, term: str, policy: str = "tutor", package: str = "minipt2") -> None:
    """Write the repository that students start from. ``package``: how pip finds minipt2. Raises Refused if the folder is not empty."""
    if folder.exists() and any(folder.iterdir()):
        raise Refused(f"{folder} is not empty")
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(tasks)
    for task in chosen:
        copy_exercise(task, folder / "exercises" / task.slug, private=False)
    place = Workspace(folder)
    place.start()
    place.save()
    files = {
        "README.md": _readme(chosen, term), "AGENTS.md": f"# For assistants\n\nPolicy of this course: **{policy}**.\n\n{POLICIES[policy]}\n",
        "syllabus.toml": _syllabus(chosen, term), "requirements.txt": f"torch>=2.11,<2.15\n{package}\npytest>=8\n",
        ".github/workflows/check.yml": _WORKFLOW, ".gitignore": "__pycache__/\n*.pyc\ngrade/\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def copy_exercise(task: Task, to: Path, *, private: bool) -> None:
    """Task and tests; ``private``: with the mutants."""
    to.mkdir(parents=True)
    text = (task.folder / "task.toml").read_text()
    (to / "task.toml").write_text(text if private else text.partition("[[mutants]]")[0])
    shutil.copy(task.test_file, to / task.test_file.name)


def origin() -> str:
    """What pip is to install where nothing else is said: this copy's git repository, as far as students can reach it; else the name."""
    git = ["git", "-C", str(PACKAGE.parent), "remote", "get-url", "origin"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip() if (PACKAGE.parent / ".git").exists() else ""
    except (OSError, subprocess.CalledProcessError):  # no git, or no origin
        found = ""
    return f"minipt2 @ git+{found}" if found.startswith(("https://", "ssh://")) else "minipt2"


def _readme(tasks: Sequence[Task], term: str) -> str:
    lines = [f"# minipt2, {term}", "", "You need Linux (or Windows with WSL), Python 3.11 to 3.13 and a C compiler.", "",
             "```sh", "python3 -m venv .venv && . .venv/bin/activate", "pip install -r requirements.txt", "minipt2 learn doctor", "minipt2 learn list",
             f"minipt2 learn check {tasks[0].id}", "```", "", "| exercise | | minutes |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {t.id} | [{t.title}]({t.slug}/README.md) | {t.minutes} |" for t in tasks)]) + "\n"


def _syllabus(tasks: Sequence[Task], term: str) -> str:
    chapters = sorted({t.chapter for t in tasks})
    lines = [f"term = {term!r}".replace("'", '"'), ""]
    for week, chapter in enumerate(chapters, 1):
        ids = ", ".join(f'"{t.id}"' for t in tasks if t.chapter == chapter)
        lines += ["[[assignment]]", f"week = {week}", f"chapter = {chapter}", f"exercises = [{ids}]", ""]
    return "\n".join(lines)


_WORKFLOW = """\
name: check
on: [push]
jobs:
  check:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with: {python-version: "3.12"}
      - run: pip install -r requirements.txt
      - run: minipt2 learn check --all
"""

_SETUP = """\
#!/usr/bin/env bash
# Runs once, when the image is built: an interpreter, a C compiler, torch and the package of this zip.
set -e
root=${AUTOGRADER_ROOT:-/autograder}
fits='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
choose() {
  for name in python3.13 python3.12 python3.11 python3; do
    if command -v $name > /dev/null && $name -c "$fits" 2> /dev/null; then echo $name; return; fi
  done
}
python=$(choose)
if [ -z "$python" ] || ! command -v gcc > /dev/null; then
  apt-get update
  apt-get install -y gcc python3 python3-venv
  [ -n "$(choose)" ] || apt-get install -y python3.12 python3.12-venv || apt-get install -y python3.11 python3.11-venv
  python=$(choose)
fi
[ -n "$python" ] || { echo "CPython 3.11 to 3.13 is needed: choose a newer base image" >&2; exit 1; }
"$python" -m venv "$root/venv"
"$root/venv/bin/pip" install --quiet "${TORCH:-torch>=2.11,<2.15}" PACKAGES
"$root/venv/bin/pip" install --quiet "$root/source/minipt2"
"""

_RUN = """\
#!/usr/bin/env bash
# Grades with the exercises and variants of this zip, whatever the submission brings along.
root=${AUTOGRADER_ROOT:-/autograder}
cd "$root/submission"
OMP_NUM_THREADS=1 "$root/venv/bin/minipt2" learn --dir . grade IDS \\
  --exercises "$root/source/exercises" --variants "$root/source/variants" --out "$root/results"
"""

_CLASSROOM = """\
#!/usr/bin/env python3
\"\"\"Grades the checkout it runs in and writes result.json. Lies in CLASSROOM/autograders/ASSIGNMENT/ with what this zip brings along.\"\"\"
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
pip = [sys.executable, "-m", "pip", "install", "--quiet"]
if "MINIPT2_INSTALLED" not in os.environ:
    subprocess.run([*pip, os.environ.get("TORCH", "torch>=2.11,<2.15"), PACKAGES], check=True)
    subprocess.run([*pip, str(HERE / "minipt2")], check=True)
command = [sys.executable, "-m", "minipt2", "learn", "--dir", ".", "grade", IDS, "--exercises", str(HERE / "exercises"),
           "--variants", str(HERE / "variants"), "--out", "grade", "--classroom50", "result.json"]
sys.exit(subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}).returncode)
"""

_JUNIT = """\
#!/usr/bin/env bash
# Grades the folder it is given and writes junit.xml, results.json and grade.md into the second one. Needs minipt2 (pip install ./minipt2).
set -e
here=$(cd "$(dirname "$0")" && pwd)
OMP_NUM_THREADS=1 python3 -m minipt2 learn --dir "${1:?a folder with answers}" grade IDS \\
  --exercises "$here/exercises" --variants "$here/variants" --out "${2:-grade}"
"""

FORMATS = {"gradescope": {"setup.sh": _SETUP, "run_autograder": _RUN}, "classroom50": {"autograder.py": _CLASSROOM}, "junit": {"grade.sh": _JUNIT}}
"""The scripts at the root of each kind of autograder."""


def autograder(out: Path, tasks: Sequence[Task], variants: Path | None = None, kind: str = "gradescope") -> list[str]:
    """Write the zip, of one of ``FORMATS``; returns the names in it. Private variants without an exercise in ``tasks`` are refused."""
    private = sorted(variants.glob("test_*.py")) if variants else []
    strangers = {p.name for p in private} - {t.test_file.name for t in tasks}
    if strangers:
        raise Refused(f"no exercise of this assignment has {', '.join(sorted(strangers))}")
    packages = ["pytest"] + ["triton"] * any("cpu" not in t.targets for t in tasks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for task in tasks:
            copy_exercise(task, folder / "exercises" / task.slug, private=True)
        (folder / "variants").mkdir()
        for path in private:
            shutil.copy(path, folder / "variants" / path.name)
        project = folder / "minipt2"
        shutil.copytree(PACKAGE, project / "minipt2", ignore=shutil.ignore_patterns("__pycache__"))
        for other in ("pyproject.toml", "README.md", "LICENSE"):
            if (PACKAGE.parent / other).exists():
                shutil.copy(PACKAGE.parent / other, project / other)
        for script, text in FORMATS[kind].items():
            words = (lambda names: ", ".join(map(repr, names))) if script.endswith(".py") else " ".join
            _script(folder / script, text.replace("PACKAGES", words(packages)).replace("IDS", words([t.id for t in tasks])))
        return _zip(folder, out)


def _script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _zip(folder: Path, out: Path) -> list[str]:
    out.parent.mkdir(parents=True, exist_ok=True)
    names = []
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            names.append(str(path.relative_to(folder)))
            archive.write(path, names[-1])
    return names
