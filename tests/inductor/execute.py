"""A schedule's kernels compiled and run as its wrapper would: real arena, real frees. The wrapper has tests of its own."""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

import torch

from minipt2.inductor.cache import compile_c
from minipt2.inductor.codegen.c_openmp import CSource, generate
from minipt2.inductor.ir import Extern, Program
from minipt2.inductor.ir.interpret import allocate, flat, run_extern, view
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import Schedule, schedule

from .programs import TOLERANCE, graph_of


def execute(s: Schedule, source: CSource, args: Sequence[torch.Tensor]) -> tuple[list[Any], int]:
    """Outputs and the error flag."""
    library = compile_c(source.text)
    memory = {i.name: flat(args[i.position]) for i in s.program.inputs}
    memory.update({c.name: flat(c.value) for c in s.program.constants})
    arena = torch.full((s.arena_bytes + 64,), 0x7F, dtype=torch.uint8)
    arena = arena[-arena.data_ptr() % 64:]
    error, launches = ctypes.c_int(0), iter(source.kernels)
    for step, dead in zip(s.steps, s.frees):
        for name in sorted(step.writes() - memory.keys()):
            memory[name] = _place(s, arena, name)
        if isinstance(step, Extern):
            if step.target != "alloc":
                _extern(s, step, memory)
        else:
            spec = next(launches)
            pointers = [ctypes.c_void_p(memory[n].data_ptr()) for n in spec.args]
            getattr(library, spec.name)(*pointers, *([ctypes.byref(error)] if spec.checks else []))
        for name in dead:
            del memory[name]
    return [o.value if o.ref is None else view(memory, o.ref, s.layouts) for o in s.program.outputs], error.value


def _place(s: Schedule, arena: torch.Tensor, name: str) -> torch.Tensor:
    layout = s.layouts[name]
    if name not in s.plan:
        return allocate(layout)
    offset, size = s.plan[name]
    size = size // layout.dtype.itemsize * layout.dtype.itemsize
    return arena[offset:offset + size].view(layout.dtype)


def _extern(s: Schedule, step: Extern, memory: dict[str, torch.Tensor]) -> None:
    mine = dict(memory)
    run_extern(step, mine, s.layouts)
    for name in step.writes():
        if name in s.plan:
            memory[name].copy_(mine[name][:memory[name].numel()] if mine[name].numel() >= memory[name].numel() else
                               torch.nn.functional.pad(mine[name], (0, memory[name].numel() - mine[name].numel())))
        elif name in mine:
            memory[name] = mine[name]


def check(fn: Callable, *tensors: torch.Tensor, mutated: dict[int, int] | None = None, rtol: float | None = None) -> tuple[Schedule, CSource]:
    """Compile ``fn`` (of prims), run it on copies, compare every output and mutated input with ``fn`` run eagerly."""
    gm = graph_of(fn, *tensors)
    gm.meta["mutated_inputs"] = mutated or {}
    expected = fn(*tensors)
    return check_program(lower(gm), tensors, expected if isinstance(expected, (tuple, list)) else (expected,), rtol)


def check_program(program: Program, tensors: Sequence[torch.Tensor], expected: Sequence[torch.Tensor],
                  rtol: float | None = None) -> tuple[Schedule, CSource]:
    s = schedule(program)
    source = generate(s)
    copies = [flat(t).clone().as_strided(t.shape, t.stride()) for t in tensors]
    found, error = execute(s, source, copies)
    assert error == 0
    for k, (e, f) in enumerate(zip(expected, found)):
        tolerance = rtol or TOLERANCE.get(e.dtype, 1e-5)
        assert f.dtype == e.dtype and f.shape == e.shape
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"output {k}: {m}\n{source.text}")
    return s, source
