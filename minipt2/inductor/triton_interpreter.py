"""The kernels of one graph run by Triton's interpreter on CPU tensors: what they mean, without a GPU.

``TRITON_INTERPRET=1`` must stand in the environment before Triton is first imported. The interpreter has no device library: ``Libdevice``
computes its functions with torch. Upstream: ``triton.runtime.interpreter``.
"""
from __future__ import annotations

import ctypes
import linecache
import os
from typing import Any, Callable

import numpy as np
import torch

from ..errors import BackendError
from .codegen.triton_ops import helpers
from .codegen.triton_wrapper import UNALIGNED
from .triton_library import FLAGS, bits

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16, "i8": torch.int8, "i16": torch.int16,
          "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32, "u64": torch.uint64,
          "i1": torch.bool}


class Libdevice:
    """Functions of NVIDIA's device library on the interpreter's blocks."""

    NAMES = {"rint": "round"}

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


def dot(u: Any, v: Any, acc: Any, **precision: Any) -> Any:
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


def _memory(address: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    if not size:
        return torch.empty(0, dtype=dtype)
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
