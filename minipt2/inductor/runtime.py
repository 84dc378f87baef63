"""What generated wrapper modules call at run time: arenas for intermediates, tensors over them, checks.

Upstream: ``torch._inductor.runtime`` and the memory planner's pools.
"""
from __future__ import annotations

import ctypes
import weakref
from typing import Any, Callable, Sequence

import torch

from ..errors import PartlyWritten
from ..prims.elementwise import WRONG_VALUE

Pointers = ctypes.c_void_p
BAD_INDEX, BAD_VALUE, WRITTEN = 1, 4, 8
"""Bits of what a run of kernels returns; WRITTEN: it has begun to write into inputs."""


class Arena:
    """One piece of memory for the intermediates of whichever graph runs in it. ``base`` is its address."""

    def __init__(self) -> None:
        with torch.inference_mode(False):
            self.storage = torch.empty(0, dtype=torch.uint8).untyped_storage()
        self.base = self.nbytes = 0

    def grow(self, nbytes: int) -> None:
        """Tensors over the storage follow it to its new place. Nothing in it outlives a call, so that nothing is copied."""
        self.storage.resize_(0)
        self.storage.resize_(nbytes)
        self.base, self.nbytes = self.storage.data_ptr(), nbytes


class ArenaPool:
    """Arenas not in use. All graphs of a process share them: a forward and a backward graph never hold one each between calls.

    ``take`` and ``give`` are single list operations, so that threads and re-entrant calls get arenas of their own without a lock.
    """

    def __init__(self) -> None:
        self.free: list[Arena] = []

    def take(self, nbytes: int) -> Arena:
        try:
            arena = self.free.pop()
        except IndexError:
            arena = Arena()
        if arena.nbytes < nbytes:
            arena.grow(nbytes)
        return arena

    def give(self, arena: Arena) -> None:
        self.free.append(arena)


_pools: "weakref.WeakValueDictionary[str, ArenaPool]" = weakref.WeakValueDictionary()


def arena_pool() -> ArenaPool:
    """The pool of this process; its memory goes when the last graph that uses it goes."""
    pool = _pools.get("cpu")
    if pool is None:
        pool = _pools["cpu"] = ArenaPool()
    return pool


class Views:
    """Tensors over arenas, made once for each arena that a graph meets."""

    def __init__(self, make: Callable[[torch.UntypedStorage], tuple[torch.Tensor, ...]]):
        self._make = make
        self._made: dict[Arena, tuple[torch.Tensor, ...]] = {}

    def __call__(self, arena: Arena) -> tuple[torch.Tensor, ...]:
        views = self._made.get(arena)
        if views is None:
            with torch.inference_mode(False), torch.no_grad():
                views = self._made[arena] = self._make(arena.storage)
        return views


def over(storage: torch.UntypedStorage, offset: int, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]) -> torch.Tensor:
    """A tensor over ``storage``; ``offset`` in bytes (a multiple of the element size)."""
    tensor = torch.empty(0, dtype=dtype)
    return tensor.set_(storage, offset // tensor.element_size(), size, stride)


def placed(tensor: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """``tensor`` if it lies in memory as the generated loops expect, else a copy that does (a fake kernel may have been wrong).

    One of another size is an opaque workspace (oneDNN's LSTM has one), which no loop reads.
    """
    if tensor.stride() == stride and tensor.dtype is dtype or tensor.shape != size:
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
        fault: Exception = IndexError("index out of range in self")
    else:
        fault = RuntimeError(WRONG_VALUE if error & BAD_VALUE else "ZeroDivisionError")
    if error & WRITTEN:
        raise PartlyWritten from fault
    raise fault


def bind(library: ctypes.CDLL, name: str, pointers: int) -> Callable[..., int]:
    """The C function ``name`` of ``pointers`` pointers; returns an error code."""
    function: Any = library[name]
    function.argtypes, function.restype = [Pointers] * pointers, ctypes.c_int
    return function
