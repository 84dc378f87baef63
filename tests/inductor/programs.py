"""Small programs for tests: a function of prims, run eagerly and as the loop program it is lowered to."""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch import fx

from minipt2.inductor.ir import Computed, Extern, Program
from minipt2.inductor.ir.interpret import flat, run
from minipt2.inductor.ir.verify import verify
from minipt2.inductor.lowering import lower
from minipt2.prims.core import Recorder, TensorMeta

TOLERANCE = {torch.bfloat16: 4e-2, torch.float16: 2e-3, torch.float64: 1e-12}


def graph_of(fn: Callable, *tensors: torch.Tensor) -> fx.GraphModule:
    """The graph of prims that ``fn`` records on inputs like ``tensors``."""
    recorder = Recorder()
    with recorder:
        values = [recorder.bind(recorder.graph.placeholder(f"x{i}"), TensorMeta.of(t)) for i, t in enumerate(tensors)]
        made = fn(*values)
        made = made if isinstance(made, (tuple, list)) else (made,)
        recorder.graph.output(tuple(v.node for v in made))
    return fx.GraphModule({}, recorder.graph)


def check(fn: Callable, *tensors: torch.Tensor, strides: bool = True, mutated: dict[int, int] | None = None) -> Program:
    """Lower ``fn``, interpret it on copies, compare outputs (dtype, shape, strides, values) and mutated inputs with eager."""
    gm = graph_of(fn, *tensors)
    gm.meta["mutated_inputs"] = mutated or {}
    program = lower(gm)
    verify(program)
    expected = fn(*tensors)
    expected = expected if isinstance(expected, (tuple, list)) else (expected,)
    copies = [flat(t).clone().as_strided(t.shape, t.stride()) for t in tensors]
    found = run(program, copies)
    vals = [n.meta["val"] for n in next(n for n in gm.graph.nodes if n.op == "output").args[0]]
    for k, (e, f, val) in enumerate(zip(expected, found, vals)):
        tolerance = TOLERANCE.get(e.dtype, 1e-5)
        torch.testing.assert_close(f, e, rtol=tolerance, atol=tolerance, equal_nan=True)
        if strides and e.numel() and k not in (mutated or {}):
            assert f.stride() == val.strides
    for k, j in (mutated or {}).items():
        assert found[k].data_ptr() == copies[j].data_ptr()
    for k, (before, after) in enumerate(zip(tensors, copies)):
        if k not in (mutated or {}).values():
            torch.testing.assert_close(after, before, equal_nan=True, rtol=0, atol=0)
    return program


def loops(program: Program) -> list[Computed]:
    return [b for b in program.buffers if isinstance(b, Computed)]


def calls(program: Program) -> list[Any]:
    return [b.target for b in program.buffers if isinstance(b, Extern) and b.target != "alloc"]
