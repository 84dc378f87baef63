"""What tests of symbolic sizes share: calls compared with eager, versions counted, guards read."""
from __future__ import annotations

import copy
from typing import Any, Callable, Iterable

import torch

import minipt2
from minipt2 import trace
from tests.compare import assert_same


class Versions:
    """What was compiled: the conditions on sizes of each version, what became dynamic, graph breaks."""

    def __init__(self) -> None:
        self.guards: list[list[str]] = []
        self.dynamic: list[str] = []
        self.breaks: list[str] = []

    def __len__(self) -> int:
        return len(self.guards)

    def listen(self, stage: str, name: str, payload: Any) -> None:
        if stage == "guards":
            self.guards.append([str(check).split(" with ")[0] for check in payload[1].checks if check.kind == "SHAPE"])
        elif stage == "dynamic":
            self.dynamic += payload[1]
        else:
            self.breaks.append(str(payload))


def run(fn: Callable, calls: Iterable[tuple], **settings: Any) -> Versions:
    """Call ``fn`` compiled and plain with each of ``calls`` and compare; says what was compiled on the way."""
    versions = Versions()
    compiled = minipt2.compile(fn, **{"backend": "eager", **settings})
    stop = trace.subscribe(versions.listen, "guards", "dynamic", "breaks", "skipped")
    try:
        for args in calls:
            theirs = copy.deepcopy(args)
            torch.manual_seed(0)
            expected = fn(*theirs)
            torch.manual_seed(0)
            assert_same(expected, compiled(*args))
            assert_same([a for a in theirs if isinstance(a, torch.Tensor)], [a for a in args if isinstance(a, torch.Tensor)])
    finally:
        stop()
    return versions
