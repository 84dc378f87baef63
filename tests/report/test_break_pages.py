"""Every page of ``site/breaks``: its first program meets the reason it is about, its second one meets none, both give what eager gives."""
import pathlib
import re
import warnings

import pytest
import torch
from torch.utils._pytree import tree_leaves

import minipt2
from minipt2 import trace
from minipt2.catalogue import REASONS
from minipt2.config import config
from minipt2.errors import Unsupported

PAGES = pathlib.Path(__file__).parents[2] / "site" / "breaks"


def programs(code: str) -> list[str]:
    return re.findall(r"```python title=\"[a-z ]+\"\n(.*?)```", (PAGES / f"{code}.md").read_text(), re.S)


def load(text: str, folder: pathlib.Path) -> tuple:
    """(f, args) of a program, which stands in a file as a user's would."""
    file = folder / "program.py"
    file.write_text(text)
    names = {"__name__": "program"}
    torch.manual_seed(0)
    exec(compile(text, str(file), "exec"), names)
    return names["f"], names["args"]


def outcome(fn, args) -> tuple:
    torch.manual_seed(0)
    try:
        return "returned", [leaf for leaf in tree_leaves(fn(*args)) if isinstance(leaf, (torch.Tensor, int, float))]
    except Exception as error:
        return type(error), getattr(error, "code", str(error))


def run(code: str, text: str, folder: pathlib.Path, **settings) -> tuple[tuple, set[str]]:
    """What a compiled program gave, and the codes of all reasons met on the way."""
    met: set[str] = set()

    def listen(stage, name, payload):
        for value in payload if isinstance(payload, tuple) else (payload,):
            if isinstance(value, Unsupported):
                met.add(value.code)
    f, args = load(text, folder)
    if code != "MP503":  # its programs compile a part of what they do themselves
        f = minipt2.compile(f, backend="aot_eager" if code.startswith("MP5") else "eager", **settings)
    stop = trace.subscribe(listen)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = outcome(f, args)
    finally:
        stop()
    if isinstance(result[0], type) and issubclass(result[0], Unsupported):
        met.add(result[1])
    return result, met


def same(expected: tuple, found: tuple) -> None:
    assert expected[0] == found[0], f"{expected} against {found}"
    if expected[0] != "returned":
        return
    for e, f in zip(expected[1], found[1], strict=True):
        torch.testing.assert_close(f, e)


@pytest.fixture(autouse=True)
def as_users_have_it(fresh):
    with config.patch(raise_internal_errors=False):
        yield


def test_a_page_for_every_reason_and_no_other():
    assert sorted(p.stem for p in PAGES.glob("MP*.md")) == sorted(REASONS)


@pytest.mark.parametrize("code", REASONS)
def test_page(code, tmp_path):
    page = (PAGES / f"{code}.md").read_text()
    assert page.startswith(f"# {code}: {REASONS[code].title}\n") and REASONS[code].advice in page
    broken, *captured = programs(code)
    found, met = run(code, broken, tmp_path)
    assert code in met
    if code not in ("MP217", "MP503"):  # which eager would not raise
        same(outcome(*load(broken, tmp_path)), found)
    assert captured
    for whole in captured:
        torch.manual_seed(0)
        expected = outcome(*load(whole, tmp_path))
        torch.manual_seed(0)
        found, met = run(code, whole, tmp_path, fullgraph=True)
        assert not met
        assert expected[0] == "returned"
        same(expected, found)
