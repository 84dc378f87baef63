"""What students are given has no solution in it, and the scan that says so finds solutions however they are disguised."""
import ast
import json
import os
import py_compile
import re
import subprocess
import sys
import zipfile

import pytest

from minipt2.course import fingerprints, leaks, regions, similar, starter, tasks

KNOWN = tasks.all_tasks(tasks.home())
LONG = KNOWN["3.4"]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("starter") / "course"
    starter.new(folder, KNOWN.values(), term="Autumn 2026")
    return folder


def test_a_starter_repository_has_no_solution(repository):
    assert leaks.scan(repository, KNOWN) == []


def test_it_has_everything_else(repository):
    for task in KNOWN.values():
        assert (repository / task.slug / "answer.py").read_text() == regions.stub(task.source, task.id)
        assert (repository / "exercises" / task.slug / task.test_file.name).exists()
        assert tasks.load(repository / "exercises" / task.slug).mutants == ()
    for name in ("README.md", "AGENTS.md", "syllabus.toml", "requirements.txt", ".github/workflows/check.yml"):
        assert (repository / name).exists()


def test_students_install_from_where_the_instructor_says(tmp_path, monkeypatch):
    starter.new(tmp_path / "a", [KNOWN["3.4"]], term="t", package="minipt2 @ git+https://example.org/minipt2")
    assert "\nminipt2 @ git+https://example.org/minipt2\n" in (tmp_path / "a" / "requirements.txt").read_text()
    clone = tmp_path / "clone"
    (clone / "minipt2").mkdir(parents=True)
    monkeypatch.setattr(starter, "PACKAGE", clone / "minipt2")
    assert starter.origin() == "minipt2"
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    for address, said in (("/somewhere/here", "minipt2"), ("https://example.org/x.git", "minipt2 @ git+https://example.org/x.git")):
        subprocess.run(["git", "-C", str(clone), "remote", "remove", "origin"], capture_output=True)
        subprocess.run(["git", "-C", str(clone), "remote", "add", "origin", address], check=True)
        assert starter.origin() == said


def test_nothing_is_written_over(repository):
    with pytest.raises(starter.Refused, match="not empty"):
        starter.new(repository, KNOWN.values(), term="x")


def renamed(text):
    """The same program with other names and layout."""
    names = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
    for k, name in enumerate(sorted(n for n in names if n in ("node", "pending", "network", "needed", "argument"))):
        text = re.sub(rf"\b{name}\b", f"other{k}", text)
    return text.replace(", ", " ,  ").replace("'", '"') + "\n# mine\n"


ANSWER = regions.answer(LONG.source, LONG.id)
NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": renamed(ANSWER).splitlines(True)}], "nbformat": 4})
PLACES = {
    "answer.py": renamed(ANSWER), "notes.md": f"Look:\n\n```python\n{renamed(ANSWER)}```\n", "book.ipynb": NOTEBOOK,
    "page.html": "<pre>" + ANSWER.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") + "</pre>",
    "quoted.txt": "\n".join("> " + line for line in ANSWER.splitlines()),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_disguised_solution_is_found(tmp_path, name):
    (tmp_path / name).write_text(PLACES[name])
    assert ("3.4" in {leak.task for leak in leaks.scan(tmp_path, KNOWN)}) and leaks.scan(tmp_path, KNOWN)[0].place == name


def test_bytecode_and_history_are_searched(tmp_path):
    source = tmp_path / "m.py"
    source.write_text(LONG.source)
    py_compile.compile(str(source), str(tmp_path / "m.pyc"), doraise=True)
    source.unlink()
    assert {leak for leak in leaks.scan(tmp_path, KNOWN) if leak.task == "3.4"} == {leaks.Leak("m.pyc", "3.4")}
    (tmp_path / "m.pyc").unlink()
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a.py").write_text(ANSWER)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "oops"], check=True)
    subprocess.run([*git, "rm", "-q", "a.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "gone"], check=True)
    assert {leak.place for leak in leaks.scan(tmp_path, KNOWN)} == {"git history"}


def test_fingerprints():
    mark = fingerprints.of_text
    assert mark("total = sum(a * b for a, b in zip(xs, ys)) + 1") == mark("t  =  sum(p*q for p,q in zip(u , v))+1  # same")
    assert mark("total = sum(a * b for a, b in zip(xs, ys)) + 1") != mark("total = sum(a + b for a, b in zip(xs, ys)) + 1")
    assert mark("x = 1") == set()


def test_similar_submissions_are_listed(tmp_path):
    code = "def f(xs):\n    out = [x * 2 + k for k, x in enumerate(xs) if x > 3]\n    best = max(out, key=lambda v: (v % 7, -v, str(v)))\n    return best, [o - best for o in out if o != best]\n"
    other = "def f(xs):\n    table = {x: sorted(y for y in xs if y % x == 0) for x in xs}\n    return max(table.items(), key=lambda kv: (len(kv[1]), kv[0] * 3))\n"
    for name, text in (("ann", code), ("bob", code.replace("out", "res").replace("best", "top")), ("cy", other)):
        (tmp_path / name / "2_3").mkdir(parents=True)
        (tmp_path / name / "2_3" / "answer.py").write_text(text)
    found = similar.pairs(tmp_path, KNOWN)
    assert [(p.a, p.b) for p in found] == [("ann", "bob")] and found[0].likeness == 1.0


def test_autograder_grades_with_its_own_tests(tmp_path):
    """Unpacked and run as the service would run it: the submission's own tests do not count, private variants do."""
    variants = tmp_path / "private"
    variants.mkdir()
    (variants / "test_2_3.py").write_text(
        "from minipt2.dynamo.cache import CodeCache\n\n\ndef test_private():\n    \"\"\"Empty.\"\"\"\n    assert CodeCache(3).lookup({}) is None\n")
    names = starter.autograder(tmp_path / "hw.zip", [KNOWN["2.3"], KNOWN["2.4"]], variants)
    assert {"setup.sh", "run_autograder", "variants/test_2_3.py", "minipt2/minipt2/__init__.py", "minipt2/pyproject.toml"} <= set(names)
    with zipfile.ZipFile(tmp_path / "hw.zip") as archive:
        archive.extractall(tmp_path / "source")
        assert archive.getinfo("run_autograder").external_attr >> 16 & 0o111
    submission = tmp_path / "submission" / "uploaded"
    starter.new(submission, [KNOWN["2.3"], KNOWN["2.4"]], term="t")
    (submission / "exercises" / "2_3_code_cache" / "test_2_3.py").write_text("def test_always():\n    pass\n")
    (submission / "2_3_code_cache" / "answer.py").write_text(regions.answer(KNOWN["2.3"].source, "2.3"))
    installed(tmp_path)
    ran = subprocess.run(["bash", tmp_path / "source" / "run_autograder"], capture_output=True, text=True, env={**os.environ, "AUTOGRADER_ROOT": str(tmp_path)}, timeout=250)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    results = json.loads((tmp_path / "results" / "results.json").read_text())
    assert results["score"] == 10.0 and sum(t["max_score"] for t in results["tests"]) == pytest.approx(20.0, abs=0.01)
    assert [t["name"].split(": ")[1] for t in results["tests"] if t["visibility"] == "after_published"] == ["test_private"]
    assert len(results["tests"]) > 10


def installed(root):
    """What ``setup.sh`` leaves, without installing: the command runs the package that came in the zip."""
    script = root / "venv" / "bin" / "minipt2"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{root}/source/minipt2" exec "{sys.executable}" -m minipt2 "$@"\n')
    script.chmod(0o755)


def test_classroom50_bundle(tmp_path):
    """Run in a checkout, with the runner's environment."""
    names = starter.autograder(tmp_path / "hw.zip", [KNOWN["2.4"]], kind="classroom50")
    assert "autograder.py" in names and "run_autograder" not in names
    with zipfile.ZipFile(tmp_path / "hw.zip") as archive:
        archive.extractall(tmp_path / "bundle")
    checkout = tmp_path / "checkout"
    (checkout / "2_4_explain").mkdir(parents=True)
    (checkout / "2_4_explain" / "answer.py").write_text(regions.answer(KNOWN["2.4"].source, "2.4"))
    runner = {"CLASSROOM": "c", "ASSIGNMENT": "hw", "SUBMISSION_TAG": "submit/1", "COMMIT_URL": "u/c", "RELEASE_URL": "u/r"}
    env = {**os.environ, **runner, "MINIPT2_INSTALLED": "1", "PYTHONPATH": str(tmp_path / "bundle" / "minipt2")}
    ran = subprocess.run([sys.executable, tmp_path / "bundle" / "autograder.py"], cwd=checkout, capture_output=True, text=True, env=env, timeout=250)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    result = json.loads((checkout / "result.json").read_text())
    assert result["schema"] == "classroom50/result/v1" and result["classroom"] == "c" and result["review"] == "u/c"
    assert result["tests"] == [{"test-name": f"2.4 {KNOWN['2.4'].title}", "passed": True, "score": 10, "max-score": 10}]
    assert (result["score"], result["max-score"]) == (10, 10)


def test_scripts_are_programs(tmp_path):
    """Of every format, for one exercise and for several, with an interpreter among what is needed or not."""
    for kind, scripts in starter.FORMATS.items():
        for ids in (["2.3"], ["2.3", "6.4"]):
            starter.autograder(tmp_path / "a.zip", [KNOWN[i] for i in ids], kind=kind)
            with zipfile.ZipFile(tmp_path / "a.zip") as archive:
                for name in scripts:
                    text = archive.read(name).decode()
                    assert "IDS" not in text and "PACKAGES" not in text
                    assert ("triton" in text) == (len(ids) > 1 and name in ("setup.sh", "autograder.py"))
                    if name.endswith(".py"):
                        compile(text, name, "exec")
                    else:
                        subprocess.run(["bash", "-n"], input=text, text=True, check=True)


def test_variants_of_no_exercise_are_refused(tmp_path):
    (tmp_path / "test_9_9.py").write_text("")
    with pytest.raises(starter.Refused, match="test_9_9"):
        starter.autograder(tmp_path / "x.zip", [KNOWN["2.3"]], tmp_path)
