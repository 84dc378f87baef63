"""On a CPU: is a product with packed weights faster than the vendor's kernel? Timed once for each shape and machine, remembered on disk.

A race takes a few milliseconds: large products are timed on a part of their rows and columns. Upstream: ``torch._inductor.select_algorithm``.
"""
from __future__ import annotations

import ctypes
import functools
import itertools
import time
from typing import Any, Callable

import torch

from ...config import config
from ...errors import BackendError, CompilerNotFound
from .. import cache
from ..codegen.c_openmp_products import GEOMETRY, source
from ..products import Problem, Window, address, groups, image_geometry, pack, pack_filter, product
from .race import pick

MOST_ROWS, MOST_COLUMNS, MOST_DEPTH = 1024, 4096, 4096
"""Sizes from which on more of the same tells nothing new."""
SECONDS = 0.3
"""Of one race."""
REPEATED, FEWEST_RUNS = 2e-3, 4
"""Seconds and runs that one timing takes at least."""
VENDOR, OWN = "vendor", "packed"
BESIDES, CALL = 1.05, 4e-6
"""What the vendor's kernel costs besides what is timed: passes of their own for bias and activation (a part of its time; a bare product has
neither), a call from Python (seconds)."""


def worth_packing(problem: Problem) -> bool:
    """Whether the packed product is the faster one. False where there is no compiler for it."""
    return beats_vendor(_race, _part(problem), address, source())


def _part(problem: Problem) -> Problem:
    """A problem of the same kind that is quick to time."""
    rows, depth, columns, image, _, _ = problem
    if image is None:
        return problem._replace(rows=min(rows, MOST_ROWS), depth=min(depth, MOST_DEPTH), columns=min(columns, MOST_COLUMNS))
    images = max(min(image[0], MOST_ROWS * image[0] // rows), 1)
    return problem._replace(rows=rows // image[0] * images, image=(images, *image[1:]))


def beats_vendor(race: Callable[[Any, float, dict[str, float]], str], problem: Any, library: Callable[[], Any], text: str) -> bool:
    """Whether C of ours wins ``race`` (see ``winner_of``). ``library`` makes what ``text`` is the source of: without a compiler for it, no."""
    try:
        library()
    except (CompilerNotFound, BackendError):
        return False
    return winner_of(race, problem, cache.toolchain_identity(), text) != VENDOR


def winner_of(race: Callable[[Any, float, dict[str, float]], str], problem: Any, *facts: str) -> str:
    """Who wins ``race(problem, seconds, times)``, which is run once for each problem, machine and cache folder. ``facts``: what else decides it."""
    return _remembered(race, problem, facts, torch.get_num_threads(), config.max_autotune, str(config.cache_path()))


@functools.cache
def _remembered(race: Callable[[Any, float, dict[str, float]], str], problem: Any, facts: tuple[str, ...], threads: int, thorough: bool, folder: str) -> str:
    """``folder``: where the disk's memory is; another one has to find out by itself."""
    key = cache.digest(race.__module__, cache.cpu_identity(), torch.__version__, *facts, repr((problem, threads, thorough)))
    entry = cache.load_entry(key)
    if entry is None:
        times: dict[str, float] = {}
        winner = race(problem, SECONDS * (4 if thorough else 1), times)
        entry = {"winner": winner, "seconds": times}
        cache.store_entry(key, entry)
    return entry["winner"]


def _race(problem: Problem, seconds: float, times: dict[str, float]) -> str:
    with torch.no_grad():
        contenders, check = _contenders(problem)
        def run(name: str) -> float:
            spent = seconds_of(contenders[name])
            return spent if name == OWN else spent * (1.0 if problem.bare else BESIDES) + CALL
        return pick([VENDOR, OWN] if problem.bare else [OWN, VENDOR], run, lambda name: True, seconds, times) if check() else VENDOR


def seconds_of(run: Callable[[], Any]) -> float:
    """Seconds of one run: the best of some, because another process only ever adds to it."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best, start = float("inf"), clock()
    for k in itertools.count():
        before = clock()
        run()
        after = clock()
        best = min(best, after - before)
        if k >= FEWEST_RUNS and after - start >= REPEATED:
            return best


def _contenders(problem: Problem) -> tuple[dict[str, Callable[[], Any]], Callable[[], bool]]:
    """(how each computes ``problem`` on numbers of its own, whether ours computes it right)."""
    generator = torch.Generator().manual_seed(0)
    random = functools.partial(torch.randn, generator=generator)
    rows, depth, columns, image, window, bare = problem
    bias = None if bare else random(columns)
    if window is None:
        x, weight = random(rows, depth), random(columns, depth).t()
        packed, out = pack(weight), torch.empty(rows, columns)
        vendor: Callable[[], Any] = (lambda: torch.mm(x, weight, out=out)) if bias is None else (lambda: torch.addmm(bias, x, weight, out=out))
    else:
        x = random(image).to(memory_format=torch.channels_last)
        weight = random(columns, image[1] // groups(window, columns), *window.taps)
        packed, out = pack_filter(weight), product(x, pack_filter(weight), bias, None, columns, window, "none", ())
        vendor = _vendor_convolution(x, weight, bias, window)
    right = product(x, packed, bias, None, columns, window, "none", ())
    own = _own(x, packed, bias, out, problem)

    def check() -> bool:
        own()
        return torch.allclose(out, right, rtol=1e-4, atol=1e-4 * depth ** 0.5)
    return {VENDOR: vendor, OWN: own}, check


def _vendor_convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, window: Window) -> Callable[[], Any]:
    sizes = (list(window.padding), list(window.stride), list(window.dilation), groups(window, len(weight)))
    if not (config.onednn and torch.backends.mkldnn.is_available()):
        return lambda: torch.conv2d(x, weight, bias, *window[1:4], sizes[-1])
    reordered = torch.ops.mkldnn._reorder_convolution_weight(weight, *sizes, list(x.shape))
    return lambda: torch.ops.mkldnn._convolution_pointwise(x, reordered, bias, *sizes, "none", [], "")


def _own(x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None, out: torch.Tensor, problem: Problem) -> Callable[[], Any]:
    pointer = ctypes.c_void_p
    function = ctypes.CFUNCTYPE(None, *[pointer] * 7)(address())
    sizes = (ctypes.c_int64 * len(GEOMETRY))(*geometry(x, out, problem))
    scalars = (ctypes.c_double * 2)()
    tensors = (x, packed, bias, out)
    x_at, packed_at, bias_at, out_at = [None if t is None else t.data_ptr() for t in tensors]

    def run() -> tuple:
        function(sizes, scalars, x_at, packed_at, bias_at, None, out_at)
        return tensors  # named here, they live as long as what reads their memory
    return run


def geometry(x: torch.Tensor, out: torch.Tensor, problem: Problem) -> list[int]:
    """What C is told of ``problem`` without an activation."""
    if problem.window is None:
        return [1, 1, problem.rows, 1, problem.rows, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, x.stride(0), problem.depth, problem.columns, out.stride(0), 0, 0]
    fields = image_geometry(x.shape, (x.stride(0), x.stride(2), x.stride(3)), out.shape[2:], problem.window)
    return [*fields, problem.columns, out.stride(3), int(problem.window.depthwise), 0]
