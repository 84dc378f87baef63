"""The site's own pages: programs in them run, links between them lead somewhere, directives name what exists."""
import re

import pytest

from chapters import book
from chapters.figures import FIGURES, TABLES
from minipt2.course import process, regions, tasks
from minipt2.report import reference

SITE = book.ROOT / "site"
PAGES = sorted(p for p in SITE.rglob("*.md") if p.parent.name != "breaks" and p.name != "backend.md")  # those have tests of their own
ids = [p.relative_to(SITE).as_posix() for p in PAGES]
COMPLETE = ("start.md", "debugging.md")
"""Pages whose Python blocks are whole programs, read from top to bottom."""
BUILT = {name for name in reference.PAGES} | {f"chapters/{c.folder.name}.md" for c in book.chapters()}


@pytest.mark.parametrize("page", [SITE / name for name in COMPLETE], ids=COMPLETE)
def test_programs_run(page, fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    text = page.read_text()
    for found in book.FENCE.finditer(text):
        if found["info"] == "python":
            line = text.count("\n", 0, found.start()) + 1
            exec(compile("\n" * line + found["body"], str(page), "exec"), namespace)
    assert page.name != "start.md" or (tmp_path / "report.html").stat().st_size > 1000


def test_the_private_variant_of_the_page_for_instructors_grades(tmp_path):
    """As an autograder runs it: beside the visible tests, on an answer; the reference passes, wrong prices do not."""
    (block,) = [f for f in book.FENCE.finditer((SITE / "teach.md").read_text()) if f["info"].startswith("python")]
    task = tasks.all_tasks(tasks.home())["3.4"]
    (tmp_path / "test_3_4.py").write_text(block["body"])
    answer = tmp_path / "answer.py"
    reference = regions.answer(task.source, "3.4")
    for text, good in ((reference, True), (reference.replace("capacity=cost(node)", "capacity=1.0 + cost(node)"), False)):
        answer.write_text(text)
        outcome = process.check(task, answer, [tmp_path / "test_3_4.py"], examine=False)
        (hidden,) = [t for t in outcome.tests if t.hidden]
        assert hidden.name == "test_prices_of_this_term" and outcome.passed is good, outcome


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_fences_are_programs_or_shell(page):
    assert {f["info"].split()[0] for f in book.FENCE.finditer(page.read_text())} <= {"python", "sh"}


def targets(text):
    return [t for t in re.findall(r"\]\(([^)#\s]+\.md)", re.sub(r"`[^`]*`", "", text))]


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_lead_somewhere(page):
    for target in targets(page.read_text()):
        place = (page.parent / target).resolve()
        assert place.exists() or place.relative_to(SITE).as_posix() in BUILT, target


@pytest.mark.parametrize("chapter", book.chapters(), ids=lambda c: c.folder.name)
def test_chapters_link_to_pages_that_exist(chapter):
    for target in targets(chapter.text):
        place = (chapter.folder / target).resolve()
        assert place.exists() or place.relative_to(SITE).as_posix() in BUILT, target


def test_figures_and_tables_that_are_asked_for_exist():
    asked = {(f["kind"], f["what"]) for p in [*PAGES, *(c.file for c in book.chapters())] for f in book.DIRECTIVE.finditer(p.read_text())}
    assert {what for kind, what in asked if kind == "figure"} <= set(FIGURES)
    assert {what for kind, what in asked if kind == "table"} <= set(TABLES)


def test_every_figure_is_shown_somewhere():
    shown = {f["what"] for p in [*PAGES, *(c.file for c in book.chapters())] for f in book.DIRECTIVE.finditer(p.read_text()) if f["kind"] == "figure"}
    assert set(FIGURES) == shown


def test_commands_say_what_they_can():
    text = TABLES["commands"]()
    assert text.count("```text") == text.count("## ") >= 3 and "check" in text and "--peer" in text
