"""A schedule's kernels as one C file.

``generate(schedule)`` -> ``CSource``: the text, and for each kernel of the schedule, in order, the function to call and the buffers to
pass. Kernels of equal structure share one function: variables, values and pointers have canonical names, sizes are constants.
Upstream: ``torch._inductor.codegen.cpp.CppScheduling`` and ``CppKernelProxy``.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Sequence

from ... import trace
from ..ir import Extern
from ..products import product
from ..scheduler.kernels import Kernel, Schedule
from ..sizes import use
from .c_openmp_loops import write_body
from .c_openmp_plan import make_plan, pointer
from .c_openmp_prelude import prelude
from .product_calls import ProductCall, product_call


@dataclass
class KernelSpec:
    """Call ``name(*pointers of args, *numbers, err if checks)``; ``err`` is an ``int*`` whose bits say what went wrong (``BAD_INDEX``, ``BAD_DIVISOR``)."""

    name: str
    args: list[str]
    checks: bool = False
    comment: str = ""
    numbers: list[str] = field(default_factory=list)
    """Sizes and scalars to pass between the pointers and ``err``."""
    extents: list[Any] = field(default_factory=list)
    """Expressions of sizes that must be below 2**31, or the file is to be compiled with ``WIDE`` defined."""

    def lines(self, actual: Sequence[str]) -> list[str]:
        """C statements for the call, given all its arguments but ``err``."""
        return [f"{self.name}({', '.join([*actual, *self.numbers, *['&error'] * self.checks])});"]


@dataclass
class CSource:
    """``text``: all of it in one file. ``functions``: the kernels alone, for files put together otherwise."""

    text: str
    kernels: list[KernelSpec] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    products: dict[str, ProductCall] = field(default_factory=dict)
    """The calls of packed products, by the name of their step."""


def generate(schedule: Schedule) -> CSource:
    """C for all kernels of ``schedule``; ``kernels[k]`` belongs to ``schedule.kernels[k]``."""
    with use(schedule.program.hints):
        return _generate(schedule)


def _generate(schedule: Schedule) -> CSource:
    names: dict[str, str] = {}
    functions: list[str] = []
    specs = []
    for kernel in schedule.kernels:
        spec, function = emit(kernel, schedule)
        if function not in names:
            names[function] = f"k{len(names)}"
            functions.append(f"{comment(kernel)}void {names[function]}{function}")
        spec.name = names[function]
        specs.append(spec)
    body = "\n\n".join(functions)
    source = CSource(prelude(body) + "\n" + body + "\n", specs, functions)
    source.products = {s.name: product_call(s, schedule.buffers) for s in schedule.steps if isinstance(s, Extern) and s.target is product}
    trace.artifact("codegen", schedule.program.name, lambda: source.text)
    return source


def emit(kernel: Kernel, schedule: Schedule) -> tuple[KernelSpec, str]:
    """A kernel's launch and its function's text from the parameter list on."""
    plan = make_plan(kernel, schedule)
    w = write_body(plan)
    numbers = [f"const {w.itype} {s}" for s in plan.symbols] + [f"const {'int64_t' if s.is_integer else 'double'} {s}" for s in plan.scalars]
    params = [pointer(p) for p in plan.params] + numbers + (["int* restrict err"] if w.checks else [])
    text = f"({', '.join(params)}) {{\n" + "\n".join(w.lines) + "\n}"
    symbols = [str(s) for s in plan.symbols + plan.scalars]
    return KernelSpec("", [p.buffer for p in plan.params], w.checks, comment(kernel), symbols, [*plan.extents, *plan.symbols]), text


def comment(kernel: Kernel) -> str:
    """What the kernel computes and the user's lines it came from."""
    lines = [f"// {', '.join(kernel.origins or kernel.names)}"]
    for frame in kernel.stack[:3]:
        lines.append(f"//   {frame.file}:{frame.line}  {frame.text}".rstrip())
    return "\n".join(lines).replace("\\", "/") + "\n"
