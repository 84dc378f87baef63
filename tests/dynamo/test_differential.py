"""Random programs run plain and compiled, with graph breaks or faults of ours planted at random instructions: nothing may differ.

Some dozens by default. ``MINIPT2_TEST_PROGRAMS=2000`` takes that many, ``MINIPT2_TEST_SEED`` another series.
"""
from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import os
import random
import sys
import types
import warnings
from typing import Any, Callable, Iterator

import numpy as np
import torch
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import minipt2
from minipt2.config import config
from minipt2.dynamo import eval_frame, opcodes, optimize
from minipt2.dynamo.bytecode import decode
from minipt2.dynamo.resume import run_resumed
from minipt2.dynamo.stack_effect import effect
from minipt2.dynamo.variables.base import unsupported

from program_writer import programs
from snapshot import Snapshot, first_difference

COUNT = int(os.environ.get("MINIPT2_TEST_PROGRAMS", "48"))
SEED = int(os.environ.get("MINIPT2_TEST_SEED", "0"))
FILE = "/differential/program.py"
NEVER_BREAK = ("RESUME", "NOP", "PUSH_NULL", "JUMP", "JUMP_NO_INTERRUPT", "POP_TOP", "RERAISE", "DELETE_FAST", "LOAD_CLOSURE", "MAKE_FUNCTION")
"""Instructions at which no graph can break."""


# ---- planting ----------------------------------------------------------------------------------------------------
def key(code: types.CodeType, instr: Any) -> tuple:
    """Names an instruction of a program in its function and in the resume functions made of that."""
    return code.co_name, instr.op, instr.position, instr.arg if isinstance(instr.arg, (str, int)) else None


def places(code: types.CodeType) -> Iterator[tuple]:
    """The instructions of a module's functions that a graph can break at."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            instructions = decode(constant)
            for previous, instr in zip([None, *instructions], instructions):
                with contextlib.suppress(KeyError):
                    effect(instr, False)
                    if instr.op not in NEVER_BREAK and not holds_cells(instr, previous):
                        yield key(constant, instr)
            yield from places(constant)


def holds_cells(instr: Any, previous: Any) -> bool:
    """Between the cells of a closure and its function."""
    return isinstance(instr.arg, types.CodeType) or instr.op == "BUILD_TUPLE" and previous.op == "LOAD_CLOSURE"


@contextlib.contextmanager
def planted(chosen: set[tuple], act: Callable[[], None]) -> Iterator[None]:
    """``act()`` comes before the handler of each of the ``chosen`` instructions of the program."""
    lookup = opcodes.handler_for

    def handler_for(instr: Any) -> Callable:
        original = lookup(instr)

        def handler(tx: Any, instr: Any) -> None:
            if tx.code.co_filename == FILE and key(tx.code, instr) in chosen:
                act()
            original(tx, instr)

        return handler

    opcodes.handler_for = handler_for
    try:
        yield
    finally:
        opcodes.handler_for = lookup


def break_here() -> None:
    unsupported("MP302", "a break planted by the test")


def fail_here() -> None:
    raise RuntimeError("a fault planted by the test")


@contextlib.contextmanager
def failing_call(number: int) -> Iterator[None]:
    """The ``number``-th Python call that dynamo makes on the way from each frame to its code and guards raises."""
    room = os.path.dirname(opcodes.__path__[0])

    def faulty(function: Callable) -> Callable:
        def wrapper(*args: Any) -> Any:
            calls = itertools.count()

            def tracer(frame: Any, event: str, arg: Any) -> None:
                if frame.f_code.co_filename.startswith(room) and next(calls) == number:
                    sys.settrace(None)
                    fail_here()

            sys.settrace(tracer)
            try:
                return function(*args)
            finally:
                sys.settrace(None)

        return wrapper

    with contextlib.ExitStack() as stack:
        for name in ("compile_frame", "compile_guards"):
            stack.callback(setattr, eval_frame, name, getattr(eval_frame, name))
            setattr(eval_frame, name, faulty(getattr(eval_frame, name)))
        yield


# ---- observing ---------------------------------------------------------------------------------------------------
def user_lines(error: BaseException) -> list[tuple[int, str]]:
    """Lines of the program in the traceback. A line that goes on in a resume function is not one that eager shows."""
    found: list[tuple[int, str]] = []
    tb = error.__traceback__
    while tb is not None:
        code = tb.tb_frame.f_code
        if code is run_resumed.__code__:
            found.pop()
        elif code.co_filename == FILE:
            found.append((unbound_line(error, tb) or tb.tb_lineno, code.co_name))
        tb = tb.tb_next
    return found


def unbound_line(error: BaseException, tb: types.TracebackType) -> int | None:
    """The line that reads the unbound variable; None if ``tb`` is not where that happened.

    CPython 3.11 runs two instructions as one once a function is warm (``STORE_FAST__LOAD_FAST``), and then names the line of the first.
    """
    if not isinstance(error, UnboundLocalError) or tb.tb_next is not None:
        return None
    pair = [instr for instr in decode(tb.tb_frame.f_code) if instr.offset >= tb.tb_lasti][:2]
    return next((i.line for i in pair if i.op.startswith("LOAD_FAST") and f"{i.arg!r}" in str(error)), None)


def outcome(error: BaseException | None, see: Snapshot) -> Any:
    chain = []
    while error is not None and len(chain) < 9:
        chain.append((type(error).__name__, see(error.args), error.__suppress_context__, user_lines(error), type(error.__cause__).__name__))
        error = error.__context__
    return chain


def arguments(variant: int) -> tuple[tuple, dict]:
    """What ``f`` is called with: the first two variants are alike, the others each change something that guards must see."""
    sign = -1.0 if variant == 2 else 1.0
    x = (torch.tensor([1.0, -2.0]) * sign).requires_grad_(variant == 3)
    point = POINTS[-1](torch.tensor([0.5, sign]))
    box = [torch.full((2,), 0.5) for _ in range(1 + (variant == 2))]
    rest, named = ((4, "r"), {"flag": True}) if variant == 3 else ((), {})
    return (x, torch.tensor([0.25, -1.0]), box, {"n": variant // 2, "k": torch.ones(2)}, point, 1 + variant // 2, *rest), named


POINTS: list[type] = []
"""The ``Point`` of the namespace being run."""


class World:
    """The program as a module of its own, run by ``wrap(f)`` again and again."""

    def __init__(self, name: str, code: types.CodeType, wrap: Callable[[Callable], Callable], tolerance: float = 0.0):
        self.tolerance = tolerance
        sys.modules[name] = module = types.ModuleType(name)
        self.scope = module.__dict__
        exec(code, self.scope)
        f, self.peek = self.scope["make"]()
        self.run = wrap(f)

    def call(self, variant: int) -> dict[str, Any]:
        """Everything that can be observed of one call."""
        random.seed(variant), np.random.seed(variant), torch.manual_seed(variant)
        POINTS.append(self.scope["Point"])
        args, kwargs = arguments(variant)
        see, printed, error, result = Snapshot(self.tolerance), io.StringIO(), None, None
        with contextlib.redirect_stdout(printed):
            try:
                result = self.run(*args, **kwargs)
            except Exception as caught:
                error = caught
        grad = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return {
            "error": outcome(error, see), "result": see(result), "arguments": see(args), "closure and globals": see(self.peek()),
            "class": self.scope["Point"].unit, "printed": printed.getvalue(), "grad mode": grad,
            "random": (random.random(), np.random.rand(), torch.rand(()).item()),
        }  # fmt: skip


def run_eagerly(f: Callable) -> Callable:
    """``f`` captured, its graphs run as they are."""
    return optimize(f, lambda gm, examples: gm.forward)


def difference(text: str, chosen: list[int], act: Callable[[], None] = break_here, compiler: Callable = run_eagerly,
               tolerance: float = 0.0) -> str | None:
    """What differs between plain and compiled over four calls; None if nothing."""
    linecache.cache[FILE] = (len(text), None, text.splitlines(True), FILE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the program's own; recompile limits; planted faults
        code = compile(text, FILE, "exec")
        all_places = list(dict.fromkeys(places(code)))
        with planted({all_places[i % len(all_places)] for i in chosen}, act):
            plain = World("differential_plain", code, lambda f: f)
            compiled = World("differential_compiled", code, compiler, tolerance)
            for variant in (0, 1, 2, 3):
                expected, found = plain.call(variant), compiled.call(variant)
                for what in expected:
                    if expected[what] != found[what]:
                        return f"call {variant}, {what}{first_difference(expected[what], found[what])}"
    return None


# ---- tests -------------------------------------------------------------------------------------------------------
def test_line_of_an_unbound_variable():
    """The same in a warm function, where CPython's own traceback may name the line before."""
    text = "def f(n):\n    for v in range(n):\n        a = a\n"
    scope: dict[str, Any] = {}
    exec(compile(text, FILE, "exec"), scope)
    found = []
    for _ in range(40):
        try:
            scope["f"](3)
        except UnboundLocalError as error:
            found += user_lines(error)
    assert found == [(3, "f")] * 40


def series(share: int, *strategies: Any) -> Callable:
    """The decorated test runs on one in ``share`` of the programs."""
    quiet = settings(max_examples=max(1, COUNT // share), deadline=None, database=None, suppress_health_check=list(HealthCheck))
    return lambda test: seed(SEED)(quiet(given(programs(), *strategies)(test)))


INSTRUCTIONS = st.integers(0, 10**4)


@series(1, st.lists(INSTRUCTIONS, max_size=30))
def test_breaks_anywhere(text, chosen):
    assert difference(text, chosen) is None


@series(4, st.lists(INSTRUCTIONS, min_size=1, max_size=4))
def test_faults_of_handlers(text, chosen):
    """The frame runs eagerly, and nothing has been changed before it does."""
    with config.patch(raise_internal_errors=False):
        assert difference(text, chosen, fail_here) is None


@series(8, st.integers(0, 3000))
def test_faults_anywhere_in_dynamo(text, number):
    with config.patch(raise_internal_errors=False), failing_call(number):
        assert difference(text, []) is None


@series(20, st.lists(INSTRUCTIONS, max_size=3))
def test_with_kernels(text, chosen):
    """Through the whole compiler: values as close as kernels are to eager."""
    assert difference(text, chosen, compiler=minipt2.compile, tolerance=1e-3) is None
