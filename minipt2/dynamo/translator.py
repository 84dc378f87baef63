"""The symbolic interpreter: executes one frame's bytecode on variables instead of values.

In: a code object, variables for its parameters, an ``OutputGraph`` to fill. Out: the variable returned, or, for the frame
being compiled, where the graph must break. Handlers live in ``opcodes/`` by family. Inlined calls run in child translators.
Upstream: ``torch/_dynamo/symbolic_convert.py``.
"""
from __future__ import annotations

import builtins
import inspect
from types import CodeType
from typing import TYPE_CHECKING, Any, Iterable

from .. import trace
from ..errors import Unsupported, UserFrame
from ..exercise import exercise
from .bytecode import Instruction, decode
from .per_code import PerCode
from .skip import check_inline, is_hidden
from .variables.base import ObservedException, Variable, unsupported
from .variables.constant import ConstantVariable
from .variables.functions import CellVariable, bind_arguments
from .variables.generators import GeneratorVariable

if TYPE_CHECKING:
    from .output_graph import OutputGraph
    from .source import Source

MAX_INLINE_DEPTH = 64


class Null(Variable):
    """The NULL that calls keep on the stack."""

    def describe(self) -> str:
        return "NULL"


NULL = Null()


class Program:
    """A code object decoded once: instructions, the handler of each, and where jumps lead."""

    def __init__(self, code: CodeType):
        from .opcodes import handler_for

        self.instructions: tuple[Instruction, ...] = tuple(decode(code))
        self.handlers = [handler_for(instr) for instr in self.instructions]
        self.index = {instr: i for i, instr in enumerate(self.instructions)}
        self.user_frames: dict[int | None, UserFrame] = {}


program_of = PerCode(Program)


class Raised:
    """An exception that a handler of this frame is dealing with, and which step of the outermost frame raised it."""

    __slots__ = ("value", "step")

    def __init__(self, value: Variable, step: int):
        self.value, self.step = value, step


class Translator:
    """The state of one frame: locals, cells, stack, next instruction. ``hidden``: not a frame of the user's."""

    def __init__(self, output: "OutputGraph", code: CodeType, f_globals: dict, parent: "Translator | None" = None):
        self.output, self.code, self.f_globals, self.parent = output, code, f_globals, parent
        self.f_builtins = output.f_builtins
        self.program = program_of(code)
        self.locals: dict[str, Variable] = {}
        self.cells: dict[str, CellVariable] = {}
        self.stack: list[Variable] = []
        self.handled: list[Raised] = []
        self.pc = 0
        self.current: Instruction = self.program.instructions[0]
        self.depth = parent.depth + 1 if parent else 0
        self.fn_source: "Source | None" = None
        self.raise_step = 0  # step of the outermost frame at which the exception being unwound was raised
        self.returned: Variable | None = None
        self.yielded: Variable | None = None
        self.hidden = is_hidden(code)
        self.outer_frames = () if parent is None else parent.outer_frames if parent.hidden else parent.frames()

    # -- the stack -------------------------------------------------------------------------------------------------
    def push(self, value: Variable) -> None:
        self.stack.append(value)

    def pop(self) -> Variable:
        return self.stack.pop()

    @exercise("1.2")
    def popn(self, n: int) -> list[Variable]:
        """Take the top ``n`` values, the deepest first."""
        # >>> 1.2
        if n == 0:
            return []
        values = self.stack[-n:]
        del self.stack[-n:]
        return values
        # <<< 1.2

    def jump(self, target: Instruction) -> None:
        self.pc = self.program.index[target]

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self) -> Variable:
        """Interpret until the frame returns; exceptions of the traced program unwind its own exception table."""
        outer, self.output.tx = self.output.tx, self
        try:
            while self.returned is None and self.yielded is None:
                self.step()
        finally:
            self.output.tx = outer
        return self.returned if self.returned is not None else self.yielded

    @exercise("1.2")
    def step(self) -> None:
        """Run one instruction; an exception of the traced program goes to its handler."""
        # >>> 1.2
        pc = self.pc
        self.current = instr = self.program.instructions[pc]
        self.pc = pc + 1
        trace.artifact("instruction", self.code.co_qualname, self)
        try:
            self.program.handlers[pc](self, instr)
        except ObservedException as error:
            self.unwind(instr, error)
        # <<< 1.2

    @exercise("1.2")
    def unwind(self, instr: Instruction, error: ObservedException) -> None:
        """Send a traced exception to the instruction's handler, or out of the frame."""
        # >>> 1.2
        handler = instr.handler
        if instr.op != "RERAISE":
            self.raise_step = self.output.step
            if not error.unwound:
                self._note_context(error.value)
        error.unwound = True
        if handler is None:
            raise error
        self.output.side_effects.touch()
        del self.stack[handler.depth :]
        if handler.lasti:
            self.push(ConstantVariable(instr.offset))
        self.push(error.value)
        self.jump(handler.target)
        # <<< 1.2

    def being_handled(self) -> Variable | None:
        """The exception that a bare ``raise`` would raise again."""
        frame: Translator | None = self
        while frame is not None:
            if frame.handled:
                return frame.handled[-1].value
            frame = frame.parent
        return None

    def _note_context(self, value: Variable) -> None:
        handled = self.being_handled()
        if handled is not None and handled is not value and hasattr(value, "context"):
            value.context = handled

    def run_to_yield(self, tx: "Translator", error: ObservedException | None) -> tuple[bool, Variable]:
        """For generators: run until a ``yield`` (True, value) or the return (False, value); first raise ``error`` inside."""
        self.yielded = None
        self.outer_frames = tx.frames()
        if error is not None:
            self._throw(error)
        value = self.run()
        return self.returned is None, value

    def _throw(self, error: ObservedException) -> None:
        """Raise ``error`` at the ``yield`` where the generator waits; in ``yield from`` the inner generator gets it first."""
        from .opcodes.control import end_of_inner

        after = self.program.instructions[self.pc]
        inner = self.stack[-1] if self.stack else None
        if after.op == "RESUME" and after.arg & 3 == 2 and isinstance(inner, GeneratorVariable):
            try:
                self.yielded = inner.throw(self, error)
                return
            except ObservedException as raised:
                if raised.matches(StopIteration):
                    return end_of_inner(self, self.program.instructions[self.pc + 1].target, raised)
                error = raised
        self.unwind(self.current, error)

    # -- where we are ----------------------------------------------------------------------------------------------
    def frames(self) -> tuple[UserFrame, ...]:
        """The user's lines being executed, outermost first."""
        line = self.current.line
        cache = self.program.user_frames
        frame = cache.get(line)
        if frame is None:
            frame = cache[line] = UserFrame.at(self.code.co_filename, line or self.code.co_firstlineno, self.code.co_name)
        return (*self.outer_frames, frame)

    def root(self) -> "Translator":
        return self if self.parent is None else self.parent.root()

    # -- names -----------------------------------------------------------------------------------------------------
    def load_local(self, name: str) -> Variable:
        try:
            return self.locals[name]
        except KeyError:
            from .variables.exceptions import observed

            raise observed(UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value") from None

    def is_bound(self, name: str) -> bool:
        return name in self.locals

    def store_local(self, name: str, value: Variable) -> None:
        self.locals[name] = value

    def cell(self, name: str) -> CellVariable:
        return self.cells[name]

    def load_cell(self, name: str) -> Variable:
        from .variables.exceptions import observed

        cell = self.cells[name]
        contents = cell.contents
        if contents is None and cell.real is not None and cell not in self.output.side_effects.cells:
            contents = self.existing_contents(cell)
        if contents is None:
            if name in self.code.co_cellvars:
                raise observed(UnboundLocalError, f"cannot access local variable {name!r} where it is not associated with a value")
            raise observed(NameError, f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope")
        return contents

    def existing_contents(self, cell: CellVariable) -> Variable | None:
        try:
            value = cell.real.cell_contents
        except ValueError:
            return None
        cell.contents = self.wrap_or_constant(value, cell.contents_source)
        return cell.contents

    def load_global(self, name: str) -> Variable:
        pending = self.output.side_effects.load_global(self.f_globals, name)
        if pending is not None and pending is not self.output.side_effects.DELETED:
            return pending
        key = (id(self.f_globals), name)
        seen = self.output.globals_seen.get(key)
        if seen is None:
            seen = self.output.globals_seen[key] = self._read_global(name)
        return seen

    def _read_global(self, name: str) -> Variable:
        from .source import FunctionGlobalSource, GlobalSource, ImportSource
        from .variables.exceptions import observed

        if name in self.f_globals:
            value = self.f_globals[name]
            if self.f_globals is self.output.f_globals:
                return self.wrap(value, GlobalSource(name))
            module = self.f_globals.get("__name__")
            if is_module_dict(module, self.f_globals) and name.isidentifier():
                return self.wrap(value, ImportSource(module, name))
            if self.fn_source is not None:
                return self.wrap(value, FunctionGlobalSource(self.fn_source, name))
            return self.wrap_constant(value)
        if name in self.f_builtins:
            self._guard_builtin(name)
            return self.wrap_or_constant(self.f_builtins[name], None)
        raise observed(NameError, f"name {name!r} is not defined")

    def _guard_builtin(self, name: str) -> None:
        """A builtin stays what it is, and no global of its name appears before it."""
        from .source import AttrSource, GlobalsSource, ImportSource

        module, value = self.f_globals.get("__name__"), self.f_builtins[name]
        scope = None
        if self.f_globals is self.output.f_globals:
            scope = GlobalsSource()
        elif is_module_dict(module, self.f_globals):
            scope = ImportSource(module, "__dict__")
        elif self.fn_source is not None:
            scope = AttrSource(self.fn_source, "__globals__")
        self.output.guard(scope, "NOT_CONTAINS", name)
        if vars(builtins).get(name) is value and name != "super":
            self.output.guard(ImportSource("builtins", name), "ID", value)

    def first_argument(self) -> Variable:
        """What zero-argument ``super()`` takes as the object."""
        name = self.code.co_varnames[0] if self.code.co_argcount else self.code.co_freevars[0]
        return self.load_cell(name) if name in self.cells else self.load_local(name)

    # -- wrapping --------------------------------------------------------------------------------------------------
    def wrap(self, value: Any, source: "Source") -> Variable:
        from .variables.builder import wrap

        return wrap(self, value, source)

    def wrap_or_constant(self, value: Any, source: "Source | None") -> Variable:
        return self.wrap(value, source) if source is not None else self.wrap_constant(value)

    def wrap_attribute(self, value: Any, owner: "Source | None", name: str) -> Variable:
        from .source import AttrSource

        return self.wrap_or_constant(value, AttrSource(owner, name) if owner is not None else None)

    def constant(self, value: Any) -> Variable:
        return ConstantVariable(value)

    def wrap_constant(self, value: Any) -> Variable:
        from .variables.builder import from_constant

        return from_constant(value)

    def tuple(self, items: Iterable[Variable]) -> Variable:
        from .variables.lists import TupleVariable

        return TupleVariable(list(items))

    def list(self, items: Iterable[Variable]) -> Variable:
        from .variables.lists import ListVariable

        return self.output.side_effects.track_new(ListVariable(list(items)))

    def dict(self, pairs: Iterable[tuple[Variable, Variable]]) -> Variable:
        from .variables.dicts import DictVariable

        return self.output.side_effects.track_new(DictVariable.from_pairs(self, list(pairs)))

    def constant_items(self, items: list[Variable]) -> Variable:
        return self.tuple(items)

    def items_iterator(self, items: list[Variable]) -> Variable:
        return self.tuple(items).iterator(self)

    # -- calls -----------------------------------------------------------------------------------------------------
    def inline_call(self, fn: Any, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        """Interpret the Python function ``fn`` (a function variable) here; a generator function gives a generator."""
        check_inline(fn)
        code = fn.get_code()
        if self.depth > MAX_INLINE_DEPTH:
            unsupported("MP401", f"calls nested more than {MAX_INLINE_DEPTH} deep ({code.co_qualname})")
        if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            unsupported("MP402", f"async function {code.co_qualname}")
        child = Translator(self.output, code, fn.get_globals(), parent=self)
        child.fn_source = fn.source
        child.bind(bind_arguments(self, fn, args, kwargs), fn.cells(self))
        if code.co_flags & inspect.CO_GENERATOR:
            made = GeneratorVariable(child, (fn, args, kwargs))
            self.output.scratch("all generators")[made] = None
            return self.output.side_effects.track_new(made)
        try:
            return child.run()
        except Unsupported as error:
            if not error.frames:
                error.frames = child.frames()
            raise
        except RecursionError:
            unsupported("MP401", f"recursion too deep to inline ({code.co_qualname})")

    def bind(self, arguments: dict[str, Variable], closure: list[CellVariable]) -> None:
        """Give an inlined frame its parameters, its own cells and its closure."""
        self.locals = arguments
        for name in self.code.co_cellvars:
            self.cells[name] = CellVariable(self.locals.pop(name, None))
        self.cells.update(zip(self.code.co_freevars, closure))


def is_module_dict(name: Any, f_globals: dict) -> bool:
    import sys

    module = sys.modules.get(name) if isinstance(name, str) else None
    return module is not None and getattr(module, "__dict__", None) is f_globals
