"""What chapters 8 and 9 contribute: compilations that many sizes share, and gradients that travel while the backward runs.

Both are totals, of wall clock or of all processor time, so each has a clock of its own.
"""
from __future__ import annotations

import gc
import os
import queue
import statistics
import threading
import time
from typing import Any, Callable

import pytest
import torch
from torch import nn

import minipt2
from minipt2 import models
from minipt2.aot_autograd import in_pieces
from minipt2.backends import lookup
from minipt2.config import config
from minipt2.distributed import assign, bucket_cuts
from minipt2.report import measure

from . import deciding

SIZES = {"gpt2": [(1, n) for n in (10, 16, 13, 24, 19, 32, 28, 21)], "resnet18": [(1, 3, n, n) for n in (32, 40, 48, 56, 64, 72)]}


def all_processor_time() -> float:
    """Of this process and of the compilers that it ran."""
    return sum(os.times()[:4])


def inputs(name: str, size: tuple) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randint(0, 50, size) if name == "gpt2" else torch.randn(size)


def over_sizes(name: str, dynamic: bool | None) -> tuple[float, int]:
    """Seconds for one inference at each size, compilations included, and how many graphs there were."""
    minipt2.reset()
    model = minipt2.compile(models.build(name, "small").eval(), dynamic=dynamic)
    gc.collect()  # what the side before left behind is not this one's to clear away
    start = all_processor_time()
    with torch.no_grad(), config.patch(disk_cache=False):
        for size in SIZES[name]:
            model(inputs(name, size))
    return all_processor_time() - start, minipt2.counters()["graphs"]


@pytest.mark.speed
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name, floor", [("gpt2", 1.8), ("resnet18", 1.5)])
def test_chapter_8_pays(name, floor, fresh, record_property):
    for dynamic in (False, None):
        over_sizes(name, dynamic)  # imports

    def rounds(n: int) -> list[float]:
        ratios = []
        for k in range(n):
            static, automatic = (over_sizes(name, d) for d in (False, None)) if k % 2 else reversed([over_sizes(name, d) for d in (None, False)])
            assert static[1] > automatic[1]
            ratios.append(static[0] / automatic[0])
        return ratios
    deciding.judge(deciding.decide(rounds, floor), record_property)


# ------------------------------------------------------------------ chapter 9
class Link(threading.Thread):
    """A serial link: sends one bucket after the other, and sleeps for as long as that takes."""

    def __init__(self, bandwidth: float):
        super().__init__(daemon=True)
        self.bandwidth, self.waiting = bandwidth, queue.Queue()
        self.start()

    def run(self) -> None:
        while True:
            time.sleep(self.waiting.get() / self.bandwidth)
            self.waiting.task_done()


def over_link(model: nn.Module, args: tuple, cap: int, cut: bool) -> Callable[[Link | None], Any]:
    """A training step that ends when all gradients have been sent: ``cut`` into pieces for buckets of ``cap`` bytes, or whole."""
    def backend(gm: torch.fx.GraphModule, examples: list) -> Callable:
        return in_pieces(gm, examples, lookup("inductor"), bucket_cuts(gm, cap) if cut else ())
    compiled, link = minipt2.compile(model, backend=backend), None
    parameters = [p for p in reversed(list(model.parameters())) if p.requires_grad]
    buckets = assign(parameters, cap)
    bucket_of = {p: k for k, bucket in enumerate(buckets) for p in bucket}
    missing: list[int] = []

    def ready(p: torch.Tensor) -> None:
        k = bucket_of[p]
        missing[k] -= 1
        if not missing[k] and link is not None:
            link.waiting.put(sum(q.nbytes for q in buckets[k]))
    for p in parameters:
        p.register_post_accumulate_grad_hook(ready)

    def step(over: Link | None) -> None:
        nonlocal link
        link, missing[:] = over, [len(b) for b in buckets]
        models.loss(compiled(*args)).backward()
        if link is not None:
            link.waiting.join()
        for p in parameters:
            p.grad = None
    return step


def both(name: str, size: str, cap: int) -> tuple[Callable, Callable, int]:
    made = [over_link(models.build(name, size), models.inputs(name, size), cap, cut) for cut in (False, True)]
    return made[0], made[1], sum(p.nbytes for p in models.build(name, size).parameters())


@pytest.mark.speed
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name, floor", [("resnet18", 1.1), ("vit", 1.05)])
def test_chapter_9_pays(name, floor, fresh, record_property):
    measure.pin_malloc()
    whole, pieces, nbytes = both(name, "bench", 4 << 20)
    for step in (whole, pieces):
        step(None)
    alone = statistics.median(_seconds(whole, None) for _ in range(3))
    link = Link(nbytes / (0.6 * alone))
    deciding.judge(deciding.decide(deciding.in_turns(lambda: whole(link), lambda: pieces(link), time.perf_counter), floor), record_property)


def _seconds(step: Callable, link: Link | None) -> float:
    start = time.perf_counter()
    step(link)
    return time.perf_counter() - start


def test_pieces_send_before_the_backward_is_over(fresh):
    """The counter behind the ratio: buckets that are complete when the first layer's gradient comes."""
    class Count:
        def __init__(self) -> None:
            self.waiting, self.sent = self, 0

        def put(self, nbytes: int) -> None:
            self.sent += 1

        def join(self) -> None:
            pass

    def sent_by_then(cut: bool) -> int:
        model, seen, link = models.build("resnet18", "small"), [], Count()
        step = over_link(model, models.inputs("resnet18", "small"), 1 << 16, cut)
        next(model.parameters()).register_hook(lambda grad: seen.append(link.sent))
        step(link)
        return seen[0]
    assert sent_by_then(True) > 3 and sent_by_then(False) <= sent_by_then(True) / 2
