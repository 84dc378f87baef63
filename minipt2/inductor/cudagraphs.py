"""CUDA graphs: what a compiled graph launches is recorded once, and replayed with one call (mode ``reduce-overhead``).

In: the function of a compiled graph. Out: one that behaves the same. Called by ``load``. A recording works on fixed addresses:
inputs that stay where they are (parameters, and what other recordings made) are read in place, the others are copied to its own
buffers; results lie in memory that the recording keeps. A recording whose earlier results somebody still holds is not replayed:
another one is made, up to ``MOST_RECORDINGS``. (What a training step's forward shows the user is copied instead: a loss that is still
held in the next step would double the memory for activations.) All recordings of a device share one pool, in which intermediates, which nobody
holds, overlap; replays are in order on one stream. The reason for every call that is not replayed is told as a ``cudagraphs`` artifact.
Upstream: ``torch._inductor.cudagraph_trees``.
"""
from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter, OrderedDict
from typing import Any, Callable, Hashable, Sequence

import torch

from .. import trace
from ..exercise import exercise
from .runtime import arena_pool

MOST_RECORDINGS = 4
"""Recordings of one graph for the same sizes: calls whose results live at the same time, or that read parameters at other addresses."""
MOST_SIZES = 16
"""Tuples of sizes of one graph that are recorded at a time."""
FEW_REPLAYS, MOST_PATIENCE, MOST_MET = 8, 256, 1024
"""Replays by which a recording has not yet paid for itself; the most often that sizes must be met before they are recorded; tuples counted."""

Compiled = Callable[[list], list]
Replay = Callable[[], None]
Record = Callable[[Compiled, list], tuple[Replay, list]]
_results: dict[int, int] = {}
"""Address of a storage that a recording's results lie in -> how many recordings say so."""


class NotRecorded(Exception):
    """Why a call runs as it is."""


class Recording:
    """One recorded run. ``fixed``: (position, address) of inputs read in place; ``buffers``: (position, copy) of the others."""

    def __init__(self, fn: Compiled, args: Sequence[Any], static: frozenset[int], written: frozenset[int], shown: int, record: Record):
        self.stream = _stream()
        tensors = [(i, a) for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        in_place = [i for i, a in tensors if i in static or a.untyped_storage().data_ptr() in _results]
        self.fixed = [(i, args[i].data_ptr()) for i in in_place]
        self.buffers = [(i, _copy(a)) for i, a in tensors if i not in in_place]
        if moving := written.difference(in_place):
            raise NotRecorded(f"it writes into input {min(moving)}, which lies elsewhere at each call")
        inputs = list(args)
        for i, buffer in self.buffers:
            inputs[i] = buffer
        self.replay, results = record(fn, inputs)
        self.shown = shown
        self.results = [self._result(r, inputs) for r in results]
        lent = [r for r, _ in self.results[shown:] if isinstance(r, torch.Tensor)]
        kept = {r.untyped_storage().data_ptr(): r.untyped_storage() for r in lent}
        self.kept = [storage._cdata for storage in kept.values()]
        for address in kept:
            _results[address] = _results.get(address, 0) + 1
        weakref.finalize(self, _forget, list(kept)).atexit = False
        self.fresh = [k for k, (r, i) in enumerate(self.results) if i is None and isinstance(r, torch.Tensor) and (k < shown or not shown)]
        del kept, lent, results
        self.held = self._holders()

    def _holders(self) -> list[int]:
        """How many hold each storage and each tensor that is lent."""
        saved = [r for r, _ in self.results[self.shown:] if isinstance(r, torch.Tensor)] if self.shown else []
        return [_holders(cdata) for cdata in self.kept] + [r._use_count() for r in saved]

    def _result(self, result: Any, inputs: list[Any]) -> tuple[Any, int | None]:
        """(result, None), or (None, position) of the input that it is."""
        if not isinstance(result, torch.Tensor):
            return result, None
        place = result.untyped_storage().data_ptr()
        for i, value in enumerate(inputs):
            if value is result:
                return None, i
        for i, buffer in self.buffers:
            if place and buffer.untyped_storage().data_ptr() == place:
                raise NotRecorded(f"it returns part of input {i}, which lies elsewhere at each call")
        return result, None

    @exercise("7.4")
    def fits(self, args: Sequence[Any]) -> bool:
        """Whether the inputs that are read in place lie where they lay when it was recorded."""
        # >>> 7.4
        return all([args[i].data_ptr() == address for i, address in self.fixed])
        # <<< 7.4

    def free(self) -> bool:
        """Whether nobody holds results of the last run."""
        return self._holders() == self.held

    @exercise("7.4")
    def run(self, args: list) -> list:
        """Replay with the inputs ``args``, which are let go. What the caller sees are new tensors: copies of the results that are ``shown``
        where others are saved, else over the recording's memory. What is saved is lent as it is."""
        # >>> 7.4
        if self.buffers:
            _copy_all([buffer for _, buffer in self.buffers], [args[i] for i, _ in self.buffers])
        self.replay()
        results = [r if i is None else args[i] for r, i in self.results]
        if self.shown:
            shown = [results[k] for k in self.fresh]
            copies = [torch.empty_strided(r.shape, r.stride(), dtype=r.dtype, device=r.device) for r in shown]
            _copy_all(copies, shown)
        else:
            copies = [results[k].detach() for k in self.fresh]
        for k, copy in zip(self.fresh, copies):
            results[k] = copy
        args.clear()
        return results
        # <<< 7.4


class Room:
    """Which tuples of sizes are recorded: at most ``MOST_SIZES`` at a time. Where there is no room, a new one waits until it was met ``patience``
    times; then the one that was used longest ago goes. If that one was hardly replayed (a cache that grows with each token comes by sizes
    once a text), patience doubles, so that recording never costs more than it brings; if it was, patience is short again.
    """

    def __init__(self) -> None:
        self.recordings: OrderedDict[Hashable, list[Recording]] = OrderedDict()
        self.replays: Counter[Hashable] = Counter()
        self.met: OrderedDict[Hashable, int] = OrderedDict()
        self.patience = 2

    def used(self, sizes: Hashable) -> None:
        self.recordings.move_to_end(sizes)
        self.replays[sizes] += 1

    def make(self, sizes: Hashable) -> None:
        """Room for recordings for ``sizes``. Raises NotRecorded."""
        if len(self.recordings) >= MOST_SIZES:
            self.met[sizes] = times = self.met.pop(sizes, 0) + 1
            if len(self.met) > MOST_MET:
                self.met.popitem(last=False)
            if times < self.patience:
                raise NotRecorded(f"{MOST_SIZES} other tuples of sizes are recorded, and {sizes} was met {times} of {self.patience} times")
            oldest, dropped = self.recordings.popitem(last=False)
            replays = self.replays.pop(oldest, 0)
            if dropped:
                self.patience = min(2 * self.patience, MOST_PATIENCE) if replays < FEW_REPLAYS else 2
            del self.met[sizes]
        self.recordings[sizes] = []


class Replayed:
    """``fn(args: list) -> list``, recorded at the second call for each tuple of sizes (integers among ``args``; ``Room`` says how many of them)
    and replayed from then on.

    static: positions of parameters and buffers. written: of inputs that ``fn`` writes into. shown: how many results, the first ones, are
    copied for the caller. name: for the log. record: ``record(fn, inputs) -> (replay, results)``. check: called before each replay, raises
    what kernels of earlier calls found (a run that is not replayed checks by itself).
    """

    def __init__(self, fn: Compiled, static: Sequence[int], written: Sequence[int], shown: int, name: str, record: Record | None = None,
                 check: Callable[[], None] = lambda: None):
        self.fn, self.static, self.written, self.shown = fn, frozenset(static), frozenset(written), shown
        self.name, self.record, self.check = name, record, check
        self.room = Room()
        self.recordings = self.room.recordings
        self.lock = threading.Lock()

    def __call__(self, args: list) -> list:
        self.check()
        if not self.lock.acquire(blocking=False):
            return self.plainly(args, "another thread is in it")
        try:
            recording = self.choose(args)
            if recording is not None:
                return recording.run(args)
        except NotRecorded as reason:
            return self.plainly(args, str(reason))
        finally:
            self.lock.release()
        return self.fn(args)

    def plainly(self, args: list, reason: str) -> list:
        trace.count("cudagraph_skips")
        trace.artifact("cudagraphs", self.name, reason)
        return self.fn(args)

    @exercise("7.4")
    def choose(self, args: list) -> Recording | None:
        """A recording for these inputs; None at the first call, in which kernels are loaded and libraries make their workspaces."""
        # >>> 7.4
        sizes = tuple([a for a in args if not isinstance(a, torch.Tensor)])
        family = self.recordings.get(sizes)
        if family is None:
            self.room.make(sizes)
            return None
        self.room.used(sizes)
        for recording in family:
            if recording.fits(args) and recording.free():
                if recording.stream != _stream():
                    raise NotRecorded("it was recorded for another stream")
                return recording
        if len(family) >= MOST_RECORDINGS:
            raise NotRecorded(f"results of {MOST_RECORDINGS} earlier calls are still held, or parameters moved as often")
        record = self.record or _recorder(args)
        try:
            family.append(Recording(self.fn, args, self.static, self.written, self.shown, record))
        except RuntimeError as error:
            raise NotRecorded(f"it cannot be recorded: {error}") from error
        trace.count("cudagraphs")
        return family[-1]
        # <<< 7.4


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _copy_all(into: list[torch.Tensor], values: list[torch.Tensor]) -> None:
    """One kernel for all tensors of a dtype: torch copies one by one where a list mixes them."""
    kinds: dict[tuple[torch.dtype, torch.dtype], list[int]] = {}
    for k, (a, b) in enumerate(zip(into, values)):
        kinds.setdefault((a.dtype, b.dtype), []).append(k)
    for places in kinds.values():
        torch._foreach_copy_([into[k] for k in places], [values[k] for k in places])


def _holders(cdata: int) -> int:
    return torch._C._storage_Use_Count(cdata)


def _forget(addresses: list[int]) -> None:
    for address in addresses:
        _results[address] -= 1
        if not _results[address]:
            del _results[address]


# ------------------------------------------------------------------ on a GPU
def _stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_available() else None


def _recorder(args: Sequence[Any]) -> Record:
    """Records on the device that all tensors of ``args`` are on. Raises NotRecorded."""
    devices = {a.device for a in args if isinstance(a, torch.Tensor)}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise NotRecorded(f"its inputs are on {', '.join(sorted(map(str, devices))) or 'no device'}")
    if torch.cuda.is_current_stream_capturing():
        raise NotRecorded("it runs within somebody's recording")
    return functools.partial(_record, next(iter(devices)))


@functools.cache
def _pool(device: torch.device) -> tuple[Any, torch.cuda.Stream, Any]:
    """The pool of all recordings, and one that is never dropped: a pool that nobody uses any more cannot be recorded into again."""
    with torch.cuda.device(device):
        pool, stream, keeper = torch.cuda.graph_pool_handle(), torch.cuda.Stream(device), torch.cuda.CUDAGraph()
        with torch.cuda.graph(keeper, pool=pool, stream=stream, capture_error_mode="thread_local"):
            torch.zeros(1, device=device)
        return pool, stream, keeper


def _record(device: torch.device, fn: Compiled, inputs: list) -> tuple[Replay, list]:
    pool, stream, _ = _pool(device)
    graph = torch.cuda.CUDAGraph()
    with arena_pool(str(device)).for_recording(), torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
        results = fn(inputs.copy())
    return graph.replay, results
