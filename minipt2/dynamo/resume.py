"""Going on after a graph break: the code that runs the broken-off instruction, and functions that continue after it.

A frame that breaks becomes: graph call, the frame's state made real, the instruction itself, a call of a resume function.
That function is the original bytecode with a new beginning, which pushes the saved stack and jumps behind the instruction;
as an ordinary function it is captured in its turn. Since 3.11 block state is nothing but the stack and the exception table,
so ``with``, ``try`` and ``for`` go on by themselves. Upstream: ``torch/_dynamo/resume_execution.py``.
"""
from __future__ import annotations

import inspect
import types
import weakref
from types import CodeType
from typing import Any, Callable, Iterable, Sequence

from ..exercise import exercise
from .bytecode import Instruction, assemble, clone, liveness, ops
from .per_code import PerCode
from .translator import program_of

_STACK = "__minipt2_stack"
_FIRST = "__minipt2_first"


class Tail(tuple):
    """(function, *arguments): what a resume function returns when it goes on in another one; keeps the stack flat in loops."""

    __slots__ = ()


def run_resumed(fn: Callable, *args: Any) -> Any:
    """Call a resume function, and the one it goes on in, until one returns the frame's own result."""
    try:
        result = fn(*args)
        while type(result) is Tail:
            fn, args = result[0], result[1:]
            result = fn(*args)
        return result
    except NameError as error:
        raised_there = error.__traceback__.tb_next is not None and error.__traceback__.tb_next.tb_next is None
        if type(error) is not NameError or not raised_there or error.name not in _own_cells(fn.__code__):
            raise
        message = f"cannot access local variable {error.name!r} where it is not associated with a value"
        raise UnboundLocalError(message).with_traceback(error.__traceback__.tb_next) from error.__cause__


def _own_cells(code: CodeType) -> tuple[str, ...]:
    """The cells that belong to the frame that resume code continues; in resume code itself all are free variables."""
    original = code
    while original is not None and original in _origins:
        code, original = original, _origins(original)[0][0]()
    return (original or code).co_cellvars


def is_resume_code(code: CodeType) -> bool:
    return code in _origins


def puts_stack_back(instr: Instruction) -> bool:
    """Whether a resume function begins with ``instr``: it would break there again, and so would the next one, for ever."""
    return instr.op.startswith("LOAD_FAST") and str(instr.arg).startswith(_STACK)


live_names = PerCode(lambda code: liveness(program_of(code).instructions))
"""Live-in names per instruction of a code object."""
_continuations: PerCode[dict[tuple, CodeType]] = PerCode(lambda code: {})
_origins: PerCode[list] = PerCode(lambda code: [])
"""Of each resume code: the code it continues, weakly, and the place there of each of its instructions (None: of its beginning)."""


def split(code: CodeType, at: int, nulls: Sequence[bool], names: Sequence[str]) -> CodeType:
    """Code that continues ``code`` at instruction number ``at``.

    Its parameters are the stack's values (``nulls`` says which slots are NULL and get none), then the locals ``names``; before them
    the original's first argument where ``super()`` may ask for it.
    Cells of the original, own and free, all become free variables. Resume code is continued as the code it was made of: a loop with a
    break in it so has one resume function, however often it goes round.
    """
    code, at = _in_original(code, at)
    key = (at, tuple(nulls), tuple(names))
    made = _continuations(code)
    if key not in made:
        made[key] = _make(code, at, nulls, names)
    return made[key]


def _in_original(code: CodeType, at: int) -> tuple[CodeType, int]:
    """The code that ``code`` continues, if it is resume code, and the place of its instruction number ``at`` there."""
    if code in _origins:
        reference, places = _origins(code)[0]
        original = reference()
        if original is not None and places is not None and places[at] is not None and calls_super(original) == calls_super(code):
            return original, places[at]
    return code, at


@exercise("1.5")
def _make(code: CodeType, at: int, nulls: Sequence[bool], names: Sequence[str]) -> CodeType:
    """The code that ``split`` describes: the stack put back, then a jump to instruction number ``at``."""
    # >>> 1.5
    body, new = clone(program_of(code).instructions)
    target = body[at]
    free = tuple(dict.fromkeys((*code.co_cellvars, *code.co_freevars)))
    slots = [f"{_STACK}{i}" for i, null in enumerate(nulls) if not null]
    start: list[Instruction] = ops.prologue((), free)
    stack = iter(slots)
    for null in nulls:
        start += ops.push_null() if null else ops.load_fast(next(stack))
    start += ops.jump(target)
    ops.at(start, target.position)
    args = (*([_FIRST] if calls_super(code) else []), *slots, *names)
    rest = tuple(name for name in code.co_varnames if name not in args and name not in free)
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    kept = reachable([*start, *body])
    made = assemble(
        kept, code, co_argcount=len(args), co_posonlyargcount=0, co_kwonlyargcount=0,
        co_varnames=(*args, *rest), co_cellvars=(), co_freevars=free, co_flags=flags | (inspect.CO_NESTED if free else 0),
    )  # fmt: skip
    number = {instr: i for i, instr in enumerate(body)}
    places = [number.get(instr) for instr in kept]
    _origins(made).append((weakref.ref(code), places if len(program_of(made).instructions) == len(places) else None))
    return made
    # <<< 1.5


def calls_super(code: CodeType) -> bool:
    """Whether ``super()`` without arguments may be called: it looks at the first argument of the frame it is called in."""
    return "__class__" in code.co_freevars and code.co_argcount > 0


def reachable(instructions: list[Instruction]) -> list[Instruction]:
    """Without the instructions that no path from the first one reaches."""
    place = {instr: i for i, instr in enumerate(instructions)}
    seen: set[int] = set()
    work = [0]
    while work:
        i = work.pop()
        while i < len(instructions) and i not in seen:
            seen.add(i)
            instr = instructions[i]
            if instr.target is not None:
                work.append(place[instr.target])
            if instr.handler is not None:
                work.append(place[instr.handler.target])
            if instr.op in LEAVES:
                break
            i += 1
    return [instr for i, instr in enumerate(instructions) if i in seen]


LEAVES = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP", "JUMP_NO_INTERRUPT"})
TRIVIAL = frozenset({"POP_TOP", "LOAD_CONST", "LOAD_FAST", "NOP", "BUILD_TUPLE", "RETURN_VALUE"})


def trivial_tail(instructions: Sequence[Instruction], at: int) -> list[Instruction] | None:
    """The instructions from ``at`` to a return, if they only move values; then no resume function is needed."""
    tail = []
    for instr in instructions[at : at + 8]:
        if instr.op not in TRIVIAL:
            return None
        tail.append(instr)
        if instr.op == "RETURN_VALUE":
            copies, _ = clone(tail)
            for copy in copies:
                copy.handler = None
            return copies
    return None


def prologue(code: CodeType) -> list[Instruction]:
    """Copies of the instructions that make the frame's cells, up to and with RESUME."""
    instructions = program_of(code).instructions
    for i, instr in enumerate(instructions):
        if instr.op == "RESUME":
            return clone(instructions[: i + 1])[0]
    return []


def resume_function(code: CodeType, f_globals: dict, name: str) -> types.FunctionType:
    return types.FunctionType(code, f_globals, name)


def closure_binder(code: CodeType, f_globals: dict) -> Callable[[tuple], types.FunctionType]:
    """Makes the resume function for the cells of one run of the frame."""

    def bind_closure(cells: tuple) -> types.FunctionType:
        return types.FunctionType(code, f_globals, code.co_name, None, cells)

    return bind_closure


def continuation(code: CodeType, f_globals: dict, at: int, nulls: Sequence[bool], names: Iterable[str],
                 tail_call: bool) -> list[Instruction]:
    """Instructions that take the stack as it is and return what the rest of ``code`` from ``at`` on returns.

    ``tail_call``: this is a resume function itself, so hand the next one to ``run_resumed`` instead of calling it.
    """
    direct = trivial_tail(program_of(code).instructions, at)
    if direct is not None:
        return direct
    names = list(names)
    new_code = split(code, at, nulls, names)
    out: list[Instruction] = []
    for i in reversed(range(len(nulls))):  # STORE_FAST of a NULL leaves the local unbound, which is all that is wanted
        out += ops.store_fast(f"{_STACK}{i}")
    runner = Tail if tail_call else run_resumed
    out += ops.callable(ops.load_const(runner))
    out += _load_resumed(new_code, f_globals)
    first = code.co_varnames[0] if calls_super(code) else None
    if first is not None:
        out += ops.load_deref(first) if first in code.co_cellvars else ops.load_fast(first)
    for i, null in enumerate(nulls):
        out += [] if null else ops.load_fast(f"{_STACK}{i}")
    for name in names:
        out += ops.load_fast(name)
    n = 1 + (first is not None) + sum(not null for null in nulls) + len(names)
    if tail_call:
        out += [*ops.build_tuple(n), *ops.call(1)]
    else:
        out += ops.call(n)
    return [*out, *ops.return_value()]


def _load_resumed(code: CodeType, f_globals: dict) -> list[Instruction]:
    if not code.co_freevars:
        return ops.load_const(resume_function(code, f_globals, code.co_name))
    out = ops.callable(ops.load_const(closure_binder(code, f_globals)))
    for name in code.co_freevars:
        out += ops.load_closure(name)
    return [*out, *ops.build_tuple(len(code.co_freevars)), *ops.call(1)]
