"""The process in which a student's answer runs: bind it, run the tests under pytest, write one line of JSON for each thing that happens.

It may be killed, run out of memory or crash at any moment; what is written by then stands. The parent (``process``) owns the verdict.
"""
from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Iterator, TextIO

import networkx  # noqa: F401  what compiling imports late is loaded before the fork, once for all checks
import pytest
import torch

from .. import inductor  # noqa: F401
from ..backends import stored  # noqa: F401
from ..config import config
from ..errors import BackendError
from . import tasks
from .bind import BadAnswer, Calls, bind
from .checks import Wrong
from .verdict import TestResult


class Report:
    """Lines of JSON, each flushed at once."""

    def __init__(self, out: TextIO):
        self.out = out

    def write(self, event: str, **data: Any) -> None:
        self.out.write(json.dumps({"event": event, **data}) + "\n")
        self.out.flush()


def place_in(path: str, error: BaseException) -> str:
    """The innermost line of the student's file that ``error`` passed through: ``file:line: text``."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if frame.filename == path:
                return f"{path}:{frame.lineno}: {frame.line}"
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return ""


def kind_of(error: BaseException, number: str) -> str:
    """The kind of verdict that an exception of a test means."""
    text = str(error)
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, NotImplementedError) and str(chain).startswith(number + " "):
            return "not started"
        chain = chain.__cause__ or chain.__context__
    if isinstance(error, Wrong):
        return error.kind
    if isinstance(error, AssertionError):
        return "wrong value"
    if isinstance(error, MemoryError) or "allocate memory" in text:
        return "out of memory"
    if isinstance(error, BackendError) and "the C compiler failed" in text:
        return "compiler error"
    return "raised"


class Plugin:
    """Listens to pytest and writes a TestResult for each test."""

    def __init__(self, report: Report, calls: Calls, path: str, number: str, hidden: set[str]):
        self.report, self.calls, self.path, self.number, self.hidden = report, calls, path, number, hidden
        self.errors: dict[str, BaseException] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before, start = self.calls.count, time.perf_counter()
        self.calls.last = ""
        says = (getattr(item.function, "__doc__", "") or "").strip().split("\n")[0]  # type: ignore[attr-defined]
        self.report.write("start", name=item.name, says=says)
        yield
        error = self.errors.get(item.nodeid)
        seconds, hidden = time.perf_counter() - start, os.path.abspath(item.path) in self.hidden
        if error is None:
            vacuous = self.calls.count == before
            result = TestResult(item.name, "vacuous" if vacuous else "pass", says, seconds=seconds, hidden=hidden,
                                message="passes without calling the exercise's function: a fault of the course" if vacuous else "")
        else:
            result = TestResult(item.name, kind_of(error, self.number), says, _message(error), self.calls.last, seconds=seconds, hidden=hidden,
                                expected=getattr(error, "expected", ""), found=getattr(error, "found", ""), place=place_in(self.path, error))
        self.report.write("test", **vars(result))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
        yield
        if call.excinfo is not None and not isinstance(call.excinfo.value, pytest.skip.Exception):
            self.errors.setdefault(item.nodeid, call.excinfo.value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.report.write("problem", kind="vacuous", message=f"the course's tests cannot be read:\n{report.longreprtext[-2000:]}")

    @pytest.fixture(autouse=True)
    def loud(self) -> Iterator[None]:
        """Internal faults raise instead of falling back to eager, and no test sees what another compiled."""
        import minipt2
        minipt2.reset()
        with config.patch(raise_internal_errors=True, disk_cache=False):
            yield


def _message(error: BaseException) -> str:
    if isinstance(error, Wrong):
        return error.message
    text = str(error).strip()
    if isinstance(error, AssertionError):
        return text[:2000]
    if isinstance(error, NameError) and not isinstance(error, UnboundLocalError):
        text += " (answer.py sees its own names, those of context.py and what README.md lists; methods are called on their object)"
    return f"{type(error).__name__}: {text}"[:2000]


@functools.cache
def warm_up() -> None:
    """Before the first fork: what torch and minipt2 only load when they compile for the first time."""
    import minipt2
    minipt2.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1, requires_grad=True))
    torch.ones(1, device="meta") + 1
    minipt2.reset()


def limit_memory(megabytes: int) -> None:
    """No more than this beside what is mapped already (where the system can say how much that is)."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        mapped = int(statm.read_text().split()[0]) * resource.getpagesize()
        with contextlib.suppress(ValueError):  # a lower hard limit holds
            resource.setrlimit(resource.RLIMIT_AS, (mapped + (megabytes << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))


def run(request: dict[str, Any]) -> None:
    """Check one answer. ``request``: folder of the exercise, answer, tests, hidden tests, report file, cache folder, memory_mb."""
    with open(request["report"], "a") as out:
        report, path = Report(out), request["answer"]
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=False)
        sys.dont_write_bytecode = True
        task = tasks.load(Path(request["folder"]))
        limit_memory(request["memory_mb"])
        config.cache_dir = request["cache"]
        report.write("ready")
        try:
            calls = bind(task, Path(path))
        except (BadAnswer, ImportError) as error:
            return report.write("problem", kind="import error", message=f"{_message(error)}\n{place_in(path, error)}".strip())
        except BaseException as error:  # whatever the student's own top level raises, SystemExit too
            return report.write("problem", kind="raised", message=f"{_message(error)}\n{place_in(path, error)}".strip())
        files = [*request["tests"], *request["hidden"]]
        plugin = Plugin(report, calls, path, task.id, {os.path.abspath(f) for f in request["hidden"]})
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        pytest.main([*files, "-q", "-s", "-p", "no:cacheprovider", "-p", "no:faulthandler", "-c", os.devnull, "--import-mode=importlib",
                     "--rootdir", str(task.folder), "--tb=no", "--no-header", *request.get("pytest", [])], plugins=[plugin])
        report.write("done")


if __name__ == "__main__":
    run(json.loads(Path(sys.argv[1]).read_text()))
