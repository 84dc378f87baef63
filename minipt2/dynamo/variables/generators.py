"""Generators of inlined code: consumed, sent to, thrown into and closed while tracing.

Upstream: ``LocalGeneratorObjectVariable`` in ``torch/_dynamo/variables/functions.py``.
"""
from __future__ import annotations

import types
from typing import TYPE_CHECKING, Iterable, Iterator, NoReturn

from ...errors import Unsupported
from ..bytecode import Instruction
from .base import ObservedException, Variable, unsupported
from .constant import ConstantVariable
from .exceptions import observed

if TYPE_CHECKING:
    from ..emit import Emitter
    from ..output_graph import OutputGraph
    from ..translator import Translator

_EVERY_GENERATORS = ("CALL_INTRINSIC_1", "CLEANUP_THROW")
"""Where exception handlers begin that 3.12 puts around the body of every generator and around every ``yield from``."""
_COMPARING = frozenset("PUSH_EXC_INFO LOAD_GLOBAL BUILD_TUPLE CHECK_EXC_MATCH POP_JUMP_IF_FALSE COPY POP_EXCEPT NOP".split())
"""What ``except SomeError:`` consists of for an exception of another class."""


class GeneratorVariable(Variable):
    """A generator of inlined code: a child translator that runs up to its next ``yield`` whenever a value is wanted."""

    def __init__(self, child: "Translator", remake: tuple[Variable, list[Variable], dict[str, Variable]]):
        super().__init__()
        self.child, self.remake = child, remake
        self.started = self.finished = False

    def python_type(self) -> type:
        return types.GeneratorType

    def truth(self, tx) -> bool:
        return True

    def iterator(self, tx) -> Variable:
        return self

    def next(self, tx) -> Variable:
        return self.send(tx, tx.constant(None))

    def send(self, tx, value: Variable) -> Variable:
        """The next value yielded; StopIteration (with the return value) is observed at the end."""
        tx.output.side_effects.mutate(self)
        if self.finished:
            raise observed(StopIteration)
        if self.started:
            self.child.push(value)
        else:
            self.start_step = tx.output.step
            tx.output.scratch("generators")[self] = None
        self.started = True
        return self._run(tx, None)

    def throw(self, tx, error: ObservedException) -> Variable:
        tx.output.side_effects.mutate(self)
        if self.finished or not self.started:
            self.finished = True
            raise error
        return self._run(tx, error)

    def _run(self, tx, error: ObservedException | None) -> Variable:
        try:
            yielded, value = self.child.run_to_yield(tx, error)
        except BaseException:
            self.finished = True
            raise
        if yielded:
            return value
        self.finished = True
        raise observed(StopIteration, *([] if _is_none(value) else [value]))

    def iterate(self, tx) -> list[Variable]:
        items = []
        while True:
            try:
                items.append(self.next(tx))
            except ObservedException as error:
                if error.matches(StopIteration) and self.finished:
                    return items
                raise

    def getattr(self, tx, name) -> Variable:
        from .containers import BoundMethodVariable

        if name in ("send", "throw", "close", "__next__", "__iter__"):
            return BoundMethodVariable(self, name)
        return super().getattr(tx, name)

    def call_method(self, tx, name, args, kwargs) -> Variable:
        if name == "__next__":
            return self.next(tx)
        if name == "__iter__":
            return self
        if name == "send":
            return self.send(tx, args[0])
        if name == "throw":
            is_class = issubclass(args[0].python_type(), type)
            return self.throw(tx, ObservedException(args[0].call(tx, args[1:2], {}) if is_class else args[0]))
        if name == "close":
            return self._close(tx)
        unsupported("MP207", f"method {name!r} of a generator")

    def _close(self, tx) -> Variable:
        try:
            if self.started and not self.finished:
                self.throw(tx, observed(GeneratorExit))
                raise observed(RuntimeError, "generator ignored GeneratorExit")
        except ObservedException as error:
            if not error.matches(GeneratorExit, StopIteration):
                raise
        self.finished = True
        return tx.constant(None)

    def cleans_up(self) -> bool:
        """Whether it has a ``finally`` or ``with`` that runs when it is dropped half-way."""
        return not self.finished and any(_cleans_up(self.child, instr) for instr in self.child.program.instructions)

    def check_left(self) -> None:
        """Python closes a generator that is dropped half-way; one with a ``finally`` or ``with`` to leave is not ours then."""
        if not self.finished and _cleans_up(self.child, self.child.current):
            self._refuse(f"generator {self.child.code.co_qualname} is left half-way and has code to run when it is dropped")

    def _refuse(self, reason: str) -> NoReturn:
        error = Unsupported("MP903", reason)
        error.step = self.start_step  # break there instead
        raise error

    def reconstruct(self, cg: "Emitter") -> None:
        if self.started:
            self._refuse("a generator that has started cannot be handed to code outside the graph")
        fn, args, kwargs = self.remake
        cg.call_value(fn, args, kwargs)


def holds_cleanup(output: "OutputGraph", values: Iterable[Variable]) -> bool:
    """Whether one of ``values`` is, or holds, a generator made while tracing that has code to run when it is dropped."""
    wanted = {made for made in output.scratch("all generators") if made.cleans_up()}
    work, seen = list(values) if wanted else [], set()
    while work:
        var = work.pop()
        if var in wanted:
            return True
        if var not in seen:
            seen.add(var)
            work += _held(var)
    return False


def _held(var: Variable) -> Iterator[Variable]:
    """Variables that ``var`` refers to: iterators of iterators do not list all of theirs as children."""
    for value in (*var.children(), *vars(var).values()):
        yield from (v for v in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(v, Variable))


def _cleans_up(child: "Translator", instr: Instruction) -> bool:
    """Whether a ``GeneratorExit`` raised at ``instr`` would run code of the program's own before it leaves the generator."""
    handler = instr.handler
    while handler is not None and handler.target.op not in _EVERY_GENERATORS:
        left = _unmatched(child, handler.target)
        if left is None:
            return True
        handler = left.handler
    return False


def _unmatched(child: "Translator", target: Instruction) -> Instruction | None:
    """Where an exception handler that begins at ``target`` raises ``GeneratorExit`` again, having compared it with other classes only."""
    i = child.program.index[target]
    while True:
        instr = child.program.instructions[i]
        if instr.op == "RERAISE":
            return instr
        if instr.op not in _COMPARING or instr.op == "LOAD_GLOBAL" and not _is_error(child, instr.arg):
            return None
        i = child.program.index[instr.target] if instr.op == "POP_JUMP_IF_FALSE" else i + 1


def _is_error(child: "Translator", name: str) -> bool:
    value = child.f_globals.get(name, child.f_builtins.get(name))
    return isinstance(value, type) and issubclass(value, Exception)


def _is_none(value: Variable) -> bool:
    return isinstance(value, ConstantVariable) and value.value is None
