"""Reference pages name everything that is in the registries they are made from."""
import re
from dataclasses import fields

import pytest

from minipt2 import backends
from minipt2.config import Config
from minipt2.dynamo.guard_kinds import KINDS
from minipt2.inductor import ops
from minipt2.inductor.lowering import lowerings
from minipt2.prims import TABLE
from minipt2.report import reference

HOLDS = {
    "reference/settings.md": [f"MINIPT2_{f.name.upper()}" for f in fields(Config)],
    "reference/backends.md": backends.list_backends(),
    "reference/lowerings.md": [*lowerings, *TABLE],
    "reference/ops.md": [*ops.UNARY, *ops.BINARY, *ops.REDUCTIONS],
    "reference/guards.md": list(KINDS),
    "reference/variables.md": ["TensorVariable", "ListVariable", "ConstantVariable", "BuiltinVariable"],
    "reference/rooms.md": [f"minipt2/{room}" for room in reference.ROOMS],
    "pytorch_map.md": ["minipt2/dynamo/guards.py", "torch._functorch.partitioners"],
}


@pytest.mark.parametrize("name", reference.PAGES)
def test_page_holds_its_registry(name):
    text = reference.PAGES[name]()
    assert text.startswith("# ")
    missing = [entry for entry in HOLDS[name] if not re.search(rf"(?<![\w.]){re.escape(entry)}(?!\w)", text)]
    assert not missing


def test_tables_are_whole():
    for make in reference.PAGES.values():
        rows = [line for line in make().splitlines() if line.startswith("|")]
        assert all(line.endswith("|") for line in rows)


def test_every_setting_says_what_it_does():
    rows = [line.split(" | ") for line in reference.settings().splitlines() if line.startswith("| `") and "MINIPT2_" in line]
    assert rows and all(len(row[2]) > 10 for row in rows)
