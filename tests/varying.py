"""Test helper: models called with inputs of many sizes, against eager, with compilations counted."""
from __future__ import annotations

from typing import Any, Sequence

import torch

import minipt2
from minipt2 import models
from minipt2.models import decoder

from .compare import assert_same


def _drawn(batch: int, size: int) -> torch.Generator:
    """The same inputs whatever was drawn before: these are made when test files are read."""
    return torch.Generator().manual_seed(1000 * batch + size)


def tokens(batch: int, length: int) -> tuple:
    return (torch.randint(0, 100, (batch, length), generator=_drawn(batch, length)),)


def padded(batch: int, length: int) -> tuple:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length // 2:] = 0
    return (*tokens(batch, length), mask)


def images(batch: int, size: int) -> tuple:
    return (torch.randn(batch, 3, size, size, generator=_drawn(batch, size)),)


def check_sizes(model: str, calls: Sequence[tuple], phase: str, **settings: Any) -> None:
    """A small sample model equals eager at each of ``calls`` (in training its gradients too), after two compilations at most."""
    compiled, eager = (models.build(model, "small").train(phase == "train") for _ in range(2))
    call = minipt2.compile(compiled, **settings)
    for args in calls:
        with torch.set_grad_enabled(phase == "train"):
            results = []
            for run in (call, eager):
                torch.manual_seed(0)  # of dropout
                results.append(run(*args))
        found, expected = results
        assert_same(expected, found, tolerance=2e-4)
        if phase == "train":
            for module, output in ((compiled, found), (eager, expected)):
                module.zero_grad()
                models.loss(output).backward()
            assert_same([p.grad for p in eager.parameters()], [p.grad for p in compiled.parameters()], tolerance=1e-3)
    counted = minipt2.counters()
    assert counted["graphs"] <= 2 and not counted["breaks"] and not counted.get("aot_fallbacks"), counted


def check_growing_cache(steps: int, **settings: Any) -> None:
    """A decoder writes what eager writes, after three compilations: the prompt, the first step, and every later one."""
    torch.manual_seed(0)
    model = decoder.build("small").eval()
    (start,) = decoder.inputs("small")
    expected = decoder.generate(model, start, steps)
    assert_same(expected, decoder.generate(minipt2.compile(model, **settings), start, steps), tolerance=1e-4)
    assert minipt2.counters()["graphs"] <= 3 and not minipt2.counters()["breaks"]
