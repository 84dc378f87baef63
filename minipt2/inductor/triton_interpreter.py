"""The kernels of one graph run by Triton's interpreter on CPU tensors: what they mean, without a GPU.

``TRITON_INTERPRET=1`` must stand in the environment before Triton is first imported. The interpreter has no device library: ``Libdevice``
computes its functions with torch. Upstream: ``triton.runtime.interpreter``.
"""
from __future__ import annotations

import ctypes
import linecache
import os
from typing import Any, Callable, Iterator, Sequence

import numpy as np
import torch

from ..errors import BackendError
from .codegen.triton_ops import helpers
from .codegen.triton_wrapper import UNALIGNED
from .runtime import Plan
from .triton_library import FLAGS, bits
from .triton_sizes import ARENA, POINTER, SIZE, Variants
from .triton_sizes import FLAGS as NOTES

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16, "i8": torch.int8, "i16": torch.int16,
          "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
          "i1": torch.bool}


class Libdevice:
    """Functions of NVIDIA's device library on the interpreter's blocks."""

    NAMES = {"rint": "round", "fast_dividef": "div", "fast_expf": "exp"}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(torch, self.NAMES.get(name, name))

        def call(*args: Any) -> Any:
            block = next(a for a in args if hasattr(a, "handle"))
            operands = [torch.from_numpy(np.asarray(a.handle.data)) if hasattr(a, "handle") else torch.tensor(a) for a in args]
            return _block(function(*operands).numpy(), block)
        return call


def _block(data: np.ndarray, like: Any) -> Any:
    """``data`` as the interpreter holds a block of ``like``'s element type."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    scalar = like.dtype.scalar
    data = np.asarray(data).astype(np.asarray(like.handle.data).dtype)
    return tl.tensor(TensorHandle(data, scalar), tl.block_type(scalar, list(data.shape)) if data.ndim else scalar)


def _lanes(function: Callable[..., np.ndarray]) -> Callable[[Any, int], Any]:
    return lambda v, axis: _block(function(v.handle.data, axis=axis), v)


def _welford(mean: Any, m2: Any, count: Any, axis: int) -> tuple[Any, ...]:
    means, squares, counts = (a.handle.data.astype(np.float64) for a in (mean, m2, count))
    total = counts.sum(axis, keepdims=True)
    merged = (means * counts).sum(axis, keepdims=True) / np.maximum(total, 1)
    squares = (squares + counts * (means - merged) ** 2).sum(axis)
    return _block(merged.squeeze(axis), mean), _block(squares, m2), _block(total.squeeze(axis), count)


def dot(u: Any, v: Any, acc: Any = None, **precision: Any) -> Any:
    """``tl.dot`` of whatever the interpreter holds as bits: it multiplies those of bfloat16 as integers."""
    import triton.language as tl
    if u.dtype == tl.bfloat16:
        u, v = u.to(tl.float32), v.to(tl.float32)
    return tl.dot(u, v, acc, **precision)


FAST = {"nan_max": _lanes(np.max), "nan_min": _lanes(np.min), "product": _lanes(np.prod), "welford": _welford}
"""Reductions with a function of their own: the interpreter would call it once for each element."""


class Interpreted:
    """The face of ``triton_library.Loaded``, over addresses of host memory."""

    def __init__(self, table: dict[str, Any]):
        if os.environ.get("TRITON_INTERPRET") != "1":
            raise BackendError("Triton's interpreter needs TRITON_INTERPRET=1 in the environment before Triton is imported")
        self.table = table
        self.programs = [_define(p) for p in table["programs"]]
        self.flags = (ctypes.c_int * FLAGS)()

    def stream(self) -> int:
        return 0

    def check(self) -> None:
        """Nothing is left from earlier calls: each run returns its own errors."""

    def run(self, k: int) -> Callable[..., int]:
        run = self.table["runs"][k]

        def call(stream: int, *addresses: int) -> int:
            base, pointers = (addresses[0], addresses[1:]) if run["arena"] else (0, addresses)
            if any(pointers[i] % 16 for i in run["aligned"]):
                return UNALIGNED
            for launch in run["launches"]:
                self._launch(launch, [base + at if kind == "a" else pointers[at] for kind, at in launch["args"]])
            return bits(self.flags)
        return call

    def _launch(self, launch: dict[str, Any], addresses: list[int]) -> None:
        program, function = self.table["programs"][launch["kernel"]], self.programs[launch["kernel"]]
        blocks = [_memory(at, size, DTYPES[kind[1:]]) for at, size, kind in zip(addresses, launch["sizes"], program["signature"])]
        if launch["checks"]:
            blocks.append(_memory(ctypes.addressof(self.flags), 4 * FLAGS, torch.int32))
        function[tuple(launch["grid"])](*blocks)


class SizedInterpreted(Interpreted):
    """The face of ``triton_library.Sized``."""

    def __init__(self, table: dict[str, Any]):
        super().__init__(dict(table, programs=[]))
        self.variants = Variants(table, self.add)

    def add(self, program: dict[str, Any]) -> int:
        self.table["programs"].append(program)
        self.programs.append(_define(program))
        return len(self.programs) - 1

    def plan(self, kernels: Sequence[Any], nbytes: int = 0, offsets: Sequence[int] = (), make_views: Callable[..., tuple] = lambda storage: ()) -> Plan:
        plan = self.variants.plan(kernels, list, nbytes, offsets, make_views)
        plan.runs = [(calls, plan.nbytes, sizes) for calls, sizes in zip(plan.runs, self._bytes(kernels))]
        return plan

    def _bytes(self, kernels: Sequence[Any]) -> Iterator[list[int]]:
        """For each run the bytes behind each of its pointers."""
        kernels = iter(kernels)
        for run in self.table["runs"]:
            sizes = [0] * run["pointers"]
            for step in run["steps"]:
                for (kind, at), n in zip(step["places"], next(kernels)[3]):
                    if kind == "p":
                        sizes[at] = max(sizes[at], n)
            yield sizes

    def run(self, k: int) -> Callable[..., int]:
        run = self.table["runs"][k]

        def call(stream: int, base: int, plan: Any, *given: Any) -> int:
            calls, arena, sizes = plan
            addresses, numbers = given[:run["pointers"]], given[run["pointers"]:]
            if any(addresses[i] % 16 for i in run["aligned"]):
                return UNALIGNED
            for launch in calls:
                kinds = self.table["programs"][launch.program]["signature"]
                args = [self._argument(kind, at, of, base, arena, addresses, sizes, numbers) for (kind, at), of in zip(launch.args, kinds)]
                if all(launch.grid):
                    self.programs[launch.program][launch.grid](*args)
            return bits(self.flags)
        return call

    def _argument(self, kind: int, at: int, of: str, base: int, arena: int, addresses: Sequence[int], sizes: Sequence[int], numbers: Sequence[Any]) -> Any:
        if kind == POINTER:
            return _memory(addresses[at], sizes[at], DTYPES[of[1:]])
        if kind == ARENA:
            return _memory(base + at, arena - at, DTYPES[of[1:]])
        return _memory(ctypes.addressof(self.flags), 4 * FLAGS, torch.int32) if kind == NOTES else _number(at if kind == SIZE else numbers[at], of)


def _number(value: int | float, of: str) -> Any:
    """A number as a kernel takes it (the interpreter's own conversion knows neither doubles nor which integers are wide)."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    dtype = tl.str_to_ty(of, None)
    return tl.tensor(TensorHandle(np.array([value], dtype={"i32": np.int32, "i64": np.int64, "fp64": np.float64}[of]), dtype), dtype)


def _memory(address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    if not size:
        return torch.empty(0, dtype=dtype)
    size -= size % dtype.itemsize
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype)


def _define(program: dict[str, Any]) -> Any:
    """The kernel as a function that Triton interprets."""
    import triton
    import triton.language as tl
    text = f"{helpers(program['text'])}\n{program['text']}".replace("tl.dot(", "dot(")
    file = f"<minipt2 {program['name']}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"triton": triton, "tl": tl, "libdevice": Libdevice(), "dot": dot}
    exec(compile(text, file, "exec"), namespace)
    namespace.update(FAST)
    return namespace[program["name"]]
