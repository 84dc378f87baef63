"""Compiling one frame: interpret it, and write the code that replaces it.

In: the frame from the hook and a backend. Out: new code and the guards under which it may run. A frame that cannot be
broken where it should be (or whose state cannot be made real there) raises ``SkipFrame`` and runs as it was.
Upstream: ``torch/_dynamo/convert_frame.py`` and ``OutputGraph.compile_subgraph``.
"""
from __future__ import annotations

from types import CodeType
from typing import Any, Callable

import torch

from .. import trace
from ..config import config
from ..errors import BackendError, FixedSize, Unsupported, of_graph
from . import hook
from .assumptions import Assumptions, assumptions_of, original_code, run_assuming_maker
from .guard_kinds import describe
from .bytecode import Instruction, assemble, clone, ops
from .dynamic import Dynamism
from .emit import GRAPH_OUT, Emitter
from .modes import preserved
from .output_graph import OutputGraph
from .resume import continuation, is_resume_code, live_names, prologue, puts_stack_back, reachable
from .stack_effect import split_null, stack_after
from .translator import NULL, Translator
from .variables.base import ObservedException, Variable
from .variables.functions import CellVariable, ContextExitVariable
from .variables.generators import holds_cleanup

Backend = Callable[[torch.fx.GraphModule, list], Callable]
MAX_ATTEMPTS = 64


class SkipFrame(Exception):
    """The frame cannot be compiled; it runs as it is. ``reason`` (MP900) names what could not be cut around."""

    def __init__(self, name: str, met: Unsupported, also: str = ""):
        text = f"{name} cannot be captured in pieces: [{met.code}] {met.reason}{also}"
        self.reason = Unsupported("MP900", text, met.advice, met.frames)
        super().__init__(text)


class Restart(Exception):
    """Interpret the frame again, and break before step ``step`` this time."""

    def __init__(self, step: int, reason: Unsupported):
        super().__init__(step)
        self.step, self.reason = step, reason


class Compiled:
    """New code for a frame, the guards it needs, and the graph module it calls (None: no tensor operations)."""

    def __init__(self, code: CodeType, guards: list, gm: torch.fx.GraphModule | None, assumptions: Assumptions | None = None):
        self.code, self.guards, self.gm, self.assumptions = code, guards, gm, assumptions


def compile_frame(frame: Any, backend: Backend, fullgraph: bool, broke: Callable[[Unsupported, bool], None], dynamism: Dynamism) -> Compiled:
    """Interpret and rewrite ``frame`` (of the hook: f_code, f_locals, f_globals, f_builtins, closure).

    ``broke(reason, inlined)`` is told of a break, and whether an inlined function met it, whose own frame will meet it again.
    """
    name = frame.f_code.co_qualname
    breaks: dict[int, Unsupported] = {}
    for _ in range(MAX_ATTEMPTS):
        with preserved():
            translator = None
            try:
                translator = FrameTranslator(frame, breaks, backend, fullgraph, broke, dynamism)
                return translator.translate()
            except Restart as again:
                if again.step in breaks:
                    raise SkipFrame(name, again.reason) from again
                breaks[again.step] = again.reason
            except FixedSize:
                raise
            except Unsupported as error:  # the state at the frame's end cannot be made real
                if fullgraph:
                    raise
                raise SkipFrame(name, error) from error
            finally:
                if translator is not None:
                    translator.forget()
    raise SkipFrame(name, next(reversed(breaks.values())), " (too many attempts)")


def run_graph_maker(fn: Callable) -> Callable:
    """``fn`` behind a frame below which nothing is captured; what it raises names the user's lines."""

    def run_graph(*args: Any) -> tuple:
        try:
            return fn(*args)
        except Exception as error:
            of_graph(error)
            raise

    return run_graph


def run_stateful_graph_maker(fn: Callable) -> Callable:
    """The same for a graph that switches grad mode: an exception inside it must not leave the mode switched."""

    def run_graph(*args: Any) -> tuple:
        grad = torch.is_grad_enabled()
        try:
            return fn(*args)
        except BaseException as error:
            torch._C._set_grad_enabled(grad)
            of_graph(error)
            raise

    return run_graph


hook.never_capture_below(run_graph_maker(len).__code__)
hook.never_capture_below(run_stateful_graph_maker(len).__code__)


class FrameTranslator(Translator):
    """The translator of the frame being compiled: it alone may break, so it also writes the code that follows."""

    def __init__(self, frame: Any, breaks: dict[int, Unsupported], backend: Backend, fullgraph: bool,
                 broke: Callable[[Unsupported, bool], None], dynamism: Dynamism):
        code = frame.f_code
        output = OutputGraph(code, frame.f_globals, frame.f_builtins, frame.closure or (), dynamism)
        super().__init__(output, code, frame.f_globals)
        output.tx = self
        self.assumptions: Assumptions | None = None
        self.breaks, self.backend, self.fullgraph, self.broke = breaks, backend, fullgraph, broke
        self._arrive(frame)

    def _arrive(self, frame: Any) -> None:
        """Parameters are wrapped when first read; own cells hold them already; the closure is known by its cells."""
        from .source import LocalSource

        code, values = self.code, frame.f_locals
        hidden = {*code.co_cellvars, *code.co_freevars}
        self.arrived: dict[str, Any] = {k: v for k, v in values.items() if k not in hidden}
        for name in code.co_cellvars:
            cell = self.cells[name] = CellVariable(name=name)
            if name in values:
                cell.contents = self.wrap(values[name], LocalSource(name))
        for name, real in zip(code.co_freevars, frame.closure or ()):
            self.cells[name] = self.output.existing_cell(self, real, None)

    def forget(self) -> None:
        """Let go of the user's objects now, not when the collector comes: a generator that is dropped has to close at once."""
        vars(self.output).clear()
        vars(self).clear()

    # -- locals ----------------------------------------------------------------------------------------------------
    def load_local(self, name: str) -> Variable:
        if name in self.arrived:
            from .source import LocalSource

            self.locals[name] = self.wrap(self.arrived[name], LocalSource(name))
            del self.arrived[name]  # only now: what cannot be wrapped is still there for the code after the break
        return super().load_local(name)

    def store_local(self, name: str, value: Variable) -> None:
        self.arrived.pop(name, None)
        self.locals[name] = value

    def is_bound(self, name: str) -> bool:
        return name in self.locals or name in self.arrived

    # -- running ---------------------------------------------------------------------------------------------------
    def translate(self) -> Compiled:
        """Step until the frame returns or breaks, and write its code."""
        output, effects = self.output, self.output.side_effects
        output.guard_global_state()
        while self.returned is None:
            output.step += 1
            start = self.pc
            mark, version, stack = output.mark(), effects.version, list(self.stack)
            planned = self.breaks.get(output.step)
            if planned is not None:
                self.current = self.program.instructions[start]
                return self.finish_break(start, planned)
            try:
                self.step()
            except (Unsupported, ObservedException) as error:
                reason = self._reason(error)
                if self.fullgraph and isinstance(error, Unsupported):
                    raise reason from None
                self._restart_if_changed(error, reason, version)
                output.rollback(mark)
                self.stack, self.pc = stack, start
                return self.finish_break(start, reason)
        try:
            return self.finish_return()
        except Unsupported as error:
            self._break_earlier(error, self._reason(error))
            raise

    def _reason(self, error: Exception) -> Unsupported:
        if isinstance(error, ObservedException):
            text = f"{error.value.describe()} leaves the frame"
            return Unsupported("MP407", text, "exceptions that nobody catches are raised outside graphs", self.frames())
        if not error.frames:
            error.frames = self.frames()
        return error if config.raise_internal_errors else error.with_traceback(None)  # which would keep what was traced alive

    def _restart_if_changed(self, error: Exception, reason: Unsupported, version: int) -> None:
        """Breaking right here is only possible if the failed instruction has left no traces, outside of handlers."""
        step = self.output.step
        if getattr(error, "step", step) < step:
            raise Restart(error.step, reason)
        if self.handled:
            raise Restart(self.handled[0].step, reason)
        if isinstance(error, ObservedException) and self.current.op == "RERAISE":
            raise Restart(self.raise_step, reason)
        if self.output.side_effects.version != version:
            raise Restart(step, reason)

    def _break_earlier(self, error: Unsupported, reason: Unsupported) -> None:
        """What cannot be made real here may be left to the real program by a break where it began."""
        step = getattr(error, "step", None)
        if step is not None and step < self.output.step and not self.fullgraph:
            raise Restart(step, reason) from error

    # -- writing code ----------------------------------------------------------------------------------------------
    def finish_return(self) -> Compiled:
        """Nothing broke: graph, side effects, the returned value."""
        if self.output.is_empty() and self.output.side_effects.is_empty() and not self.output.state_changed():
            return Compiled(self.code, self.output.guard_list(), None)
        cg = self._emitter()
        modes = self._modes()
        self._materialise(cg, [self.returned], [])
        self._emit_modes(cg, modes)
        cg.add("RETURN_VALUE")
        return self._assemble(cg, [])

    def finish_break(self, at: int, reason: Unsupported) -> Compiled:
        """The graph so far, the frame's state made real, the instruction itself, and what follows it."""
        instr = self.program.instructions[at]
        if puts_stack_back(instr):
            raise SkipFrame(self.code.co_qualname, reason)
        if self.handled:  # the exception being handled has to be a real one: break where it was raised
            if self.handled[0].step < self.output.step:
                raise Restart(self.handled[0].step, reason)
            raise SkipFrame(self.code.co_qualname, reason)
        live = live_names(self.code)[at]
        restored = [(n, v) for n, v in self.locals.items() if n in live and not _in_place(n, v)]
        if holds_cleanup(self.output, [*self.stack, *(v for _, v in restored)]):
            raise SkipFrame(self.code.co_qualname, reason, " while it holds a generator that cleans up, which code after a break would hold too long")
        cg = self._emitter()
        modes = self._modes()
        try:
            self._materialise(cg, self.stack, [v for _, v in restored])
        except Unsupported as error:
            self._break_earlier(error, reason)
            raise SkipFrame(self.code.co_qualname, reason, f"; {error.reason}") from error
        for name, _ in reversed(restored):
            cg.add("STORE_FAST", name)
        self._emit_modes(cg, modes)
        cg.clear_temps()
        self.broke(reason, self.hidden or len(reason.frames) > 1)
        return self._assemble(cg, self._broken(at, instr))

    def _emitter(self) -> Emitter:
        return Emitter(self.output, (*self.code.co_cellvars, *self.code.co_freevars))

    def _materialise(self, cg: Emitter, stack: list[Variable], values: list[Variable]) -> None:
        """Push the stack and the values, with every object they need in its final state; replay side effects."""
        for generator in self.output.scratch("generators"):
            generator.check_left()
        effects = self.output.side_effects
        for var in effects.values():
            cg.stash(var)
        for var in stack:
            cg.add("PUSH_NULL") if var is NULL else cg(var)
        for var in values:
            cg(var)
        cg.stash_pending()
        effects.emit(cg)
        cg.fill_cells()

    def _modes(self) -> bool | None:
        """Grad mode to set after the graph; None if it is as at the frame's start. The graph itself ends as it began."""
        grad = torch.is_grad_enabled()
        entered = any(isinstance(var, ContextExitVariable) for var in self.stack)
        changed = grad != self.output.state.grad or entered
        self.output.restore_state()
        return grad if changed else None

    def _emit_modes(self, cg: Emitter, grad: bool | None) -> None:
        if grad is not None:
            cg.set_grad(grad)

    def _broken(self, at: int, instr: Instruction) -> list[Instruction]:
        """The instruction with its exception handlers, and a continuation for each way out of it."""
        body, new = clone(self.program.instructions)
        copy = new[instr]
        head = [copy, *split_null(copy)]
        before = [var is NULL for var in self.stack]
        after = stack_after(instr, before, jump=False)
        if instr.op not in ("RAISE_VARARGS", "RERAISE", "RETURN_VALUE"):
            head += self._continue(at + 1, after)
        tail: list[Instruction] = []
        if instr.target is not None:
            target = self.program.index[instr.target]
            label = ops.end_for() if instr.op == "FOR_ITER" else ops.label()
            copy.target = label
            tail = [label, *self._continue(target, stack_after(instr, before, jump=True))]
        if copy.handler is None:
            return [*head, *tail]
        place = body.index(copy)
        start = ops.jump(copy)
        return [*start, *body[:place], *head, *body[place + 1 :], *tail]

    def _continue(self, at: int, nulls: list[bool]) -> list[Instruction]:
        if self.program.instructions[at].op == "END_FOR":  # FOR_ITER has popped what it would pop
            at += 1
        hidden = {*self.code.co_cellvars, *self.code.co_freevars}
        live = live_names(self.code)[at]
        stored = self.current.arg if self.current.op == "STORE_FAST" else None  # by the broken-off instruction itself
        names = sorted(name for name in live if name not in hidden and (self.is_bound(name) or name == stored))
        return continuation(self.code, self.f_globals, at, nulls, names, is_resume_code(self.code))

    def _assemble(self, cg: Emitter, rest: list[Instruction]) -> Compiled:
        original = original_code(self.program.instructions, len(prologue(self.code))) if self.output.assumes else []
        start, gm = self._graph_call(cg, original[:1])
        made = ops.at([*start, *cg.instructions], self.current.position)
        code = assemble(reachable([*prologue(self.code), *made, *rest, *original]), self.code)
        trace.artifact("bytecode", self.code.co_qualname, lambda: (self.code, code))
        return Compiled(code, self.output.guard_list(), gm, self.assumptions)

    def _graph_call(self, cg: Emitter, original: list[Instruction]) -> tuple[list[Instruction], torch.fx.GraphModule | None]:
        """Code that calls the compiled graph and keeps its outputs; where its assumptions fail, the original code runs from its start."""
        output = self.output
        if output.is_empty() and not cg.outputs:
            return [], None
        gm = output.finish(cg.outputs)
        fn = self._compile(gm, [var.value for var in output.inputs])
        call = Emitter(output, cg.cell_names)
        sources = [var.source for var in output.inputs]
        call.share_paths(sources)
        call.prefix = "__minipt2_in"
        stateful = any(node.target is torch._C._set_grad_enabled for node in gm.graph.nodes)
        runner = (run_stateful_graph_maker if stateful else run_graph_maker)(fn)
        if output.assumes:
            self.assumptions = assumptions_of(gm.graph, output.inputs)
            runner = run_assuming_maker(runner, self.assumptions)
        call.prepare_call(lambda: call.load_const(runner))
        for source in sources:
            call.load_source(source)
        call.call(len(sources))
        call.add("STORE_FAST", GRAPH_OUT)
        call.clear_temps()
        if output.assumes:
            call.instructions += [*ops.load_fast(GRAPH_OUT), *ops.jump_if_none(original[0])]
        if not cg.outputs:
            call.add("DELETE_FAST", GRAPH_OUT)
        return call.instructions, gm

    def _compile(self, gm: torch.fx.GraphModule, examples: list) -> Callable:
        with preserved():
            torch._C._set_grad_enabled(self.output.state.grad)
            try:
                with trace.span(f"backend on {gm.meta['name']}"):
                    fn = self.backend(gm, examples)
            except (Unsupported, BackendError):
                raise
            except Exception as error:
                raise BackendError(f"the backend failed on {gm.meta['name']}: {type(error).__name__}: {error}") from error
        if not callable(fn):
            raise BackendError(f"the backend returned {describe(fn)} for {gm.meta['name']}, not a function of its inputs")
        return fn


def _in_place(name: str, var: Variable) -> bool:
    """The local still holds what it held when the frame began."""
    from .source import LocalSource

    return isinstance(var.source, LocalSource) and var.source.local == name
