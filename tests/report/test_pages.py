"""Generated pages of the site are what the tables in the package say."""
import pathlib

import pytest

from minipt2.report import pages

SITE = pathlib.Path(__file__).parents[2] / "site"


@pytest.mark.parametrize("name", pages.PAGES)
def test_page_is_up_to_date(name):
    assert (SITE / name).read_text() == pages.PAGES[name](), "python -m minipt2.report.pages writes it anew"


def test_every_reason_is_in_the_index():
    assert all(f"[{code}]({code}.md)" in pages.break_index() for code in pages.REASONS)


def test_pages_are_written(tmp_path):
    pages.write(tmp_path)
    assert sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.md")) == sorted(pages.PAGES)
