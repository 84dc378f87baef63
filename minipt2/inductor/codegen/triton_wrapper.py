"""The wrapper module of a graph on a GPU: the same module as for a CPU, with launches where the other calls C loops.

Runs of kernels between eager calls become one foreign call that launches them all on the current stream, so that a kernel costs the
driver's launch and no Python. Pointers that kernels take for aligned are looked at there; inputs that are not are copied, once it is seen.
Upstream: ``torch._inductor.codegen.wrapper`` and ``cpp_wrapper_gpu``.
"""
from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import Any, Sequence

from ..arena import ALIGN
from ..cache import digest
from ..scheduler.kernels import Schedule
from ..scheduler.memory import ends, storage_bytes
from .triton import TritonSource
from .wrapper import Writer, WrapperSource

# Names of globals are nobody else's: an `err` here was libc's function of that name, which the process had first.
LAUNCHER = """\
#include <stddef.h>
#include <stdint.h>
typedef int launcher(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
launcher *launch;
int *raised;
static void *nothing;
"""
C_HEADER = LAUNCHER + """\
typedef struct { void *function; unsigned threads, shared; } kernel;
kernel kernels[%d];
#define RUN(k, x, y, ...) do { \\
    void *a[] = {__VA_ARGS__, &nothing, &nothing}; \\
    if (launch(kernels[k].function, x, y, 1, kernels[k].threads, 1, 1, kernels[k].shared, stream, a, 0)) return %d; \\
} while (0)
"""
UNALIGNED, REFUSED = 16, 32
"""What a run returns: an input is not aligned (nothing was launched), or the driver refused a launch."""


class GpuWriter(Writer):
    """``runs`` says for each run what is launched on what: in the arena (``["a", offset]``) or on a pointer (``["p", position]``)."""

    def __init__(self, schedule: Schedule, source: Any, title: str, device: str):
        super().__init__(schedule, source.launches, title)
        self.source, self.device, self.stream = source, device, ", stream"
        self.runs: list[dict[str, Any]] = []
        if self.symbolic:
            return
        self.workspace = {id(launch): _round(end) for launch, end in zip(source.launches, ends(schedule)) if launch.work}
        """By kernel: offset in the arena, where nothing else lies meanwhile, of the memory that its programs share."""
        most = [self.workspace[id(launch)] + sum(map(_round, launch.work.values())) for launch in source.launches if launch.work]
        self.arena_bytes = max([int(schedule.arena_bytes), *most])

    def header(self) -> list[str]:
        uses_result = any(" = result(" in line for line in self.body)
        return ["from minipt2.inductor.triton_library import mend", *["from minipt2.inductor.runtime import result"] * uses_result]

    def prologue(self) -> list[str]:
        return ["library.check()", "stream = library.stream()"] if self.runs else []

    def allocate(self, name: str) -> None:
        """As for a CPU, but outputs are ``runtime.result``s: a recording has these elsewhere than the rest."""
        before = len(self.body)
        super().allocate(name)
        if name in self.outputs and len(self.body) > before:
            self.body[-1] = self.body[-1].replace(" = empty(", " = result(", 1)

    def call(self, run: Any, k: int, uses_arena: bool, pointers: Sequence[str]) -> None:
        aligned: set[str] = set()
        launches = []
        for launch in run.kernels:
            work = dict(zip(launch.work, itertools.accumulate([0, *map(_round, launch.work.values())])))
            for c in launch.calls:
                program = self.source.programs[c.kernel]
                aligned |= {c.args[i] for i in program.aligned if c.args[i] in self.inputs or c.args[i] in self.constants}
                places = [["a", self.workspace[id(launch)] + work[n]] if n in work else ["a", self.offset(n)] if self.in_arena(n)
                          else ["p", run.pointers.index(n)] for n in c.args]
                sizes = [launch.work[n] if n in work else storage_bytes(self.schedule.layouts[n]) for n in c.args]
                launches.append(dict(kernel=c.kernel, grid=list(c.grid), args=places, sizes=sizes, checks=c.checks))
        hinted = [n for n in run.pointers if n in aligned]
        number = len(self.runs)
        self.runs.append(dict(arena=uses_arena, pointers=len(run.pointers), aligned=[run.pointers.index(n) for n in hinted], launches=launches))
        self.top.append(f"run{number} = library.run({number})")
        self.launch(f"run{number}({', '.join(['stream', *pointers])})", hinted)

    def launch(self, call: str, hinted: Sequence[str]) -> None:
        """The line that calls a run; ``hinted``: inputs that it takes for aligned."""
        if hinted:
            self.body.append(f"while error := {call}: {', '.join(hinted)}, = mend(error, {', '.join(hinted)})")
        else:
            self.body.append(f"if error := {call}: mend(error)")

    def table(self) -> dict[str, Any]:
        """What the library of the graph is made of; JSON-able."""
        return dict(device=self.device, programs=[asdict(p) for p in self.source.programs], runs=self.runs)


def _round(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def generate(schedule: Schedule, source: Any, title: str, device: str) -> tuple[WrapperSource, dict[str, Any]]:
    """The wrapper of a schedule, and the table of what it launches."""
    if schedule.program.symbols:
        from .triton_sized_wrapper import SizedWriter
        writer: GpuWriter = SizedWriter(schedule, source, title, device)
    else:
        writer = GpuWriter(schedule, source, title, device)
    return writer.write(), writer.table()


def launcher_text(table: dict[str, Any]) -> str:
    """C that launches the runs of ``table``; its globals ``kernels``, ``launch`` and ``raised`` are set by the loader."""
    if "kernels" in table:
        from .triton_sized_wrapper import launcher_text as for_sizes
        return for_sizes(table)
    # libraries of equal text are one, globals included: a table of kernels belongs to its kernels and its device
    mark = digest(json.dumps([table["device"], table["programs"]]))
    lines = [f"// {mark}", C_HEADER % (max(len(table["programs"]), 1), REFUSED)]
    for k, run in enumerate(table["runs"]):
        params = ["void *stream"] + ["char *A"] * run["arena"] + [f"void *p{i}" for i in range(run["pointers"])]
        lines.append(f"int run{k}({', '.join(params)}) {{")
        if run["aligned"]:
            together = " | ".join(f"(size_t)p{i}" for i in run["aligned"])
            lines.append(f"    if (({together}) & 15) return {UNALIGNED};")
        for launch in run["launches"]:
            args = [f"&p{at}" if kind == "p" else f"&(void *){{A + {at}}}" for kind, at in launch["args"]] + ["&raised"] * launch["checks"]
            x, y = launch["grid"]
            lines.append(f"    RUN({launch['kernel']}, {x}, {y}, {', '.join(args)});")
        lines.append("    return 0;\n}")
    return "\n".join(lines) + "\n"
