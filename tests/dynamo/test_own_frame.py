"""Functions that look at their own frame run as they were written; what they call is captured."""
from __future__ import annotations

import inspect
import sys

import pytest
import torch

import minipt2
from minipt2.errors import Unsupported

seen: list = []


def twice(x):
    return x * 2


def locals_(x, k=1):
    y = twice(x)
    z = y + k
    return z, sorted(locals())


def after_a_break(x):
    y = twice(x)
    print(end="")
    z = x + 1
    return z, sorted(locals()), sorted(vars()), sorted(dir())


def evaluated(x):
    y = 3
    w = twice(x)
    return w + eval("y"), eval("y + 1", {"y": 1})


def executed(x):
    y = 2
    w = twice(x)
    exec("seen.append(y)")
    return w


def of_a_comprehension(x):
    y = twice(x)
    return y, [sorted(locals())[0] for _ in range(2)]


def current_frame(x):
    y = twice(x)
    print(end="")
    frame = inspect.currentframe()
    return y, frame.f_code.co_name, sorted(sys._getframe().f_locals)


def breaking_in(x):
    y = twice(x)
    print(end="")
    z = y + 1
    breakpoint()
    return z


def passed_on(x):
    y = 4
    return twice(x) + sum(map(eval, ["3"]))


FUNCTIONS = [locals_, after_a_break, evaluated, executed, of_a_comprehension, current_frame, breaking_in, passed_on]


def outcome(fn, x):
    seen.clear()
    return repr(fn(x)), repr(seen)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("inlined", [False, True])
def test_a_frame_that_looks_at_itself(fn, inlined, fresh, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sorted(sys._getframe(1).f_locals)))
    called = (lambda x: fn(x + 1)) if inlined else fn
    compiled, x = minipt2.compile(called, backend="eager"), torch.ones(3)
    for _ in range(2):
        assert outcome(compiled, x) == outcome(called, x)
    assert minipt2.counters()["graphs"] >= 1


def test_what_has_other_meanings_is_captured(fresh):
    def fn(x, eval=lambda v: v + 1):
        return eval(x) * len(vars(point)) + self_like.eval(x)

    compiled = minipt2.compile(fn, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), fn(torch.ones(3)))


class Point:
    def __init__(self):
        self.a = self.b = 1

    def eval(self, x):
        return x - 1


point = self_like = Point()


def test_a_whole_graph_is_refused_with_the_line():
    with pytest.raises(Unsupported, match=r"MP304.*locals\(\) looks at the frame(.|\n)*return z, sorted\(locals\(\)\)"):
        minipt2.compile(locals_, backend="eager", fullgraph=True)(torch.ones(3))
