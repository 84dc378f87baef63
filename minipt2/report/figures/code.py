"""The loop IR of a kernel beside the C and the Triton made of it, statement by statement."""
from __future__ import annotations

import re
from typing import Any, Callable, Sequence

from ...inductor.codegen import triton
from ...inductor.codegen.c_openmp import comment
from ...inductor.codegen.c_openmp_loops import write_body
from ...inductor.codegen.c_openmp_plan import make_plan, pointer
from ...inductor.codegen.c_openmp_values import Writer
from ...inductor.codegen.triton_blocks import choose
from ...inductor.hardware import REFERENCE
from ...inductor.ir import Block, Instr, Ref
from ...inductor.scheduler import Kernel, Schedule
from .frame import Figure, Line, Pane, State
from .loops import schedules


class Linked(Writer):
    """A writer that remembers which instructions each line of C came from."""

    def __init__(self, plan: Any):
        super().__init__(plan)
        self.came_from: dict[int, set[int]] = {}
        self._storing: int | None = None

    def define(self, id: int) -> None:
        before = len(self.lines)
        super().define(id)
        for k in range(before, len(self.lines)):
            self.came_from.setdefault(k, set()).add(id)

    def store_line(self, i: Instr, value: str) -> list[str]:
        self._storing = i.id
        return super().store_line(i, value)

    def line(self, *lines: str) -> None:
        before = len(self.lines)
        super().line(*lines)
        if self._storing is not None:
            for k in range(before, len(self.lines)):
                self.came_from.setdefault(k, set()).add(self._storing)
            self._storing = None


class LinkedTriton(triton.Writer):
    """The same for Triton."""

    def __init__(self, plan: Any, blocks: Any):
        super().__init__(plan, blocks)
        self.came_from: dict[int, set[int]] = {}

    def _noting(self, id: int, write: Callable[[], None]) -> None:
        before = len(self.lines)
        write()
        for k in range(before, len(self.lines)):
            self.came_from.setdefault(k, set()).add(id)

    def define(self, id: int) -> None:
        self._noting(id, lambda: super(LinkedTriton, self).define(id))

    def store(self, i: Instr) -> None:
        self._noting(i.id, lambda: super(LinkedTriton, self).store(i))

    def result(self, i: Instr, *parts: Any) -> None:
        self._noting(i.id, lambda: super(LinkedTriton, self).result(i, *parts))


def linked_triton(kernel: Kernel, schedule: Schedule, prefix: str = "") -> list[Line]:
    """The kernel in Triton, with blocks as for a large GPU; links as in ``linked_kernel``."""
    plan = make_plan(kernel, schedule)
    w = LinkedTriton(plan, choose(plan, REFERENCE, triton.walked_across(plan))).write()
    head = triton.define("kernel", triton.comment(kernel), w).split(w.statements)[0]
    lines = [Line(t, links=[f"{prefix}%{id}" for id in sorted(w.came_from.get(k, ()))]) for k, t in enumerate(w.lines)]
    return [*map(Line, head.splitlines()), *lines]


def linked_kernel(kernel: Kernel, schedule: Schedule, prefix: str = "") -> tuple[list[Line], list[Line]]:
    """(loop IR, C) of a kernel; a line of C has the links of the instructions it computes. Links start with ``prefix``."""
    plan = make_plan(kernel, schedule)
    w = write_body(plan, Linked(plan))
    head = " ".join(f"for {v} < {n}:" for v, n in plan.outer) + "".join(f" for {v} < {n} (reduced):" for v, n in plan.inner)
    ir = [Line(head.strip() or "once:")]
    ir += [Line("  " + show(i), links=[f"{prefix}%{i.id}"]) for i in plan.instrs]
    params = [pointer(p) for p in plan.params] + (["int* restrict err"] if w.checks else [])
    c = [Line(t) for t in comment(kernel).splitlines()] + [Line(f"void kernel({', '.join(params)}) {{")]
    known = {str(i.id) for i in plan.instrs}
    for k, text in enumerate(w.lines):
        ids = set(w.came_from.get(k, ()))
        ids |= {int(n) for n in re.findall(r"\b(?:acc|row)(\d+)", text) if n in known}  # accumulators and kept rows are named after their values
        c.append(Line(text, links=[f"{prefix}%{id}" for id in sorted(ids)]))
    return ir, [*c, Line("}")]


def show(i: Instr) -> str:
    """An instruction as text."""
    def argument(a: Any) -> str:
        if isinstance(a, Ref):
            return f"%{a.id}" + f".{a.part}" * bool(a.part)
        if isinstance(a, Block):
            return "{" + "; ".join(map(show, a.instrs)) + f"; %{a.result.id}}}"
        return str(a)
    arguments = ", ".join(argument(a) for a in i.args if a is not None)
    return f"{i.op}({arguments})" if i.dtype is None else f"%{i.id} = {i.op}({arguments})"


def beside(fn: Callable[..., Any], args: Sequence[Any], name: str = "code") -> Figure:
    """The kernels of the first graph that a call of ``fn`` compiles. ``data["linked"]``: IR instructions, and those with a line in both."""
    return of_schedule(schedules(fn, args)[0], name)


def of_schedule(plan: Schedule, name: str = "code") -> Figure:
    """One state for each kernel of ``plan``."""
    panes: dict[str, list[Line]] = {"loop IR": [], "C": [], "Triton": []}
    names, total, linked = [], 0, 0
    for k, kernel in enumerate(plan.kernels):
        prefix = f"k{k}"
        names.append(prefix)
        made = [*linked_kernel(kernel, plan, prefix), linked_triton(kernel, plan, prefix)]
        for pane, lines in zip(panes.values(), made):
            for line in lines:
                line.name = prefix
            pane += lines
        written = [{link for line in lines for link in line.links} for lines in made[1:]]
        total += len(made[0]) - 1
        linked += sum(1 for line in made[0] if all(links.intersection(line.links) for links in written))
    titles = [", ".join(kernel.origins[:6]) for kernel in plan.kernels]
    states = [State(f"kernel {k}: {title}", {"off": [n for n in names if n != names[k]]}) for k, title in enumerate(titles)]
    return Figure(name, "Loop IR, C and Triton.", "Point at a line, or walk with the arrow keys: its counterparts light up.",
                  [Pane(title, lines) for title, lines in panes.items()], states, "select", "kernel", data={"linked": [total, linked]})
