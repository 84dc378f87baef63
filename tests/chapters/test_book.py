"""The course's text: what it shows is there, what it claims is true, its demos run."""
import json
import re

import pytest

from chapters import book

CHAPTERS = book.chapters()
ids = [c.folder.name for c in CHAPTERS]


def test_ten_chapters_in_order():
    assert [c.number for c in CHAPTERS] == list(range(10)) and all(re.match(r"\d · ", c.title) for c in CHAPTERS)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_what_the_text_claims_is_what_comes_out(chapter, fresh):
    wrong = [f"line {c.line}: says {c.said!r}, found {c.found!r}" for c in chapter.run() if c.said != c.found]
    assert not wrong, "python -m chapters.book write puts in what comes out; read what it changed"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_code_that_is_shown_exists(chapter):
    for found in book.DIRECTIVE.finditer(chapter.text):
        if found["kind"] == "code":
            text, line = book.code_of(found["what"])
            assert line > 0 and len(text.splitlines()) < 80, f"{found['what']} is too long to be read in a chapter"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_every_block_is_executed_or_says_what_it_is(chapter):
    kinds = {found["info"] for found in book.FENCE.finditer(chapter.text)}
    assert kinds <= {"python run", "text output", "predict", "sh"}


@pytest.mark.parametrize("chapter", CHAPTERS, ids=ids)
def test_notebook_has_every_program_in_order(chapter):
    cells = book.notebook(chapter)["cells"]
    programs = [f["body"].rstrip("\n") for f in book.FENCE.finditer(chapter.text) if f["info"] == "python run"]
    assert ["".join(c["source"]) for c in cells if c["cell_type"] == "code"] == programs
    assert len({c["id"] for c in cells}) == len(cells)
    assert "<!--" not in "".join("".join(c["source"]) for c in cells)


def made(tmp_path, text: str) -> book.Chapter:
    folder = book.ROOT / "chapters"
    chapter = book.Chapter(folder / "99_test")
    chapter.__dict__["text"] = text
    return chapter


def test_a_wrong_number_and_a_wrong_output_are_found(tmp_path):
    text = "# t\n\n```python run\nn = 3\nprint(n)\n```\n\n```text output\n4\n```\n\nThere are **5**<!--= n --> of them, in `2`<!--= n + 1 -->.\n"
    claims = made(tmp_path, text).run()
    assert [(c.line, c.said.strip(), c.found.strip()) for c in claims] == [(8, "4", "3"), (12, "5", "3"), (12, "2", "4")]


def test_predictions_are_computed(tmp_path):
    text = "# t\n\n```python run\nn = 3\n```\n\n```predict\nquestion: How many?\nanswer: n + 1\nis: 5\nbecause: so\n```\n"
    (claim,) = made(tmp_path, text).run()
    assert (claim.said, claim.found) == ("5", "4") and text[claim.start:claim.end] == "5"


def test_errors_name_the_line_of_the_chapter(tmp_path):
    with pytest.raises(ZeroDivisionError) as raised:
        made(tmp_path, "# t\n\n```python run\nx = 1\n1 / 0\n```\n").run()
    assert raised.traceback[-1].lineno + 1 == 5 and str(raised.traceback[-1].path).endswith("99_test/README.md")


def test_code_by_name():
    text, line = book.code_of("minipt2/aot_autograd/partition.py::min_cut")
    assert text.startswith("def min_cut(") and text.rstrip().endswith(")") and line > 1
    assert book.code_of("minipt2/trace.py::STAGES")[0].startswith("STAGES")
    assert "def lookup" in book.code_of("minipt2/dynamo/cache.py::CodeCache.lookup")[0]
    with pytest.raises(LookupError):
        book.code_of("minipt2/trace.py::nothing")


def test_what_students_write_is_behind_a_fold():
    """Shown at first without its body, in pages and in notebooks; whole in the fold."""
    from chapters import hooks

    place = "minipt2/course/toy.py::Recorder"
    outline, numbers = book.outline_of(place)
    assert numbers == ["0.1"] and "self.calls.append" not in outline and outline.endswith("...  # exercise 0.1")
    shown, _, folded = hooks._code(place).partition("???")
    assert "self.calls.append" not in shown and "    self.calls.append" in folded and "exercise 0.1" in folded
    assert "???" not in hooks._code("minipt2/trace.py::STAGES")
    texts = ["".join(c["source"]) for c in book.notebook(CHAPTERS[0])["cells"]]
    shown, _, folded = next(t for t in texts if place in t).partition("<details>")
    assert "self.calls.append" not in shown and "self.calls.append" in folded


def test_notebooks_are_written(tmp_path):
    files = book.write_notebooks(tmp_path)
    assert len(files) == 10 and all(json.loads(f.read_text())["nbformat"] == 4 for f in files)
