"""What generated wrapper modules call at run time: arenas for intermediates, tensors over them, checks.

Upstream: ``torch._inductor.runtime`` and the memory planner's pools.
"""
from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections import OrderedDict, defaultdict
from typing import Any, Callable, Iterator, Sequence

import torch

from ..errors import IndexOutOfRange, PartlyWritten
from ..prims.elementwise import WRONG_VALUE

Pointers = ctypes.c_void_p
BAD_INDEX, BAD_VALUE, WRITTEN = 1, 4, 8
"""Bits of what a run of kernels returns; WRITTEN: it has begun to write into inputs."""


class Arena:
    """One piece of memory for the intermediates of whichever graph runs in it. ``base`` is its address; ``stream`` orders its uses."""

    def __init__(self, device: str = "cpu", stream: int = 0) -> None:
        with torch.inference_mode(False):
            self.storage = torch.empty(0, dtype=torch.uint8, device=device).untyped_storage()
        self.stream = stream
        self.passing = False
        """Used once: nobody keeps tensors over it."""
        self.base = self.nbytes = 0

    def grow(self, nbytes: int) -> None:
        """Tensors over the storage follow it to its new place. Nothing in it outlives a call, so that nothing is copied."""
        self.storage.resize_(0)
        self.storage.resize_(nbytes)
        self.base, self.nbytes = self.storage.data_ptr(), nbytes


KEPT = 1 << 24
"""Bytes that an arena on a GPU keeps between calls; what is larger goes back to torch's allocator, which other tensors share."""


class ArenaPool:
    """Arenas of ``device`` not in use. All graphs of a process share them: a forward and a backward graph never hold one each between calls.

    A GPU may still work in an arena when it is given back: the next to take it uses the same stream. ``take`` and ``give`` are single list
    operations, so that threads and re-entrant calls get arenas of their own without a lock.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.free: defaultdict[int, list[Arena]] = defaultdict(list)
        self.recording = False

    def take(self, nbytes: int, stream: int = 0) -> Arena:
        try:
            arena = Arena(self.device, stream) if self.recording else self.free[stream].pop()
        except IndexError:
            arena = Arena(self.device, stream)
        arena.passing = self.recording
        if arena.nbytes < nbytes:
            arena.grow(nbytes)
        return arena

    def give(self, arena: Arena) -> None:
        if self.recording:
            return
        if arena.nbytes > KEPT and self.device != "cpu":
            arena.grow(0)
        self.free[arena.stream].append(arena)

    @contextlib.contextmanager
    def for_recording(self) -> Iterator[None]:
        """A CUDA graph is being recorded: memory comes from the recording's own pool, and is its again afterwards."""
        self.recording = True
        try:
            yield
        finally:
            self.recording = False


_pools: "weakref.WeakValueDictionary[str, ArenaPool]" = weakref.WeakValueDictionary()


def arena_pool(device: str = "cpu") -> ArenaPool:
    """The pool of this process for ``device``; its memory goes when the last graph that uses it goes."""
    pool = _pools.get(device)
    if pool is None:
        pool = _pools[device] = ArenaPool(device)
    return pool


_prepared = threading.local()
Look = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Size, strides and dtype."""


def look(tensor: torch.Tensor) -> Look:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


@contextlib.contextmanager
def results_in(tensors: dict[Look, list[torch.Tensor]]) -> Iterator[None]:
    """On this thread, results are written to these tensors, as far as there are any that look like them."""
    _prepared.tensors = tensors
    try:
        yield
    finally:
        _prepared.tensors = None


def result(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype, device: Any) -> torch.Tensor:
    """Memory for what a graph on a GPU returns: a prepared tensor while a recording is made (``results_in``), else a new one."""
    tensors = getattr(_prepared, "tensors", None)
    if tensors and (like := tensors.get((tuple(size), tuple(stride), dtype))):
        return like.pop()
    return torch.empty_strided(size, stride, dtype=dtype, device=device)


class Views:
    """Tensors over arenas, made once for each arena that a graph meets."""

    def __init__(self, make: Callable[[torch.UntypedStorage], tuple[torch.Tensor, ...]]):
        self._make = make
        self._made: dict[Arena, tuple[torch.Tensor, ...]] = {}

    def __call__(self, arena: Arena) -> tuple[torch.Tensor, ...]:
        views = self._made.get(arena)
        if views is None:
            with torch.inference_mode(False), torch.no_grad():
                views = self._make(arena.storage)
            if not arena.passing:
                self._made[arena] = views
        return views


WIDE_FROM = 1 << 31
"""Bytes or iterations from which on offsets have 64 bits."""


class Plan:
    """What a graph with symbolic sizes needs for one tuple of them: bytes of arena, offsets in it (for C), views, and whether some offset
    needs 64 bits (``extents``: bytes and counts that must stay below 2**31 otherwise); on a GPU, what its ``runs`` launch."""

    __slots__ = ("nbytes", "offsets", "views", "wide", "runs")

    def __init__(self, nbytes: int = 0, offsets: Sequence[int] = (), make_views: Callable[..., tuple] = lambda storage: (),
                 extents: Sequence[int] = (), runs: Sequence[Any] = ()):
        self.nbytes, self.views, self.runs = nbytes, Views(make_views), runs
        self.offsets = (ctypes.c_int64 * len(offsets))(*offsets)
        self.wide = max(extents, default=0) >= WIDE_FROM


class Plans:
    """The plan for each tuple of sizes; the ones used last are kept."""

    KEPT = 512
    """A decoder whose cache grows comes by as many sizes as it writes tokens; a plan takes some kilobytes."""

    def __init__(self, make: Callable[..., Plan]):
        self._make = make
        self._made: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, *sizes: int) -> Plan:
        with self._lock:
            plan = self._made.get(sizes)
            if plan is not None:
                self._made.move_to_end(sizes)
                return plan
        plan = self._make(*sizes)
        with self._lock:
            self._made[sizes] = plan
            if len(self._made) > self.KEPT:
                self._made.popitem(last=False)
        return plan


class Runs:
    """C functions with offsets of 32 bits, and the same with 64, compiled when sizes first need them. ``bound(library)`` gives the functions."""

    def __init__(self, bound: Callable[[Any], tuple], library: Any, wide_library: Callable[[], Any]):
        self._bound, self._wide_library = bound, wide_library
        self._narrow = bound(library)
        self._wide: tuple | None = None

    def __call__(self, wide: bool) -> tuple:
        if not wide:
            return self._narrow
        if self._wide is None:
            self._wide = self._bound(self._wide_library())
        return self._wide


def over(storage: torch.UntypedStorage, offset: int, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A tensor over ``storage``; ``offset`` in bytes (a multiple of the element size)."""
    tensor = torch.empty(0, dtype=dtype, device=storage.device)
    return tensor.set_(storage, offset // tensor.element_size(), size, stride)


def placed(tensor: torch.Tensor | None, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor | None:
    """``tensor`` if it lies in memory as the generated loops expect, else a copy that does (a fake kernel may have been wrong).

    One of another size is an opaque workspace (oneDNN's LSTM has one), which no loop reads; None where a meta kernel makes an empty tensor for
    what the eager kernel leaves undefined (the weights that ``nn.MultiheadAttention`` is not asked for).
    """
    if tensor is None or tensor.stride() == stride and tensor.dtype is dtype or tensor.shape != size:
        return tensor
    return torch.empty_strided(size, stride, dtype=dtype, device=tensor.device).copy_(tensor)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a tensor whose elements don't start at multiples of their size (C may not read such ones in place)."""
    span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    memory = torch.empty(span, dtype=tensor.dtype)
    ctypes.memmove(memory.data_ptr(), tensor.data_ptr(), span * memory.element_size())
    return memory.as_strided(tensor.shape, tensor.stride())


def shifted(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """The elements of ``tensor``'s memory from ``offset`` on, seen with another size and stride."""
    return tensor.as_strided(size, stride, tensor.storage_offset() + offset)


def fail(error: int) -> None:
    """Raise what eager raises, for the bits a kernel has set: an index outside its dimension, a value of no meaning, an integer division by zero."""
    if error & BAD_INDEX:
        fault: Exception = IndexOutOfRange("index out of range in self")
    else:
        fault = RuntimeError(WRONG_VALUE if error & BAD_VALUE else "ZeroDivisionError")
    if error & WRITTEN:
        raise PartlyWritten from fault
    raise fault


NUMBERS = {"l": ctypes.c_int64, "d": ctypes.c_double}
"""Types of the numbers of a call."""


def bind(library: ctypes.CDLL, name: str, pointers: int, numbers: str = "") -> Callable[..., int]:
    """The C function ``name`` of ``pointers`` pointers and then ``numbers`` (``l`` int64, ``d`` double); returns an error code."""
    function: Any = library[name]
    function.argtypes, function.restype = [Pointers] * pointers + [NUMBERS[n] for n in numbers], ctypes.c_int
    return function
