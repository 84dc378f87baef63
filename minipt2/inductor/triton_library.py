"""The kernels of one graph on a GPU, ready to launch: machine code in the driver, and C that launches runs of it.

``library(table)`` for the table that ``codegen.triton_wrapper`` made; ``Interpreted`` has the same face where Triton's interpreter runs
the kernels. A library's ``run(k)`` is the k-th run: ``f(stream, [arena,] *pointers)`` returns error bits; ``check()`` raises what an
earlier call did wrong. Upstream: ``torch._inductor.runtime.static_triton_launcher``.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any, Callable

import torch

from ..errors import BackendError
from . import cache, triton_pool
from .codegen.triton_wrapper import REFUSED, UNALIGNED, launcher_text
from .hardware import hardware
from .runtime import fail

MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
PLAIN_SHARED = 48 << 10
FLAGS = 3


def library(table: dict[str, Any]) -> Any:
    """What a wrapper module calls ``library``."""
    device = torch.device(table["device"])
    if device.type == "cpu":
        from .triton_interpreter import Interpreted
        return Interpreted(table)
    return Loaded(table, device)


def on_device(call: Callable[[list], list], table: dict[str, Any]) -> Callable[[list], list]:
    """``call`` with the device of its kernels made the current one, where there are several."""
    device = torch.device(table["device"])
    if device.type == "cpu" or torch.cuda.device_count() < 2:
        return call

    def run(args: list) -> list:
        with torch.cuda.device(device):
            return call(args)
    return run


def mend(error: int, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """After a run that returned ``error``: the inputs that it wants aligned, copied where they are not. Raises for any other error."""
    if error & REFUSED:
        raise BackendError("the CUDA driver refused to launch a kernel")
    if not error & UNALIGNED:
        fail(error)
    return [t if t.data_ptr() % 16 == 0 else realigned(t) for t in tensors]


def realigned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides that begins at a multiple of 16 bytes."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def bits(flags: Any) -> int:
    """Error flags as ``fail`` wants them; they are lowered."""
    found = sum(1 << k for k in range(FLAGS) if flags[k])
    for k in range(FLAGS):
        flags[k] = 0
    return found


class _Kernel(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("threads", ctypes.c_uint), ("shared", ctypes.c_uint)]


class Loaded:
    """Kernels in the driver's hands. They are waited for when the first run is made, so that compiling goes on beside the host's work."""

    def __init__(self, table: dict[str, Any], device: torch.device):
        self.table, self.device = table, device
        self.index = device.index or 0
        self.making = triton_pool.submit(table["programs"], hardware(device).capability)
        self.c = cache.compile_c(launcher_text(table))
        self.ready = False
        self.stream = functools.partial(torch._C._cuda_getCurrentRawStream, self.index)
        self.flags: Any = None

    def run(self, k: int) -> Callable[..., int]:
        run = self.table["runs"][k]
        function = self.c[f"run{k}"]
        function.argtypes, function.restype = [ctypes.c_void_p] * (1 + run["arena"] + run["pointers"]), ctypes.c_int
        self.finish()
        return function

    def check(self) -> None:
        """Kernels tell of wrong indices by flags in host memory: no call waits for the GPU, the next one raises."""
        if self.flags is not None and any(self.flags):
            fail(bits(self.flags))

    def finish(self) -> None:
        """Wait for the compiler, load machine code, hand its addresses to the C side."""
        if self.ready:
            return
        self.ready = True
        driver = cuda()
        kernels = (_Kernel * len(self.making)).in_dll(self.c, "kernels")
        with torch.cuda.device(self.index):
            torch.cuda.current_stream()  # makes the context
            for slot, made in zip(kernels, self.making):
                slot.function, slot.threads, slot.shared = loaded(self.index, *freeze(made.result()))
        ctypes.c_void_p.in_dll(self.c, "launch").value = ctypes.cast(driver.cuLaunchKernel, ctypes.c_void_p).value
        if any(launch["checks"] for run in self.table["runs"] for launch in run["launches"]):
            self.memory = torch.zeros(FLAGS, dtype=torch.int32, pin_memory=True)
            self.flags = (ctypes.c_int * FLAGS).from_address(self.memory.data_ptr())
            ctypes.c_void_p.in_dll(self.c, "err").value = self.memory.data_ptr()


def freeze(made: triton_pool.Made) -> tuple[bytes, tuple]:
    return made[0], tuple(sorted(made[1].items()))


@functools.cache
def loaded(device: int, binary: bytes, launch: tuple) -> tuple[int, int, int]:
    """(function, threads, bytes of shared memory) of machine code on ``device``."""
    about, driver = dict(launch), cuda()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    told(driver.cuModuleLoadData(ctypes.byref(module), binary), about["name"])
    told(driver.cuModuleGetFunction(ctypes.byref(function), module, about["name"].encode()), about["name"])
    if about["shared"] > PLAIN_SHARED:
        told(driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED, about["shared"]), about["name"])
    return function.value, about["threads"], about["shared"]


def told(code: int, name: str) -> None:
    if code:
        raise BackendError(f"the CUDA driver does not load the kernel {name} (error {code})")


@functools.cache
def cuda() -> ctypes.CDLL:
    """The CUDA driver."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise BackendError(f"no CUDA driver: {error}") from error
