import pytest

from minipt2.course import regions, tasks
from minipt2.course.proof import static_faults

SOURCE = '''"""A module."""
from __future__ import annotations

import math
from .exercise import exercise

LIMIT = 3


def helper(x):
    return x + LIMIT


class Box(dict):
    """A box."""

    size = 1

    @staticmethod
    @register("twice")
    @exercise("9.9")
    def twice(x: int,
              y: int = 2) -> int:
        """Two lines

        of text.
        """
        # >>> 9.9
        z = helper(x)
        return z * y
        # <<< 9.9

    def other(self):
        return 1


@exercise("9.8")
def plain(x):
    """Another."""
    # >>> 9.8
    return math.sqrt(x)
    # <<< 9.8
'''

STUB = '''from __future__ import annotations

import math
from .exercise import exercise


class Box(dict):
    """A box."""

    @staticmethod
    @exercise("9.9")
    def twice(x: int,
              y: int = 2) -> int:
        """Two lines

        of text.
        """
        # >>> 9.9
        # <<< 9.9
'''


def test_stub_keeps_heads_and_imports_alone():
    assert regions.stub(SOURCE, "9.9") == STUB
    assert regions.is_subsequence(STUB, SOURCE)


def test_answer_has_the_body():
    text = regions.answer(SOURCE, "9.8")
    assert "return math.sqrt(x)" in text and "Box" not in text
    assert regions.is_subsequence(text, SOURCE) and regions.is_subsequence(regions.stub(SOURCE, "9.8"), text)


def test_hollow_leaves_out_every_body():
    text = regions.hollow(SOURCE)
    assert "helper(x)" not in text.replace("def helper(x)", "") and "math.sqrt" not in text
    assert "return x + LIMIT" in text and "def other" in text and text.count("# >>>") == text.count("# <<<") == 2
    assert regions.is_subsequence(text, SOURCE) and regions.is_subsequence(regions.stub(SOURCE, "9.9"), text)


def test_functions_of_a_stub_stand_apart():
    """Blank lines come along although a decorator and a comment between them and the function do not."""
    first, _, second = SOURCE.partition('@exercise("9.8")')
    assert regions.stub(first + '# A comment.\n@register("x")\n@exercise("9.8")' + second, "9.8").count('\n\n\n@exercise("9.8")') == 1


def test_replaced_only_within_the_region():
    assert "return z + y" in regions.replaced(SOURCE, "9.9", "z * y", "z + y")
    for absent in ("LIMIT", "return"):  # outside; there, and once more in another region
        with pytest.raises(regions.BadMarks):
            regions.replaced(SOURCE, "9.9", "LIMIT", "0")
    with pytest.raises(regions.BadMarks, match="2 times"):
        regions.replaced(SOURCE, "9.9", " z", " y")


@pytest.mark.parametrize("text, says", [
    ("# >>> 1.1\n# >>> 1.2\n", "begins inside"), ("# <<< 1.1\n", "has not begun"), ("# >>> 1.1\n", "not ended"), ("# >>> 1.1\n# <<< 1.2\n", "has not begun")])
def test_marks_that_do_not_pair(text, says):
    with pytest.raises(regions.BadMarks, match=says):
        regions.regions(text)


def test_a_function_without_docstring_cannot_be_an_exercise():
    with pytest.raises(regions.BadMarks, match="docstring"):
        regions.stub("def f():\n    # >>> 1.1\n    return 1\n    # <<< 1.1\n", "1.1")


def test_subsequence():
    assert regions.is_subsequence("a\nc\n", "a\nb\nc\n")
    assert not regions.is_subsequence("c\na\n", "a\nb\nc\n")


KNOWN = tasks.all_tasks(tasks.home())


@pytest.mark.parametrize("number", KNOWN)
def test_every_exercise_is_whole(number):
    """Hints, mutants, prerequisites, marks, stub and signature, without running anything."""
    assert list(static_faults(KNOWN[number], set(KNOWN))) == []


def test_every_mark_in_the_package_has_its_exercise():
    for path in sorted(tasks.PACKAGE.rglob("*.py")):
        for region in regions.regions(path.read_text()):
            assert region.number in KNOWN, f"{path} marks {region.number}, which has no task.toml"
            assert KNOWN[region.number].file == str(path.relative_to(tasks.PACKAGE))
