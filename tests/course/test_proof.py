"""The three-way proof of a few exercises, one mutant each; ``make course-proof`` runs all of it."""
import os
import subprocess
import sys

from minipt2.course import tasks

QUICK = ["2.4", "5.2", "9.6"]


def test_quick_proof():
    env = {**os.environ, "PYTHONPATH": str(tasks.PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-m", "minipt2.course.proof", "--quick", *QUICK], capture_output=True, text=True, env=env, timeout=280)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [line.split()[1] for line in ran.stdout.splitlines() if line.startswith("ok")] == QUICK


def test_every_chapter_has_enough_exercises():
    known = tasks.all_tasks(tasks.home())
    counts = {chapter: sum(t.chapter == chapter for t in known.values()) for chapter in range(10)}
    assert len(known) >= 45 and all(count >= 4 for count in counts.values()), counts
