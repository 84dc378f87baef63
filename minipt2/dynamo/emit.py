"""The emitter: writes the code that runs around a graph; variables push themselves with it (``cg(var)``).

In: variables, sources, constants. Out: canonical instructions for ``bytecode.assemble``. Objects with an identity are built
once and kept in temporary locals. Upstream: ``torch/_dynamo/codegen.py``.
"""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Iterable

import torch

from .. import shapes
from . import hook
from .bytecode import Instruction
from .bytecode.decode import DIALECT
from .source import AttrSource, ItemSource, Source
from .variables.base import Variable, unsupported
from .variables.constant import ConstantVariable
from .variables.numbers import depends_on_data

if TYPE_CHECKING:
    from .output_graph import OutputGraph
    from .variables.functions import CellVariable

GRAPH_OUT = "__minipt2_graph_out"


class Emitter:
    """Builds ``instructions``; ``cell_names`` are the names that are cells of the code being written."""

    def __init__(self, output: "OutputGraph", cell_names: Iterable[str]):
        self.output, self.cell_names = output, frozenset(cell_names)
        self.instructions: list[Instruction] = []
        self.temps: dict[Variable, str] = {}
        self._building: set[Variable] = set()
        self._queue: list[Variable] = []
        self._cells_later: list["CellVariable"] = []
        self._sources: dict["Source", str] = {}
        self._shared: set["Source"] = set()
        self.prefix, self._ntemps = "__minipt2_", 0
        self.outputs: list[Any] = []
        self._output_index: dict[Any, int] = {}

    # -- instructions ----------------------------------------------------------------------------------------------
    def add(self, op: str, arg: Any = None, flag: int = 0) -> Instruction:
        instr = Instruction(op, arg, flag=flag)
        self.instructions.append(instr)
        return instr

    def load_const(self, value: Any) -> None:
        self.add("LOAD_CONST", value)

    def load_local(self, name: str) -> None:
        self.add("LOAD_DEREF" if name in self.cell_names else "LOAD_FAST", name)

    def store_local(self, name: str) -> None:
        self.add("STORE_DEREF" if name in self.cell_names else "STORE_FAST", name)

    def load_cell(self, name: str) -> None:
        """What the cell of a cell or free variable holds."""
        self.add("LOAD_DEREF", name)

    def load_closure(self, name: str) -> None:
        """The cell itself."""
        self.add("LOAD_CLOSURE", name)

    def load_global(self, name: str) -> None:
        if name in self.output.f_globals or name in self.output.f_builtins:
            self.add("LOAD_GLOBAL", name)
        else:
            unsupported("MP903", f"global {name!r} is not visible from the compiled frame")

    def load_attr(self, name: str) -> None:
        self.add("LOAD_ATTR", name)

    def store_attr(self, name: str) -> None:
        self.add("STORE_ATTR", name)

    def binary_subscr(self) -> None:
        self.add("BINARY_SUBSCR")

    def store_subscr(self) -> None:
        self.add("STORE_SUBSCR")

    def build(self, kind: str, n: int) -> None:
        self.add(f"BUILD_{kind.upper()}", n)

    def pop(self) -> None:
        self.add("POP_TOP")

    def dup(self) -> None:
        self.add("COPY", 1)

    def swap(self, n: int) -> None:
        self.add("SWAP", n)

    # -- calls -----------------------------------------------------------------------------------------------------
    def prepare_call(self, push_callable: Callable[[], None]) -> None:
        """The callable with the NULL that belongs to a plain call, in this CPython's order; arguments and ``call`` follow."""
        if DIALECT.null_first:
            self.add("PUSH_NULL")
        push_callable()
        if not DIALECT.null_first:
            self.add("PUSH_NULL")

    callable = prepare_call

    def call(self, n: int, kwnames: tuple[str, ...] = ()) -> None:
        """Call with ``n`` arguments on the stack, the last ``len(kwnames)`` of them by keyword."""
        if kwnames:
            self.add("CALL_KW", (n, tuple(kwnames)))
        else:
            self.add("CALL", n)

    def call_const(self, fn: Any, args: Iterable[Variable], kwargs: dict[str, Variable] | None = None) -> None:
        """Push the result of the real ``fn`` called with the values of ``args`` and ``kwargs``."""
        self._call(lambda: self.load_const(fn), args, kwargs)

    def call_value(self, fn: Variable, args: Iterable[Variable], kwargs: dict[str, Variable] | None = None) -> None:
        """The same for a callable that is itself a variable."""
        self._call(lambda: self(fn), args, kwargs)

    def _call(self, push: Callable[[], None], args: Iterable[Variable], kwargs: dict[str, Variable] | None) -> None:
        args, kwargs = list(args), kwargs or {}
        self.prepare_call(push)
        for arg in (*args, *kwargs.values()):
            self(arg)
        self.call(len(args) + len(kwargs), tuple(kwargs))

    def load_method_call(self, name: str, args: Iterable[Variable]) -> None:
        """Replace the object on top of the stack by the result of its method ``name``."""
        args = list(args)
        self.add("LOAD_METHOD", name)
        for arg in args:
            self(arg)
        self.call(len(args))

    def set_grad(self, enabled: bool) -> None:
        self.call_const(torch._C._set_grad_enabled, [ConstantVariable(enabled)])
        self.pop()

    def enter_context(self, context: Variable) -> None:
        """Build the manager, enter it for real, and leave its bound ``__exit__`` on the stack."""
        self(context)
        self.dup()
        self.load_attr("__exit__")
        self.swap(2)
        self.load_method_call("__enter__", [])
        self.pop()

    # -- values ----------------------------------------------------------------------------------------------------
    def __call__(self, var: Variable) -> None:
        """Push ``var``'s value."""
        if isinstance(var, ConstantVariable):
            return self.load_const(var.value)
        if var in self.temps:
            self.add("LOAD_FAST", self.temps[var])
            return
        if var.source is not None:
            self.load_source(var.source)
        else:
            if var in self._building:
                unsupported("MP903", f"{var.describe()} contains itself")
            self._building.add(var)
            var.reconstruct(self)
            self._building.discard(var)
            if var in self.output.side_effects.writes:
                self._queue += [v for v in self.output.side_effects.attrs(var).values() if isinstance(v, Variable)]
        self.temps[var] = self._store_temp()

    def _store_temp(self) -> str:
        """Keep the value on top of the stack in a new temporary too."""
        self._ntemps += 1
        name = f"{self.prefix}{self._ntemps}"
        self.dup()
        self.add("STORE_FAST", name)
        return name

    def load_source(self, source: "Source") -> None:
        """Push a source's value; the beginnings of paths that ``share_paths`` found are read once."""
        if source in self._sources:
            self.add("LOAD_FAST", self._sources[source])
            return
        if isinstance(source, AttrSource):
            self.load_source(source.parent)
            self.load_attr(source.attr)
        elif type(source) is ItemSource:
            self.load_source(source.parent)
            self.load_const(source.key)
            self.binary_subscr()
        else:
            source.load(self)
        if source in self._shared:
            self._sources[source] = self._store_temp()

    def share_paths(self, sources: Iterable["Source"]) -> None:
        """Note the sources that several of ``sources`` pass through (a module with many parameters)."""
        seen: set[Source] = set()
        for source in sources:
            at = source.base
            while at is not None and at.base is not None:
                if at in seen:
                    self._shared.add(at)
                    break
                seen.add(at)
                at = at.base

    def graph_output(self, result: Any) -> None:
        """Push what the graph computes, a node's tensor or a symbolic number (it becomes one of the graph's outputs)."""
        key = shapes.known.key(result)
        index = self._output_index.get(key)
        if index is None:
            index = self._output_index[key] = len(self.outputs)
            self.outputs.append(result)
        self.add("LOAD_FAST", GRAPH_OUT)
        self.load_const(index)
        self.binary_subscr()

    def number(self, value: Any) -> None:
        """Push a symbolic number, computed from the sizes and numbers that this frame was called with, or by the graph."""
        if depends_on_data(value):
            return self.graph_output(value)
        symbols = self.output.symbols_of(value)
        names = {var.value.node.expr: f"x{k}" for k, var in enumerate(symbols)}
        text = f"lambda {', '.join(names.values())}: {shapes.python(value.node.expr, names.__getitem__)}"
        compute = eval(text, {"math": math})
        hook.never_capture(compute.__code__)
        self.call_const(compute, symbols)

    def stash(self, var: Variable) -> None:
        """Make sure that ``cg(var)`` from now on reads a temporary or a constant."""
        if not isinstance(var, ConstantVariable) and var not in self.temps:
            self(var)
            self.pop()

    def stash_pending(self) -> None:
        """Stash what goes into the new objects built so far (their attributes are stored with the side effects)."""
        while self._queue:
            self.stash(self._queue.pop())

    def was_built(self, var: Variable) -> bool:
        return var in self.temps

    # -- cells and globals -----------------------------------------------------------------------------------------
    def later_cell(self, cell: "CellVariable") -> None:
        """A cell made here gets its contents with the side effects."""
        if cell.contents is not None:
            self._cells_later.append(cell)
            self._queue.append(cell.contents)

    def store_cell(self, cell: "CellVariable") -> None:
        """Store the final contents into a cell of this frame or one that exists elsewhere."""
        if cell.contents is None:  # it may be empty as it is, which DELETE_DEREF would refuse
            self(cell)
            self.add("DELETE_ATTR", "cell_contents")
            return
        if cell.name is not None:
            self(cell.contents)
            self.add("STORE_DEREF", cell.name)
            return
        self(cell.contents)
        self(cell)
        self.store_attr("cell_contents")

    def fill_cells(self) -> None:
        for cell in self._cells_later:
            self(cell.contents)
            self(cell)
            self.store_attr("cell_contents")

    def store_global(self, f_globals: dict, name: str, value: Variable | None) -> None:
        if value is not None and f_globals is self.output.f_globals:
            self(value)
            self.add("STORE_GLOBAL", name)
            return
        if value is None:  # it may have been set while tracing only
            self.call_const(f_globals.pop, [ConstantVariable(name), ConstantVariable(None)])
        else:
            self.call_const(_global_setter(f_globals), [ConstantVariable(name), value])
        self.pop()

    def clear_temps(self) -> None:
        """Let go of everything held only for this emission (graph outputs are large)."""
        names = list(dict.fromkeys([*self.temps.values(), *self._sources.values()]))
        for name in [*names, *([GRAPH_OUT] if self.outputs else [])]:
            self.add("DELETE_FAST", name)


def _global_setter(f_globals: dict) -> Callable[[str, Any], None]:
    def set_global(name: str, value: Any) -> None:
        f_globals[name] = value

    return set_global
