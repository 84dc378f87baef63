"""Run a check in a child process and judge it. The parent owns clock, memory limit and verdict; nothing a student writes can keep them.

On Linux the child is forked with torch loaded (a check then costs its tests alone); elsewhere it is a new interpreter. The clock counts the
child's processor time, so that a busy machine makes no verdict; five times as much wall clock ends one that only waits.
"""
from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Sequence

from . import lint
from .tasks import PACKAGE, Task
from .verdict import Outcome, TestResult, overall, test_from

_TICK = os.sysconf("SC_CLK_TCK")
_CAN_FORK = sys.platform == "linux"
_WALL_FACTOR, _START_S = 5.0, 120.0
_OURS = re.compile(r'  File ".*(/pluggy/|/_pytest/|/minipt2/__main__\.py|/bin/minipt2"|/minipt2/course/(child|process|learn|grade|proof|mutate)\.py)|Extension modules: ')


class _Forked:
    """The part of Popen that is needed, for a child forked from this process."""

    def __init__(self, request: dict[str, Any], output: Path):
        from . import child  # here: only the checker needs torch and pytest
        child.warm_up()
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.setsid()
                fd = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                for stream in (1, 2):
                    os.dup2(fd, stream)
                sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
                child.run(request)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)  # none of the parent's clean-up

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _start(request: dict[str, Any], folder: Path, output: Path, interpreter: bool) -> Any:
    """``interpreter``: with Triton's, which must be asked for before Triton is imported: so in a new process."""
    if _CAN_FORK and not interpreter:
        return _Forked(request, output)
    given = folder / "request.json"
    given.write_text(json.dumps(request))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(PACKAGE.parent), os.environ.get("PYTHONPATH")]))}
    if interpreter:
        environment["TRITON_INTERPRET"] = "1"
    with open(output, "ab") as out:
        return subprocess.Popen([sys.executable, "-m", "minipt2.course.child", str(given)], stdout=out, stderr=out, env=environment,
                                start_new_session=True)


def _processor_seconds(pid: int) -> float:
    """Of a child so far; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICK


def _kill(pid: int) -> None:
    """Ask for a traceback, then end the child with all it started."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _wait(child: Any, report: Path, budget: float) -> bool:
    """Wait for the child to end; False when it had to be killed for taking too long. The clock starts when it is ready."""
    started, ready, base = time.monotonic(), 0.0, 0.0
    while child.poll() is None:
        now = time.monotonic()
        if not ready:
            if report.stat().st_size:
                ready, base = now, _processor_seconds(child.pid)
            late = now - started > _START_S
        else:
            late = _processor_seconds(child.pid) - base > budget or now - ready > budget * _WALL_FACTOR
        if late:
            _kill(child.pid)
            while child.poll() is None:
                time.sleep(0.01)
            return False
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # what it may have left behind
    return True


def check(task: Task, answer: Path, hidden: Sequence[Path] = (), *, examine: bool = True, pytest_arguments: Sequence[str] = ()) -> Outcome:
    """Check the file ``answer`` against the tests of ``task`` (and ``hidden`` ones)."""
    started, answer = time.perf_counter(), answer.resolve()
    problem = lint.examine(task, answer)
    if problem and (examine or problem.kind != "not started"):
        return Outcome(task.id, problem.kind, str(answer), problem.message)
    if "cpu" not in task.targets and importlib.util.find_spec("triton") is None:
        return Outcome(task.id, "inconclusive", str(answer), "cannot be checked here: it needs Triton, whose interpreter runs without a GPU (pip install triton)")
    folder = Path(tempfile.mkdtemp(prefix="minipt2-check-"))
    try:
        report, output = folder / "report.jsonl", folder / "output.txt"
        report.touch()
        output.touch()
        request = {"folder": str(task.folder.resolve()), "answer": str(answer), "tests": [str(task.test_file.resolve())],
                   "hidden": [str(path.resolve()) for path in hidden], "report": str(report), "cache": str(folder / "cache"),
                   "memory_mb": task.memory_mb, "pytest": list(pytest_arguments)}
        child = _start(request, folder, output, "interpreter" in task.targets)
        try:
            in_time = _wait(child, report, task.budget_s)
        except BaseException:  # Ctrl-C among them: nothing stays behind
            _kill(child.pid)
            raise
        events = [json.loads(line) for line in report.read_text().splitlines() if line.endswith("}")]
        outcome = judge(task, answer, events, child.returncode, in_time, output.read_text(errors="replace"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    outcome.seconds = time.perf_counter() - started
    return outcome


def judge(task: Task, answer: Path, events: list[dict[str, Any]], code: int, in_time: bool, output: str) -> Outcome:
    """The verdict on a child that has ended: from what it wrote, and from how it ended."""
    outcome = Outcome(task.id, "pass", str(answer), output=_told(output)[-4000:])
    running: dict[str, Any] = {}
    problems = []
    for event in events:
        kind = event.pop("event")
        if kind == "start":
            running = event
        elif kind == "test":
            outcome.tests.append(test_from(event))
            running = {}
        elif kind == "problem":
            problems.append(event)
    if problems:
        outcome.kind, outcome.message = problems[0]["kind"], problems[0]["message"]
        return outcome
    ended = _ended_badly(task, code, in_time, output, str(answer))
    if ended:
        kind, message = ended
        outcome.tests.append(TestResult(running.get("name", "after the last test" if outcome.tests else "loading"), kind, running.get("says", ""), message, place=_line_of(output, str(answer))))
        outcome.message = message
    outcome.kind = overall([test.kind for test in outcome.tests])
    if not outcome.tests:
        outcome.message = "no test ran: a fault of the course, not yours"
    return outcome


def _ended_badly(task: Task, code: int, in_time: bool, output: str, answer: str) -> tuple[str, str] | None:
    if not in_time:
        return "timeout", f"stopped after {task.budget_s:g} s of processor time: an endless loop, or far too slow"
    if code == -signal.SIGKILL:
        return "out of memory", f"killed by the system, most likely for memory (limit {task.memory_mb} MB)"
    if code < 0:
        return "crash", f"the process died of {signal.Signals(-code).name}: a write or read outside a buffer, most likely in generated C"
    if "MemoryError" in output and code:
        return "out of memory", f"more than {task.memory_mb} MB"
    return ("crash", f"the process ended with code {code}") if code else None


def _told(output: str) -> str:
    """What a child printed, less the frames of pytest and the checker in a traceback that faulthandler wrote (innermost first)."""
    return "\n".join(line for line in output.splitlines() if not _OURS.match(line))


def _line_of(output: str, answer: str) -> str:
    """The innermost line of the student's file in a traceback that faulthandler wrote."""
    for line in output.splitlines():
        if f'File "{answer}", line ' in line:
            number = int(line.split(", line ")[1].split()[0].rstrip(","))
            text = Path(answer).read_text().splitlines()[number - 1].strip()
            return f"{answer}:{number}: {text}"
    return ""
