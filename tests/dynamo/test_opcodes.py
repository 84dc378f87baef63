"""Every opcode of every supported CPython has a handler or is a named graph break, whichever version runs the tests."""
from __future__ import annotations

import dis
import sys

import pytest

from minipt2.catalogue import REASONS
from minipt2.dynamo.bytecode.opcodes import ACCOUNT, INTERNAL, OPCODES
from minipt2.dynamo.opcodes import HANDLERS
from minipt2.dynamo.opcodes.refused import REFUSED


def test_the_table_is_this_interpreters():
    running = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED_")}
    assert OPCODES[sys.version_info[:2]] == running


@pytest.mark.parametrize("version", ACCOUNT, ids=lambda v: f"{v[0]}.{v[1]}")
def test_no_opcode_is_unaccounted_for(version):
    account = ACCOUNT[version]
    assert set(account) == OPCODES[version]
    without = {raw: parts for raw, parts in account.items() if not parts and raw not in INTERNAL or not set(parts) <= set(HANDLERS)}
    assert not without


def test_no_handler_is_for_an_opcode_that_does_not_exist():
    assert set(HANDLERS) == {part for table in ACCOUNT.values() for parts in table.values() for part in parts}


def test_refusals_are_in_the_catalogue():
    assert {code for code, _ in REFUSED.values()} <= set(REASONS)
