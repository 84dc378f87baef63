"""The catalogue of reasons: every code raised in the source is in it, every entry is raised somewhere."""
import ast
import pathlib
import re

import minipt2
from minipt2.catalogue import REASONS
from minipt2.errors import Unsupported

PACKAGE = pathlib.Path(minipt2.__file__).parent


def raised_codes() -> dict[str, set[str]]:
    """Code -> files that pass it as a string of its own."""
    found: dict[str, set[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name == "catalogue.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"MP\d{3,}", node.value):
                found.setdefault(node.value, set()).add(str(path.relative_to(PACKAGE)))
    return found


def test_codes_and_catalogue_are_the_same_set():
    raised = raised_codes()
    unknown = {code: files for code, files in raised.items() if code not in REASONS}
    assert not unknown, f"codes that minipt2/catalogue.py does not list: {unknown}"
    assert not set(REASONS) - set(raised), "listed in minipt2/catalogue.py, raised nowhere"


def test_codes_mentioned_in_text_exist():
    mentioned = {code for path in PACKAGE.rglob("*.py") for code in re.findall(r"\bMP\d{3}\b", path.read_text())}
    assert mentioned <= set(REASONS)


def test_advice_comes_from_the_catalogue_unless_given():
    assert Unsupported("MP101", "met").advice == REASONS["MP101"].advice
    assert str(Unsupported("MP101", "met", "do this")) == "[MP101] met\n  What to do: do this"
    assert Unsupported("MP101", "met").title == "data-dependent branch"
