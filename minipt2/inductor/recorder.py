"""Who records a run, and in which memory: the GPU's side of ``cudagraphs``.

In: a function and its inputs. Out: a ``Taken``. All recordings of a device share one pool of torch's allocator. A block that is free at the end
of one recording is there for the next, so that intermediates of all recordings overlap; ``touched`` says what a replay may write there, and
``cudagraphs`` sees to it that nobody holds any of it when it is replayed. Upstream: the pool of ``torch._inductor.cudagraph_trees``.
"""
from __future__ import annotations

import functools
import weakref
from typing import Any, Callable, NamedTuple, Sequence

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .runtime import Look, arena_pool, look, results_in

Compiled = Callable[[list], list]
Replay = Callable[[], None]
Take = Callable[[Compiled, list], tuple[Replay, list]]
Span = tuple[int, int]
"""Addresses ``[start, end)``."""


class NotRecorded(Exception):
    """Why a call runs as it is."""


class Refused(NotRecorded):
    """Recording was tried, and failed."""


class Taken(NamedTuple):
    """One recorded run: ``replay()`` does it again, on inputs that are copied to ``buffers`` before; its results lie where ``results`` lie.

    Each of ``results``: a tensor or another object, or None with the position of the input that it is. touched: memory of the shared pool that a
    replay may write.
    """

    replay: Replay
    results: list[tuple[Any, int | None]]
    buffers: list[tuple[int, torch.Tensor]]
    touched: list[Span]


class Recorder:
    """Records through ``take(fn, inputs) -> (replay, results)``; its recordings share no memory. Buffers are copies of the inputs that move."""

    shares = False

    def __init__(self, take: Take):
        self.take = take

    def record(self, fn: Compiled, inputs: list, moving: Sequence[int], looks: Sequence[Look] | None, apart: bool) -> Taken:
        """Record ``fn(inputs)``, which owns the list. moving: positions of inputs that lie elsewhere at each call. looks: of results, which lie
        outside of the pool; None: they lie in it, saved for a backward, or where it took over what was saved. apart: in a pool of its own. Raises
        NotRecorded, and RuntimeError where it cannot be recorded."""
        for i in moving:
            inputs[i] = copied(inputs[i])
        kept = list(inputs)
        replay, results = self.take(fn, inputs)
        named = Inputs(kept, moving)
        return Taken(replay, [named.result(r) for r in results], [(i, kept[i]) for i in moving], [])

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor over the same memory that does not own it."""
        return tensor

    def move(self, storage: torch.UntypedStorage) -> None:
        """Give ``storage``, and so all tensors over it, other memory with the same contents."""
        contents = storage.clone()
        storage.resize_(0)
        storage.resize_(contents.nbytes())
        storage.copy_(contents)


class Inputs:
    """Finds results that are inputs, without holding any: their memory is the recording's once their last use is over."""

    def __init__(self, inputs: Sequence[Any], moving: Sequence[int]):
        self.objects = [(i, weakref.ref(x)) for i, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        self.moving = [StorageWeakRef(inputs[i].untyped_storage()) for i in moving]

    def result(self, result: Any) -> tuple[Any, int | None]:
        """(result, None), or (None, position) of the input that it is."""
        if isinstance(result, torch.Tensor):
            for i, ref in self.objects:
                if ref() is result:
                    return None, i
        return result, None

    def part(self, result: torch.Tensor) -> bool:
        """Whether ``result`` lies in the memory of an input that moves (an expanded one, say)."""
        return any([storage.cdata == result.untyped_storage()._cdata for storage in self.moving])


def copied(tensor: torch.Tensor) -> torch.Tensor:
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    flat(new).copy_(flat(tensor))
    return new


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """The memory that ``tensor`` spans: one that was expanded cannot be copied to element by element."""
    return tensor.as_strided((1 + sum([(n - 1) * s for n, s in zip(tensor.shape, tensor.stride())]) if tensor.numel() else 0,), (1,))


# ------------------------------------------------------------------ on a GPU
class GpuRecorder(Recorder):
    """Records on ``device`` what is replayed on the stream that is current now: there, replays run one after another.

    One graph of the pool is never dropped: a pool that nobody uses any more cannot be recorded into again.
    """

    shares = True

    def __init__(self, device: torch.device):
        self.device = device
        self._renew()

    def _renew(self) -> None:
        """A pool that is empty."""
        with torch.cuda.device(self.device):
            self.pool, self.side, self.keeper = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device), torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.keeper, pool=self.pool, stream=self.side, capture_error_mode="thread_local"):
                torch.zeros(1, device=self.device)

    def record(self, fn: Compiled, inputs: list, moving: Sequence[int], looks: Sequence[Look] | None, apart: bool) -> Taken:
        """As ``Recorder.record``. Buffers are memory of the pool up to their last use, cuBLAS's workspace up to the end. (Results that lie in it lie
        where intermediates of earlier recordings do: those of a graph that is called again while they are held should not.)"""
        graph, outer = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        outside: dict[Look, list[torch.Tensor]] = {}
        for shape, strides, dtype in looks if looks and not apart else ():
            outside.setdefault((shape, strides, dtype), []).append(torch.empty_strided(shape, strides, dtype=dtype, device=self.device))
        lie_outside = {t.untyped_storage()._cdata for like in outside.values() for t in like}
        before = [] if apart else self._blocks()
        _forget_workspaces()
        try:
            with arena_pool(str(self.device)).for_recording(), results_in(outside), torch.cuda.graph(
                    graph, pool=None if apart else self.pool, stream=self.side, capture_error_mode="thread_local"):
                for i in moving:
                    x = inputs[i]
                    inputs[i] = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
                    del x
                named, places = Inputs(inputs, moving), [(i, Memory(inputs[i])) for i in moving]
                found = [named.result(r) for r in fn(inputs)]
                for k, (r, _) in enumerate(found):
                    if not isinstance(r, torch.Tensor):
                        continue
                    if r.untyped_storage()._cdata not in lie_outside and (like := outside.get(look(r))):  # what an eager kernel made lies inside
                        found[k] = like.pop(), None
                        flat(found[k][0]).copy_(flat(r))
                    elif named.part(r):
                        found[k] = copied(r), None
                r = None
        except BaseException as error:
            torch.cuda.set_stream(outer)  # torch leaves the other one current where a recording does not end well
            if not isinstance(error, (NotRecorded, torch.OutOfMemoryError)):
                self._renew()  # and its allocator takes the pool for one that is recorded into
            raise
        finally:
            _forget_workspaces()
        return Taken(graph.replay, found, [(i, place.tensor()) for i, place in places], [] if apart else self._touched(before))

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        return Memory(tensor).tensor()

    def _blocks(self) -> list[tuple[int, int, bool]]:
        """(start, end, whether somebody holds it) of the pool's blocks, by address."""
        blocks = [(b["address"], b["address"] + b["size"], b["state"] == "active_allocated")
                  for segment in torch.cuda.memory_snapshot(self.pool) for b in segment["blocks"]]
        return sorted(blocks)

    def _touched(self, before: list[tuple[int, int, bool]]) -> list[Span]:
        """What may have been used since: all but blocks that were held then and still are. Neighbours are joined."""
        held = {(start, end) for start, end, active in before if active}
        spans: list[Span] = []
        for start, end, active in self._blocks():
            if active and (start, end) in held:
                continue
            if spans and spans[-1][1] == start:
                start = spans.pop()[0]
            spans.append((start, end))
        return spans


class Memory:
    """A tensor's place and shape, and tensors over that place which do not own it (``__cuda_array_interface__``)."""

    def __init__(self, tensor: torch.Tensor):
        storage = tensor.untyped_storage()
        self.device, self.dtype = tensor.device, tensor.dtype
        self.view = (tensor.storage_offset(), tensor.shape, tensor.stride())
        self.__cuda_array_interface__ = dict(shape=(storage.nbytes(),), typestr="|u1", data=(storage.data_ptr(), False), version=2)

    def tensor(self) -> torch.Tensor:
        with torch.inference_mode(False), torch.no_grad():
            empty = torch.empty(0, dtype=self.dtype, device=self.device)
            if not self.__cuda_array_interface__["shape"][0]:
                return empty.as_strided(self.view[1], self.view[2])
            return empty.set_(torch.as_tensor(self, device=self.device).untyped_storage(), *self.view)


def _forget_workspaces() -> None:
    """cuBLAS keeps a workspace for each stream between calls. Before a recording: it takes its own, from its pool. Behind it: nobody else works
    there, and what torch.compile's recordings do (they have all workspaces freed) does not pull it from under ours."""
    torch._C._cuda_clearCublasWorkspaces()


def recorder_of(args: Sequence[Any]) -> Recorder:
    """Records on the device that all tensors of ``args`` are on. Raises NotRecorded."""
    devices = {a.device for a in args if isinstance(a, torch.Tensor)}
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise NotRecorded(f"its inputs are on {', '.join(sorted(map(str, devices))) or 'no device'}")
    if torch.cuda.is_current_stream_capturing():
        raise NotRecorded("it runs within somebody's recording")
    device = next(iter(devices))
    return gpu_recorder(device, torch.cuda.current_stream(device).cuda_stream)


@functools.cache
def gpu_recorder(device: torch.device, stream: int) -> GpuRecorder:
    """The one for replays on ``stream``."""
    return GpuRecorder(device)


def stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_available() else None
