import json

from minipt2.course import tasks
from minipt2.course.verdict import Outcome
from minipt2.course.workspace import PROGRESS, Workspace


def test_start_writes_once(tmp_path):
    place = Workspace(tmp_path)
    assert {t.id for t in place.start()} == set(place.tasks)
    answer = place.answer(place.tasks["2.3"])
    answer.write_text("mine")
    assert place.start() == [] and answer.read_text() == "mine"


def test_what_is_read_beside_an_answer(tmp_path):
    """The statement with the titles of what comes before, and the package's file without solutions."""
    place = Workspace(tmp_path)
    task = place.tasks["1.3"]
    place.write_stub(task)
    folder = place.answer(task).parent
    context, readme = (folder / "context.py").read_text(), (folder / "README.md").read_text()
    assert '@op("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")' in context and "tx.jump(instr.target)" in context
    assert "ObservedException as error" not in context.partition("def for_iter")[2].partition("@op")[0]
    assert "`ObservedException`, in `minipt2/dynamo/variables/base.py`" in readme
    assert "Before it: 1.2 Stack step." in readme and "the bodies of `jump_if`, `jump_if_or_pop`, `for_iter`" in readme


def test_progress_survives_and_a_pass_stays(tmp_path):
    place = Workspace(tmp_path)
    place.record(Outcome("2.3", "pass"))
    place.record(Outcome("2.3", "timeout"))
    again = Workspace(tmp_path).state(place.tasks["2.3"])
    assert again == {"kind": "timeout", "checks": 2, "hints": 0, "passed": True}


def test_next_is_what_follows_in_the_course(tmp_path):
    """Whoever solves chapter 4 as an assignment is not sent back to 0.1, but at the end to what is left."""
    place = Workspace(tmp_path)
    place.record(Outcome("4.2", "pass"))
    assert place.next_task().id == "0.1" and place.next_task(place.tasks["4.1"]).id == "4.3"
    assert place.next_task(place.tasks["9.6"]).id == "0.1"


def test_not_started_is_no_attempt(tmp_path):
    place = Workspace(tmp_path)
    place.record(Outcome("2.3", "not started"))
    assert place.state(place.tasks["2.3"])["checks"] == 0


def test_damaged_progress_is_kept_aside(tmp_path):
    for damage in ("{", "[]", '{"exercises": {"2.3": 7}}', '{"exercises": {"2.3": {"kind": "pass"}}}', "\x00\x01"):
        (tmp_path / PROGRESS).write_text(damage)
        place = Workspace(tmp_path)
        assert "damaged" in place.warning and place.progress["exercises"] == {}
        assert (tmp_path / "progress.damaged.json").read_text() == damage


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    place = Workspace(tmp_path)
    place.record(Outcome("2.3", "pass"))
    before = (tmp_path / PROGRESS).read_text()
    monkeypatch.setattr(json, "dumps", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    try:
        place.record(Outcome("2.4", "pass"))
    except KeyboardInterrupt:
        pass
    assert (tmp_path / PROGRESS).read_text() == before


def test_hints_come_in_order_and_are_counted(tmp_path):
    place = Workspace(tmp_path)
    task = place.tasks["2.3"]
    assert [place.hint(task) for _ in range(4)] == [(1, task.hints[0]), (2, task.hints[1]), (3, task.hints[2]), (3, task.hints[2])]
    assert Workspace(tmp_path).state(task)["hints"] == 3


def test_a_copy_of_the_exercises_in_the_folder_goes_first(tmp_path):
    assert tasks.home(tmp_path) == tasks.PACKAGE.parent / "exercises"
    (tmp_path / "exercises" / "2_3_x").mkdir(parents=True)
    (tmp_path / "exercises" / "2_3_x" / "task.toml").write_text("")
    assert tasks.home(tmp_path) == tmp_path / "exercises"
