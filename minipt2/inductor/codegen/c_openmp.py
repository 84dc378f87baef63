"""A schedule's kernels as one C file.

``generate(schedule)`` -> ``CSource``: the text, and for each kernel of the schedule, in order, the function to call and the buffers to
pass. Kernels of equal structure share one function: variables, values and pointers have canonical names, sizes are constants.
Upstream: ``torch._inductor.codegen.cpp.CppScheduling`` and ``CppKernelProxy``.
"""
from __future__ import annotations

from dataclasses import dataclass, field

from ... import trace
from ..scheduler.kernels import Kernel, Schedule
from .c_openmp_loops import write_body
from .c_openmp_plan import make_plan, pointer
from .c_openmp_prelude import prelude


@dataclass
class KernelSpec:
    """Call ``name(*pointers of args, err if checks)``; ``err`` is an ``int*`` whose bits say what went wrong (``BAD_INDEX``, ``BAD_DIVISOR``)."""

    name: str
    args: list[str]
    checks: bool = False
    comment: str = ""


@dataclass
class CSource:
    """``text``: all of it in one file. ``functions``: the kernels alone, for files put together otherwise."""

    text: str
    kernels: list[KernelSpec] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)


def generate(schedule: Schedule) -> CSource:
    """C for all kernels of ``schedule``; ``kernels[k]`` belongs to ``schedule.kernels[k]``."""
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
    trace.artifact("codegen", schedule.program.name, lambda: source.text)
    return source


def emit(kernel: Kernel, schedule: Schedule) -> tuple[KernelSpec, str]:
    """A kernel's launch and its function's text from the parameter list on."""
    plan = make_plan(kernel, schedule)
    w = write_body(plan)
    params = [pointer(p) for p in plan.params] + (["int* restrict err"] if w.checks else [])
    text = f"({', '.join(params)}) {{\n" + "\n".join(w.lines) + "\n}"
    return KernelSpec("", [p.buffer for p in plan.params], w.checks, comment(kernel)), text


def comment(kernel: Kernel) -> str:
    """What the kernel computes and the user's lines it came from."""
    lines = [f"// {', '.join(kernel.origins or kernel.names)}"]
    for frame in kernel.stack[:3]:
        lines.append(f"//   {frame.file}:{frame.line}  {frame.text}".rstrip())
    return "\n".join(lines).replace("\\", "/") + "\n"
