"""A recorder for the CPU whose recordings share memory as those of a GPU do: blocks are taken best fit, and given back where their tensors die.

A replay reads its inputs by their addresses, then fills all that it may have written with rubbish, and then writes its results. Whoever
holds something that lies there sees it.
"""
from __future__ import annotations

import ctypes
import gc
import importlib
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from minipt2.inductor.arena import MemoryMap
from minipt2.inductor.recorder import Inputs, Recorder, Taken, copied, flat

RUBBISH = 0xE5


class Block:
    """A tensor like another one over stretch ``slot`` of the pool."""

    def __init__(self, pool: "Pool", like: torch.Tensor):
        self.slot = pool.map.take(max(like.untyped_storage().nbytes(), 1))
        self.like = torch.empty(0, dtype=like.dtype), like.storage_offset(), like.shape, like.stride(), like.untyped_storage().nbytes()
        self.address = pool.start + self.slot.offset

    def tensor(self) -> torch.Tensor:
        return over(self.address, *self.like)


def over(address: int, empty: torch.Tensor, offset: int, shape: Any, stride: Any, nbytes: int) -> torch.Tensor:
    if not nbytes:
        return empty.as_strided(shape, stride)
    memory = (ctypes.c_char * nbytes).from_address(address)
    return torch.empty_like(empty).set_(torch.frombuffer(memory, dtype=torch.uint8).untyped_storage(), offset, shape, stride)


def place(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, owned by nobody."""
    storage = tensor.untyped_storage()
    return over(storage.data_ptr(), torch.empty(0, dtype=tensor.dtype), tensor.storage_offset(), tensor.shape, tensor.stride(), storage.nbytes())


class Pool(Recorder):
    shares = True

    def __init__(self, size: int = 1 << 24, scratch: int = 1 << 12):
        self.memory, self.scratch, self.map = (ctypes.c_char * size)(), scratch, MemoryMap()
        self.start = -(-ctypes.addressof(self.memory) // 64) * 64
        self.blocks: list[tuple[Any, StorageWeakRef]] = []
        self.recorded = self.apart = self.moved = 0

    def give_back(self) -> None:
        for slot, storage in self.blocks:
            if storage.expired():
                self.map.give(slot)
        self.blocks = [(slot, storage) for slot, storage in self.blocks if not storage.expired()]

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        return place(tensor)

    def move(self, storage: torch.UntypedStorage) -> None:
        """As ``Recorder.move``, for memory that cannot be resized: its tensors are looked up."""
        self.moved += 1
        found = [t for t in gc.get_objects() if type(t) in (torch.Tensor, torch.nn.Parameter) and torch._C._has_storage(t)]
        found += [t.grad for t in found if t.is_leaf and t.grad is not None]
        for t in {id(t): t for t in found if t.untyped_storage()._cdata == storage._cdata}.values():
            with torch.no_grad():
                t.set_(storage.clone(), t.storage_offset(), t.shape, t.stride())

    def record(self, fn, inputs, moving, looks, apart):
        self.recorded += 1
        self.apart += apart
        self.give_back()
        before = {slot for slot, _ in self.blocks}
        work = [Block(self, inputs[i]) for i in moving] if not apart else []
        buffers = [(i, block.tensor()) for i, block in zip(moving, work)] if not apart else [(i, copied(inputs[i])) for i in moving]
        for i, buffer in buffers:
            flat(buffer).copy_(flat(inputs[i]))
            inputs[i] = buffer
        scratch = self.map.take(self.scratch)
        places = [place(x) if isinstance(x, torch.Tensor) else x for x in inputs]
        named, values = Inputs(inputs, moving), fn(inputs)
        inputs.clear()
        self.give_back()
        found = []
        for value in values:
            result, i = named.result(value)
            if isinstance(result, torch.Tensor) and named.part(result):
                result = copied(result)
            if isinstance(result, torch.Tensor) and looks is None and not apart:
                block = Block(self, result)
                result = block.tensor()
                self.blocks.append((block.slot, StorageWeakRef(result.untyped_storage())))
            found.append((result, i))
        del values, value
        for slot in [scratch, *[block.slot for block in work]]:
            self.map.give(slot)
        own = [[r for r, _ in found], buffers] if apart else []  # a pool of its own lives as long as its graph
        outs = [place(r) if isinstance(r, torch.Tensor) else None for r, _ in found]
        held, touched = {slot for slot, _ in self.blocks} & before, []
        at = 0
        for slot in sorted(held) + [None]:
            end = slot.offset if slot is not None else self.map.high
            if end > at:
                touched.append((self.start + at, self.start + end))
            at = slot.offset + slot.size if slot is not None else at

        def replay():
            values = fn([copied(x) if isinstance(x, torch.Tensor) else x for x in places])
            assert apart == bool(own)
            for start, end in touched if not apart else []:
                ctypes.memset(start, RUBBISH, end - start)
            for out, value in zip(outs, values):
                if out is not None:
                    flat(out).copy_(flat(value))
        return Taken(replay, found, [(i, place(b)) for i, b in buffers], [] if apart else touched)


def recorded(patch: Any, pool: Pool) -> None:
    """Have graphs for the CPU recorded in ``pool``, as those for a GPU are in their mode ``reduce-overhead`` (which the caller sets, with
    ``triton_interpret``). ``patch``: pytest's monkeypatch."""
    compiling, loading = (importlib.import_module(f"minipt2.inductor.{name}") for name in ("compile", "load"))
    compiled, replayed = compiling._compiled, loading.Replayed

    def with_lasting(gm, device, inference, name):
        recipe = compiled(gm, device, inference, name)
        inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        if recipe.prologue is None:
            recipe.lasting = [i for i, n in enumerate(inputs) if n.meta.get("static")]
            recipe.written = sorted(gm.meta.get("mutated_inputs", {}).values())
            recipe.shown = compiling._shown(gm)
        return recipe
    patch.setattr(compiling, "_compiled", with_lasting)
    patch.setattr(loading, "Replayed", lambda call, lasting, written, shown, name, check: replayed(call, lasting, written, shown, name, pool, check))
