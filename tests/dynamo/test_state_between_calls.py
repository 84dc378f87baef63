"""Random changes of modules, globals and closures between calls: each compiled call must be what eager makes of the state as it is.

A few programs by default. ``MINIPT2_TEST_PROGRAMS=200`` takes that many, of a dozen changes each, ``MINIPT2_TEST_SEED`` another series.
"""
from __future__ import annotations

import contextlib
import os
import random
import sys
import types
import warnings
from typing import Any, Callable

import pytest
import torch

import minipt2
from minipt2.config import config
from minipt2.dynamo import guard_table

from snapshot import Snapshot, first_difference
from state_writer import StateWriter

COUNT = int(os.environ.get("MINIPT2_TEST_PROGRAMS", "6"))
SEED = int(os.environ.get("MINIPT2_TEST_SEED", "0"))
CHANGES = 12
PATIENCE = 3
"""After so many calls in a row that raise, the next change is made to a world as it was at first."""


class StateWorld:
    """The program as a module of its own; ``compiler`` makes what is called of its ``run``."""

    def __init__(self, name: str, text: str, compiler: Callable[[Callable], Callable]):
        sys.modules[name] = module = types.ModuleType(name)
        self.scope = module.__dict__
        exec(compile(text, f"/{name}.py", "exec"), self.scope)
        self.scope["handles"] = []
        self.call_run = compiler(self.scope["run"])
        self.mode = {"grad": True, "cast": None, "default": torch.float32, "x": self.scope["t"](2, 2, 3)}

    def change(self, statement: str) -> type | None:
        """What the statement raises: not every one is possible in every state."""
        torch.manual_seed(0)
        try:
            if statement.startswith("mode: "):
                name, _, text = statement.removeprefix("mode: ").partition("=")
                self.mode[name] = eval(text, self.scope)
            else:
                exec(statement, self.scope)
        except Exception as error:
            return type(error)
        return None

    def call(self) -> dict[str, Any]:
        """Everything that can be observed of one call and its backward."""
        net, x = self.scope["net"], self.mode["x"].detach().clone().requires_grad_(self.mode["x"].requires_grad)
        places = {**dict(net.named_parameters()), **{f"shift {k}": s for k, s in [("", self.scope["shift"])]}}
        for value in places.values():
            value.grad = None
        torch.manual_seed(0)
        see, result, raised = Snapshot(), None, None
        try:
            with self.modes():
                result = self.call_run(x)
            if result.requires_grad:
                result.double().sum().backward()
        except Exception as error:
            raised = type(error)
        states = [(name, m.training, vars(m).get("seen")) for name, m in net.named_modules()]
        return {
            "raised": raised, "result": see(result), "input": see(x), "values": see(dict(net.named_parameters())),
            "buffers": see(dict(net.named_buffers())), "modules": see(states), "global": see(self.scope["shift"]), "log": see(self.scope["log"]),
            "random": torch.rand(()).item(), "modes": (torch.is_grad_enabled(), torch.get_default_dtype()),
        }  # fmt: skip

    @contextlib.contextmanager
    def modes(self):
        default = torch.get_default_dtype()
        with contextlib.ExitStack() as stack:
            torch.set_default_dtype(self.mode["default"])
            stack.callback(torch.set_default_dtype, default)
            if self.mode["cast"] is not None:
                stack.enter_context(torch.autocast("cpu", self.mode["cast"]))
            stack.enter_context(torch.inference_mode() if self.mode["grad"] is None else torch.set_grad_enabled(self.mode["grad"]))
            yield


def run_eagerly(fn: Callable) -> Callable:
    return minipt2.compile(fn, backend="eager")


class Script:
    """A world and the changes made so far, one after the other, each followed by a call."""

    def __init__(self, text: str, statements: list[str], compiler: Callable = run_eagerly):
        self.text, self.statements, self.compiler = text, statements, compiler
        self.calls = self.raised = 0

    def difference(self) -> str | None:
        """The first call that gives something else than eager; None if none does."""
        worlds = self._worlds()
        failures = 0
        for k, statement in enumerate(["pass", *self.statements]):
            if failures >= PATIENCE:
                worlds, failures = self._worlds(), 0
            changed = [world.change(statement) for world in worlds]
            if changed[0] != changed[1]:
                return f"change {k} ({statement}): raised {changed}"
            expected, found = (world.call() for world in worlds)
            self.calls += 1
            self.raised += expected["raised"] is not None
            failures = failures + 1 if expected["raised"] else 0
            for what in expected:
                if expected[what] != found[what]:
                    return f"after change {k} ({statement}), {what}{first_difference(expected[what], found[what])}"
        return None

    def _worlds(self) -> list[StateWorld]:
        return [StateWorld("state_plain", self.text, lambda f: f), StateWorld("state_compiled", self.text, self.compiler)]

    def __str__(self) -> str:
        return "\n".join([self.text, *(f"# then: {statement}" for statement in self.statements)])


def script(seed: int, compiler: Callable = run_eagerly) -> Script:
    writer = StateWriter(random.Random(seed))
    return Script(writer.world(), [writer.change() for _ in range(CHANGES)], compiler)


@pytest.mark.parametrize("number", range(COUNT))
def test_no_change_goes_unnoticed(number, monkeypatch):
    if number % 2:
        monkeypatch.setattr(guard_table, "MIN_GUARDS", 1)
    program = script(SEED * 100_000 + number)
    with warnings.catch_warnings(), config.patch(recompile_limit=64):
        warnings.simplefilter("ignore")
        assert program.difference() is None, str(program)
