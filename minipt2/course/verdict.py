"""What a check can end with: the kinds, their exit codes, and the results of tests. Plain data, written and read as JSON."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

EXIT_CODES = {
    "pass": 0, "wrong value": 1, "wrong shape": 1, "wrong dtype": 1, "wrong stride": 1, "input mutated": 1, "raised": 1, "compiler error": 1,
    "not started": 2,
    "syntax error": 3, "import error": 3, "bad signature": 3, "forbidden import": 3,
    "timeout": 4, "crash": 5, "out of memory": 6, "inconclusive": 7, "vacuous": 70,
}
"""Kind of verdict to the exit code of ``minipt2 learn check``."""

_WORST_FIRST = ("vacuous", "out of memory", "crash", "timeout", "forbidden import", "bad signature", "import error", "syntax error")


@dataclass
class TestResult:
    """One test. ``call``, ``expected`` and ``found`` are text for the learner; ``place`` is a line of the learner's file."""

    name: str
    kind: str
    says: str = ""
    message: str = ""
    call: str = ""
    expected: str = ""
    found: str = ""
    place: str = ""
    seconds: float = 0.0
    hidden: bool = False

    @property
    def passed(self) -> bool:
        return self.kind == "pass"

    __test__ = False  # not a test class, whatever pytest thinks of its name


@dataclass
class Outcome:
    """Verdict on one exercise."""

    task: str
    kind: str
    file: str = ""
    message: str = ""
    tests: list[TestResult] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""

    @property
    def passed(self) -> bool:
        return self.kind == "pass"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]


def overall(kinds: list[str]) -> str:
    """One kind for several tests: pass only if all pass, else the gravest, else the first that is not a pass."""
    for kind in _WORST_FIRST:
        if kind in kinds:
            return kind
    return next((kind for kind in kinds if kind != "pass"), "pass" if kinds else "vacuous")


def exit_code(outcomes: list[Outcome]) -> int:
    """Of a run over several exercises; those not started do not count unless nothing else was checked."""
    started = [o for o in outcomes if o.kind != "not started"]
    return max((o.exit_code for o in started), default=2 if outcomes else 0)


def test_from(data: dict[str, Any]) -> TestResult:
    return TestResult(**data)
