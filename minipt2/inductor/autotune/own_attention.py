"""On a CPU: is attention faster by C of our own than by ATen's kernel? Timed once for each shape and machine, remembered on disk.

Upstream: ``torch._inductor.select_algorithm``.
"""
from __future__ import annotations

from typing import Any, Callable

import torch

from ..attention import BACKWARD, FORWARD, attention, attention_backward, library
from ..codegen.c_openmp_attention import source
from ..passes.own_attention import Heads
from .cpu import VENDOR, beats_vendor, seconds_of
from .race import pick

OWN = "own"
CLOSE = 1e-3
"""How far apart two right answers may be, as a part of the larger one's norm: this finds a wrong library, tests find wrong digits."""


def worth_computing(problem: Heads) -> bool:
    """Whether ours is the faster one. False where there is no compiler for it."""
    return beats_vendor(_race, problem, library, source())


def _race(problem: Heads, seconds: float, times: dict[str, float]) -> str:
    with torch.no_grad():
        runs = contenders(problem)
        expected, found = runs[VENDOR](), runs[OWN]()
        if any((a - b).norm() > CLOSE * a.norm() for a, b in zip(expected, found)):
            return VENDOR
        return pick([VENDOR, OWN], lambda name: seconds_of(runs[name]), lambda name: True, seconds, times)


def _mask(shape: tuple[int, ...], square: bool, generator: torch.Generator) -> torch.Tensor:
    """A mask as models have it: one with a row for each query hides what comes later, most often."""
    mask = torch.randn(shape, generator=generator)
    return mask.masked_fill(torch.ones(shape[-2:], dtype=torch.bool).triu(1), float("-inf")) if square and shape[-2:] == (shape[-1],) * 2 else mask


def contenders(problem: Heads) -> dict[str, Callable[[], Any]]:
    """How each computes ``problem`` on numbers of its own, that lie as models have them: a row holds all heads."""
    generator = torch.Generator().manual_seed(0)

    def random(rows: int) -> torch.Tensor:
        return torch.randn(problem.batch, rows, problem.heads, problem.width, generator=generator).transpose(1, 2)
    q, k, v, grad = random(problem.rows), random(problem.columns), random(problem.columns), random(problem.rows)
    mask = None if problem.mask is None else _mask(problem.mask, problem.rows == problem.columns, generator)
    if not problem.backward:
        return {name: lambda call=call: call(q, k, v, 0.0, problem.causal, attn_mask=mask) for name, call in ((VENDOR, FORWARD), (OWN, attention))}
    out, lse = FORWARD(q, k, v, 0.0, problem.causal, attn_mask=mask)
    return {name: lambda call=call: call(grad, q, k, v, out, lse, 0.0, problem.causal, attn_mask=mask)
            for name, call in ((VENDOR, BACKWARD), (OWN, attention_backward))}
