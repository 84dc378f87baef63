"""What a compiled graph raises looks as if the program had raised it: the user's line, of the operator at fault, is in the traceback."""
from __future__ import annotations

import sys
import traceback

import pytest
import torch

import minipt2
from minipt2.config import config
from minipt2.errors import UserFrame, at_user_lines


def chosen(y, i):
    w = y.cos()
    return w[i] + 1  # at fault


def inlined(x, i):
    z = chosen(x + 1, i)  # from here
    return z * 2 + 1


def after_a_size_from_data(x, i):
    w = x[x > 0]
    z = w[i]  # at fault
    return z * 2 + 1


def within_torch(x, i):
    y = torch.nn.functional.embedding(i, x)  # from here
    return y * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("fn, functions", [(inlined, ["inlined", "chosen"]), (after_a_size_from_data, ["after_a_size_from_data"]),
                                           (within_torch, ["within_torch", "embedding"])])
def test_the_line_of_the_operator_at_fault_is_named(fn, functions, backend, fresh):
    compiled = minipt2.compile(fn, backend=backend)
    compiled(torch.rand(8, 3), torch.tensor([1]))
    with config.patch(raise_internal_errors=False), pytest.raises(IndexError) as caught:
        compiled(torch.rand(8, 3), torch.tensor([99]))
    shown = traceback.extract_tb(caught.value.__traceback__)[-len(functions):]
    assert [entry.name for entry in shown] == functions
    assert all("from here" in entry.line or "at fault" in entry.line for entry in shown if entry.filename == __file__)


def test_lines_come_after_what_there_is_or_in_between():
    def raised():
        try:
            raise ValueError("wrong")
        except ValueError as error:
            return error

    frame, error = UserFrame(__file__, 3, "somewhere"), raised()
    at_user_lines(error, [frame])
    assert [e.name for e in traceback.extract_tb(error.__traceback__)] == ["raised", "somewhere"]
    at_user_lines(error, [UserFrame("a file that is gone", 7, "Outer.inner")], below=1)
    assert [(e.name, e.lineno) for e in traceback.extract_tb(error.__traceback__)][1:] == [("inner", 7), ("somewhere", 3)]
    assert sys.exc_info() == (None, None, None)
