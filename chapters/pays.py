"""What each chapter contributes, many times in a row: ``python -m chapters.pays [--runs 10] [--controls] [--json site/results/chapters_cpu.json]``.

Runs the speed-up tests (``tests/chapters``, marker ``speed``), every run in a fresh process, and prints chapter x model x run. A test that has decided
nothing is ``?``, never green. ``--controls``: also the same tests with both sides compiled alike, which must not pass. On a machine of its own: a run
takes about four minutes, six with controls.
"""
from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
TESTS = ("tests/chapters/test_speed.py", "tests/chapters/test_speed_totals.py")
COMPARED = {
    0: "eager, over compiled", 1: "a graph break before every block, over one graph", 2: "captured anew at every call, over guarded code",
    3: "training with the backward graph run by eager kernels, over compiled", 4: "softmax, norms and activations as library calls, over decomposed",
    5: "training with a loop and a buffer for every prim, over fused", 6: "the C library's functions in the loops, over our own text",
    7: "products and convolutions by the library, over whichever won the race", 8: "compiled for each size, over compiled for any (compiling included)",
    9: "gradients sent at the end, over sent while the backward runs (a link that takes 0.6 of a step)",
}
"""What stands on both sides of each chapter's ratio."""
MARKS = {"passed": "p", "failed": "F", "inconclusive": "?"}
DECISION = re.compile(r"(?P<verdict>\w+) (?P<median>[\d.]+) \[(?P<low>[\d.]+), (?P<high>[\d.]+)\] floor (?P<floor>[\d.]+) rounds (?P<rounds>\d+)")


class Result(NamedTuple):
    """One test of one run."""

    state: str
    said: str
    seconds: float


def once(expression: str) -> dict[str, Result]:
    """All speed-up tests whose names match ``expression``, in a process of their own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    with tempfile.NamedTemporaryFile(suffix=".xml") as report:
        command = [sys.executable, "-m", "pytest", "-q", "-m", "speed", "-k", expression, "-p", "no:cacheprovider", f"--junitxml={report.name}", *TESTS]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        try:
            cases = list(ElementTree.parse(report.name).getroot().iter("testcase"))
        except ElementTree.ParseError:
            sys.stderr.write(ran.stdout[-2000:] + ran.stderr[-2000:])
            return {}
    return {case.get("name", ""): _result(case) for case in cases}


def _result(case: ElementTree.Element) -> Result:
    failed = case.find("failure") is not None or case.find("error") is not None
    state = "failed" if failed else "inconclusive" if case.find("skipped") is not None else "passed"
    said = next((p.get("value", "") for p in case.iter("property") if p.get("name") == "decision"), "")
    return Result(state, said or next((e.get("message", "")[:200] for e in case if e.get("message")), ""), float(case.get("time", 0)))


def case_of(name: str) -> tuple[int, str, bool]:
    """(chapter, model, whether it is a control) of a test's name."""
    found = re.match(r"test_chapter_(\d)_pays\[(\w+)-", name) or re.match(r"test_\w+\[(\d)-(\w+)\]", name)
    assert found is not None, name
    return int(found[1]), found[2], "disconnected" in name


def record(table: dict[str, list[Result]], seconds: list[float]) -> dict[str, Any]:
    """What is kept of all runs: a row for each chapter and model."""
    rows = []
    for name in sorted(table, key=lambda name: (case_of(name)[2], case_of(name)[:2])):
        chapter, model, control = case_of(name)
        decided = [found for r in table[name] if (found := DECISION.match(r.said))]
        medians = sorted(float(d["median"]) for d in decided)
        if medians:
            rows.append({"chapter": chapter, "model": model, "control": control,
                         "median": medians[len(medians) // 2], "lowest": medians[0], "highest": medians[-1],
                         "low": min(float(d["low"]) for d in decided), "high": max(float(d["high"]) for d in decided),
                         "floor": float(decided[0]["floor"]), "runs": "".join(MARKS[r.state] for r in table[name])})
    import torch
    machine = f"torch {torch.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
    return {"machine": machine, "date": time.strftime("%Y-%m-%d"), "seconds a run": [round(s) for s in seconds], "rows": rows}


def green(rows: list[dict[str, Any]], runs: int) -> list[int]:
    """Chapters whose tests passed on all their models in every run."""
    marks: dict[int, list[str]] = defaultdict(list)
    for row in rows:
        if not row["control"]:
            marks[row["chapter"]].append(row["runs"])
    return [chapter for chapter, each in sorted(marks.items()) if all(m == "p" * runs for m in each)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m chapters.pays", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--only", default="", help="a pytest -k expression: only these")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    expression = ("pay" if args.controls else "pays") + (f" and ({args.only})" if args.only else "")
    table: dict[str, list[Result]] = defaultdict(list)
    seconds: list[float] = []
    for run in range(args.runs):
        start, found = time.perf_counter(), once(expression)
        seconds.append(time.perf_counter() - start)
        print(f"run {run + 1}: {seconds[-1]:.0f} s", flush=True)
        for name, result in found.items():
            table[name].append(result)
            print(f"  {MARKS[result.state]} {name:48} {result.said}  {result.seconds:.0f} s", flush=True)
        data = record(table, seconds)
        if args.json:
            args.json.write_text(json.dumps(data, indent=1) + "\n")
    print(f"\n{'chapter':8}{'model':14}{'':8}{'runs':{args.runs + 2}}median (lowest, highest), floor")
    for row in data["rows"]:
        print(f"{row['chapter']:<8}{row['model']:14}{'control' * row['control']:8}{row['runs']:{args.runs + 2}}"
              f"{row['median']:.3f} ({row['lowest']:.3f}, {row['highest']:.3f}), {row['floor']}")
    passed = green(data["rows"], args.runs)
    print(f"{len(passed)} chapters show a contribution on both models in all {args.runs} runs: {', '.join(map(str, passed))}; "
          f"a run takes {sum(seconds) / len(seconds):.0f} s")
    return 0 if len(passed) >= 8 else 1


if __name__ == "__main__":
    sys.exit(main())
