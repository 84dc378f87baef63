import json
from xml.etree import ElementTree

import pytest

from minipt2.course import grade, regions, tasks
from minipt2.course.verdict import Outcome, TestResult

KNOWN = tasks.all_tasks(tasks.home())
TASK = KNOWN["2.3"]
MIXED = [TestResult("test_a", "pass", seconds=0.5), TestResult("test_b", "wrong value", "Says.", "because", "f(1)", "2", "3 \x00", "answer.py:3: return 3"),
         TestResult("test_c", "pass", hidden=True), TestResult("test_d", "raised", hidden=True)]


@pytest.fixture(scope="module")
def graded():
    return grade.scores(TASK, Outcome("2.3", "wrong value", tests=MIXED)) + grade.scores(KNOWN["2.4"], Outcome("2.4", "not started"))


def test_points_are_shared_among_tests(graded):
    assert grade.total(graded) == (5.0, 20.0)
    assert [r.score for r in graded] == [2.5, 0, 2.5, 0, 0]


@pytest.mark.parametrize("kind", ["crash", "timeout", "out of memory", "vacuous"])
def test_a_run_that_broke_off_scores_nothing(kind):
    """Tests that did not run would else make the others worth more."""
    assert grade.total(grade.scores(TASK, Outcome("2.3", kind, tests=[TestResult("test_a", "pass"), TestResult("test_b", kind)])))[0] == 0


def test_gradescope(graded):
    data = json.loads(grade.gradescope(graded, 12.34))
    assert data["score"] == 5.0 and data["execution_time"] == 12.3 and len(data["tests"]) == 5
    first, second, third, *_ = data["tests"]
    assert first == {"name": "2.3 Code cache: test_a", "score": 2.5, "max_score": 2.5, "status": "passed", "output": "pass", "visibility": "visible"}
    assert second["status"] == "failed" and all(part in second["output"] for part in ("f(1)", "expected: 2", "found: 3", "answer.py:3"))
    assert third["visibility"] == "after_published"


def test_junit(graded):
    root = ElementTree.fromstring(grade.junit(graded).encode())
    suites = root.findall("testsuite")
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [("2.3 Code cache", "4", "2"), ("2.4 Why it recompiled", "1", "1")]
    assert suites[0].find("testcase[@name='test_b']/failure").get("message") == "wrong value"


def test_markdown_keeps_hidden_tests_hidden(graded):
    text = grade.markdown(graded)
    assert "| 2.3 Code cache | 5.0 | 10 | wrong value |" in text and "| **total** | **5.0** | **20** | |" in text
    assert "test_b" in text and "test_d" not in text


def test_chapters_and_exercises_are_chosen():
    class Place:
        tasks = KNOWN
    assert {t.chapter for t in grade.chosen(Place, ["2"])} == {2}
    assert [t.id for t in grade.chosen(Place, ["2.3", "cache"][:1])] == ["2.3"]
    with pytest.raises(tasks.NoSuchExercise):
        grade.chosen(Place, ["99"])


def test_a_stub_differs_from_its_reference_in_every_exercise():
    for task in KNOWN.values():
        assert regions.stub(task.source, task.id) != regions.answer(task.source, task.id)
