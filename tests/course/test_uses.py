"""What READMEs of exercises say of names from other files."""
import pytest

from minipt2.course import tasks, uses

KNOWN = tasks.all_tasks(tasks.home())


@pytest.mark.parametrize("number", list(KNOWN))
def test_no_marks_and_no_bodies(number):
    """Heads and first sentences alone: one line for each name, the decorator of the course itself left out."""
    lines = uses.imported(KNOWN[number])
    assert all(line.startswith("- `") and "\n" not in line and ">>>" not in line for line in lines)
    assert not any(line.startswith("- `exercise") for line in lines)


def test_names_are_followed_to_their_definitions():
    lines = {line.partition("`")[2].partition("`")[0]: line for line in uses.imported(KNOWN["1.1"])}
    assert "exception_table.py" in lines["read_exception_table(table: bytes) -> list[Entry]"]
    assert "It has `target`, `depth`, `lasti`." in lines["Handler"]
    renamed = next(line for line in uses.imported(KNOWN["3.4"]) if line.startswith("- `prims_kind("))
    assert "(kind there)" in renamed and "minipt2/prims/kinds.py" in renamed
    assert "the module `minipt2/prims/ops.py`" in next(line for line in uses.imported(KNOWN["4.3"]) if line.startswith("- `p`"))
