"""Templates without a GPU: functions of prims scheduled with a template for every contraction, run by Triton's interpreter."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen import triton_wrapper
from minipt2.inductor.codegen.triton import TritonSource
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.hardware import TINY, Hw
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, Schedule, schedule
from minipt2.inductor.triton_library import library

from .programs import graph_of

TOLERANCE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def templated(fn: Callable, *tensors: torch.Tensor, tile: Tile = Tile(32, 32, 16), hw: Hw = TINY) -> tuple[Schedule, TritonSource]:
    """The schedule of ``fn`` with each contraction that may be a template in ``tile``, and its programs."""
    plan = schedule(lower(graph_of(fn, *tensors)), GPU, lambda candidates, _: [tile] * len(candidates))
    return plan, codegen.generate(plan, hw)


def run(plan: Schedule, source: TritonSource, tensors: Sequence[torch.Tensor]) -> list[Any]:
    """What the wrapper module of a schedule gives."""
    written, table = triton_wrapper.generate(plan, source, "test", "cpu")
    namespace = {"library": library(table), "constants": written.objects}
    exec(written.python, namespace)
    return namespace["call"](list(tensors))


def exact(fn: Callable, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """``fn`` in float64."""
    made = fn(*[t.double() if t.is_floating_point() else t for t in tensors])
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def check(fn: Callable, *tensors: torch.Tensor, tile: Tile = Tile(32, 32, 16), templates: int = 1) -> tuple[Schedule, TritonSource]:
    """Results against float64, within the rounding of their dtype relative to the largest; as many templates as expected."""
    from minipt2.inductor.scheduler.templates import Template
    plan, source = templated(fn, *tensors, tile=tile)
    assert sum(isinstance(k, Template) for k in plan.kernels) == templates
    for found, wanted in zip(run(plan, source, tensors), exact(fn, tensors), strict=True):
        most = wanted.abs().max().item() if wanted.numel() else 1.0
        assert found.shape == wanted.shape
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=TOLERANCE[found.dtype] * max(most, 1e-3))
    return plan, source
