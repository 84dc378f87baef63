"""Shared by the tests of variables: run a function plain and captured, compare results, count graphs."""
from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from minipt2 import trace
from minipt2.config import config
from minipt2.dynamo import optimize


class Recorder:
    """A backend that keeps its graphs and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[fx.GraphModule] = []

    def __call__(self, gm: fx.GraphModule, examples: list) -> Callable:
        self.graphs.append(gm)
        return gm.forward


def same(got: Any, expected: Any) -> None:
    """Equal in structure, types and values."""
    assert type(got) is type(expected), (type(got), type(expected))
    flat, spec = tree_flatten(got)
    wanted, wanted_spec = tree_flatten(expected)
    assert spec == wanted_spec, (spec, wanted_spec)
    for a, b in zip(flat, wanted):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, check_stride=True)
        else:
            assert type(a) is type(b) and (a is b or a == b or a != a), (a, b)


def check(fn: Callable, *args: Any, graphs: int | None = 1, full: bool = True, calls: int = 2) -> Recorder:
    """``fn`` captured (whole, unless ``full=False``) gives and changes what it does plain; returns the recorder.

    Arguments are deep-copied for either side, and compared after the calls: mutations must be the same.
    """
    trace.reset()
    recorder = Recorder()
    with config.patch(raise_internal_errors=True):
        compiled = optimize(fn, recorder, fullgraph=full)
        plain_args, our_args = copy.deepcopy(args), copy.deepcopy(args)
        for _ in range(calls):
            same(compiled(*our_args), fn(*plain_args))
            same(our_args, plain_args)
    if graphs is not None:
        assert len(recorder.graphs) == graphs, [gm.code for gm in recorder.graphs]
    return recorder
