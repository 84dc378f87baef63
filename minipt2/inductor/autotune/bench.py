"""Kernels of one race on the GPU: memory for their operands, launches, times with a cold cache.

Upstream: ``torch._inductor.runtime.benchmarking`` and ``autotune_process.TensorMeta``.
"""
from __future__ import annotations

import contextlib
import ctypes
import itertools
import time
from concurrent.futures import CancelledError
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from ...errors import BackendError
from ..codegen.triton import Program
from ..hardware import Hw
from ..ir import Layout
from ..scheduler.memory import storage_bytes
from ..triton_library import FLAGS, cuda, freeze, loaded, told

TOLERANCE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-3, torch.float64: 1e-8}
"""Sums in another order differ by less than so much of the largest value."""
LATE = "not compiled in time"


def finished(made: Mapping[Any, Any], end: float) -> dict[Any, str]:
    """Wait until all are compiled, but not beyond ``end`` of ``time.monotonic``; why those that are not are out. What nobody has begun to compile
    by then is called off: the kernels that the graph needs would wait behind it."""
    out = {}
    for c, future in made.items():
        try:
            future.result(max(end - time.monotonic(), 0))
        except (TimeoutError, CancelledError):
            future.cancel()
            out[c] = LATE
        except BackendError as error:
            out[c] = str(error).split("\n")[0]
    return out


def in_turns(kinds: Iterable[Sequence[Any]]) -> Iterator[tuple[int, Any]]:
    """(position of a race, candidate): the first candidate of every race, then the second ones. Where time is up before all are compiled, those that
    are missing are the least likely ones of each, and not all of the last races."""
    for row in itertools.zip_longest(*kinds, fillvalue=LATE):
        yield from ((k, c) for k, c in enumerate(row) if c is not LATE)


@contextlib.contextmanager
def on_gpu(device: torch.device) -> Iterator[None]:
    """``device`` is the current one, and nothing is recorded for a backward."""
    with torch.cuda.device(device), torch.no_grad():
        yield


class Bench:
    """``buffers``: storage by name, of random numbers, or zeros where integers may be indices: where they are not among ``values``."""

    def __init__(self, layouts: Mapping[str, Layout], hw: Hw, device: torch.device, values: Collection[str] = ()):
        self.device = device
        numbers = torch.Generator(device).manual_seed(0)  # the user's random numbers go on where they were
        self.buffers = {name: filled(storage_bytes(layout), layout.dtype, numbers, name in values) for name, layout in layouts.items()}
        self.flags = torch.zeros(FLAGS, dtype=torch.int32, pin_memory=True)
        self.flush = torch.empty(4 * hw.cache, dtype=torch.uint8, device=device)

    def launch(self, program: Program, made: Any, names: Sequence[str], grid: tuple[int, int], checks: bool) -> None:
        """``made``: the future of the machine code. Raises RuntimeError for a kernel that does not compile or launch."""
        try:
            binary = made.result()
        except (BackendError, CancelledError) as error:
            raise RuntimeError(str(error) or LATE) from error
        function, threads, shared = loaded(self.device.index or 0, *freeze(binary))
        places = [ctypes.c_void_p(self.buffers[n].data_ptr()) for n in names]
        places += [ctypes.c_void_p(self.flags.data_ptr())] * checks + [ctypes.c_void_p()] * 2
        args = (ctypes.c_void_p * len(places))(*[ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in places])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        x, y = grid
        told(cuda().cuLaunchKernel(ctypes.c_void_p(function), x, y, 1, threads, 1, 1, shared, stream, args, None), program.name)

    def recorded(self, run: Callable[[], Any]) -> Callable[[], Any]:
        """What ``run`` launches, as one CUDA graph: an eager operator takes the host longer than the GPU, which would be timed instead."""
        run()  # libraries take their workspace the first time
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                run()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph.replay

    def time(self, run: Callable[[], Any]) -> float:
        """Seconds of one ``run`` with a cold cache. Emptying it takes the GPU long enough for the host to launch what follows."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self.flush.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1e3

    def taken(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Copies of buffers, to compare with or to put back."""
        return {n: self.buffers[n].clone() for n in names}

    def give_back(self, copies: Mapping[str, torch.Tensor]) -> None:
        for name, copy in copies.items():
            self.buffers[name].copy_(copy)

    def agrees(self, wanted: Mapping[str, torch.Tensor]) -> bool:
        return all(close(self.buffers[name], copy) for name, copy in wanted.items())


def filled(nbytes: int, dtype: torch.dtype, numbers: torch.Generator, value: bool) -> torch.Tensor:
    """Random numbers; integers only where they are a ``value``, else zeros."""
    buffer = torch.zeros(nbytes // dtype.itemsize, dtype=dtype, device=numbers.device)
    if dtype.is_floating_point:
        return buffer.normal_(generator=numbers)
    return buffer.random_(0, 2 if dtype is torch.bool else 100, generator=numbers) if value else buffer


def close(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Equal up to the order of sums; NaN equals NaN."""
    if not found.dtype.is_floating_point:
        return torch.equal(found, wanted)
    a, b = found.float(), wanted.float()
    most = b.nan_to_num(0, 0, 0).abs().max().item() if b.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=TOLERANCE.get(found.dtype, 5e-2) * max(most, 1e-30), equal_nan=True)
