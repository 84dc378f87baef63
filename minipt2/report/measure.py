"""Timing that survives a shared machine: interleaved rounds, medians of per-round ratios, page faults counted.

``interleave`` times several callables in turns; ``paired`` estimates one ratio with a confidence interval. Used by ``bench``.
"""
from __future__ import annotations

import ctypes
import gc
import math
import resource
import statistics
import time
from typing import Callable, Iterable, NamedTuple, Sequence

import torch

from ..exercise import exercise

Clock = Callable[[], float]


class Ratio(NamedTuple):
    """Median of per-round ratios a/b, its 95 % sign-test interval, and how many rounds it rests on."""

    median: float
    low: float
    high: float
    rounds: int


class Timing(NamedTuple):
    """Seconds of each round and minor page faults a call (mean)."""

    seconds: list[float]
    faults: float


def pin_malloc() -> bool:
    """Make glibc keep freed pages, so that no side pays for fresh ones; False where the C library has no ``mallopt``."""
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    return all([mallopt(mmap_threshold, 1 << 30), mallopt(trim_threshold, (1 << 31) - 1), mallopt(top_pad, 64 << 20)])


def faults() -> int:
    """Minor page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def saved_for_backward(call: Callable[[], object], apart_from: Iterable[torch.Tensor]) -> tuple[int, object]:
    """Bytes that ``call()`` keeps for its backward in storages other than those of ``apart_from``, and its result."""
    own = {t.untyped_storage().data_ptr() for t in apart_from}
    kept: dict[int, torch.Tensor] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        kept[t.untyped_storage().data_ptr()] = t  # held: a freed storage's place may be taken by another
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = call()
    return sum(t.untyped_storage().nbytes() for place, t in kept.items() if place not in own), result


def clock_for(threads: int, device: str = "cpu") -> Clock:
    """One thread of a CPU: process CPU time, which other processes disturb least. More, or a GPU: wall clock."""
    return time.process_time if threads == 1 and device == "cpu" else time.perf_counter


@exercise("7.1")
def interleave(calls: dict[str, Callable[[], object]], rounds: int, clock: Clock, warmup: int = 3) -> dict[str, Timing]:
    """Time every callable once a round, the order turned about each round, with the garbage collector off."""
    # >>> 7.1
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    count = dict.fromkeys(calls, 0)
    gc.collect()  # before the warm-up: it walks through all objects, and whoever is timed first after it finds cold caches
    for name, call in calls.items():
        for _ in range(warmup):
            call()
    gc.disable()
    try:
        for k in range(rounds):
            names = list(calls) if k % 2 == 0 else list(reversed(calls))
            for name in names:
                before, start = faults(), clock()
                calls[name]()
                seconds[name].append(clock() - start)
                count[name] += faults() - before
    finally:
        gc.enable()
    return {name: Timing(seconds[name], count[name] / rounds) for name in calls}
    # <<< 7.1


@exercise("7.1")
def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Median of ``a[k] / b[k]`` with its sign-test interval."""
    # >>> 7.1
    quotients = sorted(x / y for x, y in zip(a, b))
    n = len(quotients)
    skip = _sign_test_rank(n)
    return Ratio(statistics.median(quotients), quotients[skip], quotients[n - 1 - skip], n)
    # <<< 7.1


def paired(a: Callable[[], object], b: Callable[[], object], clock: Clock = time.process_time, budget: float = 10.0) -> Ratio:
    """How many times longer ``a`` takes than ``b``: AB/BA rounds until ``budget`` seconds of wall clock are spent (at least 6)."""
    end, xs, ys = time.perf_counter() + budget, [], []
    while len(xs) < 6 or time.perf_counter() < end:
        timing = interleave({"a": a, "b": b}, 6, clock, warmup=1 if xs else 2)
        xs += timing["a"].seconds
        ys += timing["b"].seconds
    return ratio(xs, ys)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


@exercise("7.1")
def _sign_test_rank(n: int) -> int:
    """Order statistics that bound the median with 95 % confidence: how many to drop at each end."""
    # >>> 7.1
    total, k = 0.0, 0
    while k < n // 2:
        total += math.comb(n, k) / 2**n
        if total > 0.025:
            break
        k += 1
    return max(k - 1, 0)
    # <<< 7.1
