"""The wrapper module of a graph on a GPU whose sizes are arguments, and the C that launches what a plan says.

What runs depends on the sizes: the module's ``make_plan`` computes, for a tuple of them, where intermediates lie and what each kernel is
told; the library makes tables of launches of that, one a run, and C walks a table. Numbers that are no sizes (a learning rate) go along with the pointers.
"""
from __future__ import annotations

from typing import Any, Sequence

from ..scheduler.kernels import Schedule
from ..triton_sizes import ARENA, FLAGS, POINTER, SCALAR, SIZE
from .triton_sized import SizedLaunch, SizedSource
from .triton_wrapper import LAUNCHER, REFUSED, UNALIGNED, GpuWriter
from .wrapper import number_text, numbers

WALK = f"""\
static int walk(void *stream, char *A, const int64_t *t, void **P, void **X) {{
    for (int64_t count = *t++; count > 0; count--) {{
        int64_t n = t[5];
        void *a[n + 2];
        char *in_arena[n + 1];
        for (int64_t k = 0; k < n; k++) {{
            int64_t kind = t[6 + 2*k], at = t[7 + 2*k];
            in_arena[k] = A + at;
            a[k] = kind == {POINTER} ? (void *)&P[at] : kind == {ARENA} ? (void *)&in_arena[k] : kind == {SIZE} ? (void *)&t[7 + 2*k]
                 : kind == {SCALAR} ? X[at] : (void *)&raised;
        }}
        a[n] = a[n + 1] = &nothing;
        if (t[1]*t[2] > 0 && launch((void *)t[0], t[1], t[2], 1, t[3], 1, 1, t[4], stream, a, 0)) return {REFUSED};
        t += 6 + 2*n;
    }}
    return 0;
}}
"""
"""A table: how many launches, then for each the function, the grid, threads, bytes of shared memory, and (kind, where or what) of each argument.
A size of 32 bits is the lower half of the number in the table."""


class SizedWriter(GpuWriter):
    """``runs`` says for each run its kernels' operands: in the arena (``["a", slot]``) or a pointer (``["p", position]``)."""

    kernels: list[SizedLaunch]

    def __init__(self, schedule: Schedule, source: SizedSource, title: str, device: str):
        super().__init__(schedule, source, title, device)
        self.sized = source

    def call(self, run: Any, k: int, uses_arena: bool, pointers: Sequence[str]) -> None:
        given = sorted({n for launch in run.kernels for n in launch.scalars})
        kinds = "".join("l" if self.named[n].is_integer else "d" for n in given)
        aligned = {b for launch in run.kernels for b in launch.aligned if b in self.inputs or b in self.constants}
        steps = []
        for launch in run.kernels:
            places = [["a", self.offset(n)] if self.in_arena(n) else ["p", run.pointers.index(n)] for n in launch.args]
            steps.append(dict(places=places, scalars=[given.index(n) for n in launch.scalars]))
        number = len(self.runs)
        self.runs.append(dict(pointers=len(run.pointers), numbers=kinds, steps=steps,
                              aligned=[i for i, n in enumerate(run.pointers) if n in aligned]))
        self.top.append(f"run{number} = library.run({number})")
        addresses = [f"{n}.data_ptr()" for n in run.pointers]
        self.launch(f"run{number}({', '.join(['stream', 'arena.base', f'plan.runs[{number}]', *addresses, *given])})",
                    [n for n in run.pointers if n in aligned])

    def plan_arguments(self) -> tuple[list[str], list[str]]:
        lines = ["kernels = ("]
        for launch in self.kernels:
            lines.append(f"    ({', '.join(map(numbers, launch.sizes))}),  # {', '.join(launch.args)}")
        return [*lines, ")"], ["kernels"]

    def plan_call(self, given: Sequence[str]) -> str:
        return f"library.plan({', '.join(given)})"

    def bound(self) -> tuple[list[str], list[str]]:
        return self.top, []

    def table(self) -> dict[str, Any]:
        return dict(device=self.device, hw=vars(self.sized.hw), programs=list(self.sized.programs.values()), kernels=self.sized.kernels, runs=self.runs,
                    checks=any(launch.checks for launch in self.kernels))


def launcher_text(table: dict[str, Any]) -> str:
    """C that walks the tables of the runs; its globals ``launch`` and ``raised`` are set by the loader."""
    lines = [LAUNCHER, WALK]
    for k, run in enumerate(table["runs"]):
        numbers = [f"{'int64_t' if kind == 'l' else 'double'} x{i}" for i, kind in enumerate(run["numbers"])]
        params = ["void *stream", "char *A", "const int64_t *t", *[f"void *p{i}" for i in range(run["pointers"])], *numbers]
        lines.append(f"int run{k}({', '.join(params)}) {{")
        if run["aligned"]:
            lines.append(f"    if (({' | '.join(f'(size_t)p{i}' for i in run['aligned'])}) & 15) return {UNALIGNED};")
        pointers = ", ".join([f"p{i}" for i in range(run["pointers"])] + ["nothing"])
        scalars = ", ".join([f"&x{i}" for i in range(len(numbers))] + ["&nothing"])
        lines.append(f"    void *P[] = {{{pointers}}}, *X[] = {{{scalars}}};\n    return walk(stream, A, t, P, X);\n}}")
    return "\n".join(lines) + "\n"
