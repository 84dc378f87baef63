"""One run of ``learn check --all`` over answers that go wrong in every way there is."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minipt2.course import learn, regions, tasks, verdict

KNOWN = tasks.all_tasks(tasks.home())
BASE = KNOWN["2.3"]


def body(*lines):
    """The reference's file with these lines as the body."""
    return regions.stub(BASE.source, "2.3").replace("        # >>> 2.3\n", "        # >>> 2.3\n" + "".join(f"        {line}\n" for line in lines))


GOOD = regions.answer(BASE.source, "2.3")
SEGFAULT = (
    "import ctypes, subprocess, tempfile",
    "folder = tempfile.mkdtemp()",
    "open(folder + '/k.c', 'w').write('void k(float *x) { for (long i = 0; ; i++) x[i] = 1; }')",
    "subprocess.run(['cc', '-shared', '-fPIC', '-o', folder + '/k.so', folder + '/k.c'], check=True)",
    "ctypes.CDLL(folder + '/k.so').k(ctypes.c_void_p(64))",
)
SPIN_IN_C = (
    "import ctypes, subprocess, tempfile",
    "folder = tempfile.mkdtemp()",
    "open(folder + '/k.c', 'w').write('void k(volatile int *x) { while (!*x) {} }')",
    "subprocess.run(['cc', '-shared', '-fPIC', '-o', folder + '/k.so', folder + '/k.c'], check=True)",
    "ctypes.PyDLL(folder + '/k.so').k((ctypes.c_int * 1)())",
)
ANSWERS = {
    "good": (GOOD, "pass"),
    "stub": (regions.stub(BASE.source, "2.3"), "not started"),
    "wrong": (body("return None"), "wrong value"),
    "raises": (body("return self.nothing_like_this"), "raised"),
    "loop": (body("while True:", "    pass"), "timeout"),
    "loop_in_c": (body(*SPIN_IN_C), "timeout"),
    "segfault": (body(*SEGFAULT), "crash"),
    "exit": (body("import os", "os._exit(3)"), "crash"),
    "memory": (body("return bytearray(1 << 42)"), "out of memory"),
    "syntax": (body("return ("), "syntax error"),
    "import": (GOOD.replace("import annotations\n", "import annotations\nimport no_such_module_at_all\n"), "import error"),
    "missing": (GOOD.replace("def lookup", "def look_up"), "import error"),
    "signature": (GOOD.replace("f_locals: dict", "scope: dict"), "bad signature"),
    "forbidden": (GOOD.replace("import annotations\n", "import annotations\nimport torch._inductor\n"), "forbidden import"),
    "toplevel": (GOOD + "\nraise SystemExit(0)\n", "raised"),
}


SCRIPT = """
import dataclasses, json, pathlib, sys
from minipt2.course import process, show, tasks
task = tasks.all_tasks(tasks.home())["2.3"]
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.py")):
    outcome = process.check(dataclasses.replace(task, budget_s=2 if "loop" in path.name else 30), path)
    print(json.dumps(show.as_data(outcome)))
"""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """Answer to what the checker says of it; all of them checked by one process, one after the other."""
    folder = tmp_path_factory.mktemp("answers")
    for name, (text, _) in ANSWERS.items():
        (folder / f"{name}.py").write_text(text)
    env = {**os.environ, "PYTHONPATH": str(tasks.PACKAGE.parent), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, env=env, timeout=250)
    assert ran.returncode == 0, ran.stderr
    return {Path(v["file"]).stem: v for v in map(json.loads, ran.stdout.splitlines())}


@pytest.mark.parametrize("name", ANSWERS)
def test_kind(verdicts, name):
    assert verdicts[name]["kind"] == ANSWERS[name][1], verdicts[name]


def failing(verdict):
    return next(test for test in verdict["tests"] if test["kind"] != "pass")


def test_every_test_ran_on_the_good_one(verdicts):
    assert len(verdicts["good"]["tests"]) > 10 and all(t["kind"] == "pass" for t in verdicts["good"]["tests"])


def test_a_wrong_value_shows_call_and_test(verdicts):
    test = next(t for t in verdicts["wrong"]["tests"] if t["name"] == "test_every_entry_can_be_hit[3]")
    assert "CodeCache.lookup(" in test["call"] and "'n': 3" in test["call"] and "n = 3" in test["message"]


@pytest.mark.parametrize("name, line", [("raises", "return self.nothing_like_this"), ("loop", "pass"), ("segfault", "ctypes.CDLL")])
def test_the_students_line_is_named(verdicts, name, line):
    place = failing(verdicts[name])["place"]
    assert f"{name}.py:" in place and (line in place or name == "loop" and "while True:" in place), verdicts[name]


def test_a_loop_in_c_is_killed_and_its_caller_named(verdicts):
    assert "k((ctypes.c_int * 1)())" in failing(verdicts["loop_in_c"])["place"]


def test_a_crash_is_told_without_the_checkers_own_frames(verdicts):
    said = verdicts["segfault"]["output"]
    assert "Segmentation fault" in said and "segfault.py" in said and not any(part in said for part in ("pluggy", "course/child.py", "Extension modules"))


def test_syntax_error_shows_line_and_caret(verdicts):
    assert "return (" in verdicts["syntax"]["message"] and "^" in verdicts["syntax"]["message"]


@pytest.mark.parametrize("name, parts", [
    ("import", ["no_such_module_at_all"]), ("missing", ["CodeCache.lookup"]), ("signature", ["scope", "f_locals"]),
    ("forbidden", ["torch._inductor", "minipt2.inductor"])])
def test_messages_name_what_is_wrong(verdicts, name, parts):
    assert all(part in verdicts[name]["message"] for part in parts)


def test_exit_codes_are_those_of_the_table():
    outcomes = [verdict.Outcome("1.1", kind) for kind in verdict.EXIT_CODES]
    assert [o.exit_code for o in outcomes] == list(verdict.EXIT_CODES.values())
    assert verdict.exit_code([verdict.Outcome("1.1", "not started"), verdict.Outcome("1.2", "pass")]) == 0
    assert verdict.exit_code([verdict.Outcome("1.1", "not started")]) == 2
    assert verdict.exit_code([verdict.Outcome("1.1", "pass"), verdict.Outcome("1.2", "timeout")]) == 4


def test_command_line(tmp_path, capsys):
    """start, check, reset by their output and exit codes."""
    folder = tmp_path / "course"
    assert learn.main(["start", str(folder)]) == 0
    answer = folder / BASE.slug / "answer.py"
    assert answer.read_text() == regions.stub(BASE.source, "2.3")
    assert learn.main(["--dir", str(folder), "check", "2.3"]) == 2
    answer.write_text(GOOD)
    offline = {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
    env = {**os.environ, "PYTHONPATH": str(tasks.PACKAGE.parent), "OMP_NUM_THREADS": "1", **offline}
    ran = subprocess.run([sys.executable, "-m", "minipt2", "learn", "check", "2.3"], cwd=folder, capture_output=True, text=True, env=env, timeout=250)
    assert ran.returncode == 0 and f"checked {answer}" in ran.stdout and "\x1b" not in ran.stdout, ran.stdout + ran.stderr
    progress = json.loads((folder / "progress.json").read_text())
    assert progress["exercises"]["2.3"]["passed"] and progress["exercises"]["2.3"]["checks"] == 1
    assert learn.main(["--dir", str(folder), "reset", "2.3"]) == 0
    assert answer.read_text() == regions.stub(BASE.source, "2.3")
    assert [p.read_text() for p in answer.parent.glob("answer.*.bak.py")] == [GOOD]
    capsys.readouterr()


@pytest.mark.parametrize("command, parts", [
    (["list"], ["2.3", "not started", "Code cache"]), (["hint", "2.3"], ["hint 1 of 3"]), (["status"], ["0 of ", "next: minipt2 learn check"]),
    (["doctor"], ["ok Python", "C compiler"])])
def test_what_commands_say(tmp_path, capsys, command, parts):
    assert learn.main(["--dir", str(tmp_path), *command]) == 0
    said = capsys.readouterr().out
    assert all(part in said for part in parts), said


def test_all_counts_what_was_not_begun(tmp_path, capsys):
    assert learn.main(["start", str(tmp_path)]) == 0
    capsys.readouterr()
    assert learn.main(["--dir", str(tmp_path), "check", "--all"]) == 2
    counted, following = capsys.readouterr().out.splitlines()
    assert counted == f"0 of 0 pass, {len(KNOWN)} not started" and "next: 0.1 Record" in following


def test_an_exercise_that_does_not_exist(tmp_path, capsys):
    assert learn.main(["--dir", str(tmp_path), "check", "77.1"]) == 64
    assert "77.1" in capsys.readouterr().out
