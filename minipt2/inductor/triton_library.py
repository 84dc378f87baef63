"""The kernels of one graph on a GPU, ready to launch: machine code in the driver, and C that launches runs of it.

``library(table)`` for the table that ``codegen.triton_wrapper`` made; ``Interpreted`` has the same face where Triton's interpreter runs
the kernels. A library's ``run(k)`` is the k-th run: ``f(stream, [arena,] *pointers)`` returns error bits; ``check()`` raises what an
earlier call did wrong. Upstream: ``torch._inductor.runtime.static_triton_launcher``.
"""
from __future__ import annotations

import atexit
import ctypes
import functools
import itertools
import threading
from concurrent.futures import Future
from typing import Any, Callable, Sequence

import torch

from ..errors import BackendError, warn
from . import cache, triton_pool
from .codegen.triton_wrapper import REFUSED, UNALIGNED, launcher_text
from .hardware import hardware
from .runtime import NUMBERS, Plan, fail
from .triton_sizes import Call, Variants

MAX_DYNAMIC_SHARED = 8
"""``CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES``."""
PLAIN_SHARED = 48 << 10
FLAGS = 3


def library(table: dict[str, Any]) -> Any:
    """What a wrapper module calls ``library``."""
    device = torch.device(table["device"])
    if device.type == "cpu":
        from .triton_interpreter import Interpreted, SizedInterpreted
        return SizedInterpreted(table) if "kernels" in table else Interpreted(table)
    return Sized(table, device) if "kernels" in table else Loaded(table, device)


def on_device(call: Callable[[list], list], table: dict[str, Any]) -> Callable[[list], list]:
    """``call`` with the device of its kernels made the current one, where there are several, and its context that of the calling thread."""
    device = torch.device(table["device"])
    if device.type == "cpu":
        return call
    several = torch.cuda.device_count() > 1

    def run(args: list) -> list:
        if not getattr(_thread, "entered", False):
            enter(device.index or 0)
        if not several:
            return call(args)
        with torch.cuda.device(device):
            return call(args)
    return run


_thread = threading.local()


def enter(device: int) -> None:
    """Make the context of ``device`` that of this thread, if it has none: the driver loads and launches nothing without, and a new thread
    (autograd's, a user's) has none until it calls the CUDA runtime."""
    driver, context, ordinal = cuda(), ctypes.c_void_p(), ctypes.c_int()
    told(driver.cuCtxGetCurrent(ctypes.byref(context)), "(context)")
    if not context.value:
        told(driver.cuDeviceGet(ctypes.byref(ordinal), device), "(device)")
        told(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal), "(context)")  # torch keeps it as long as the process
        told(driver.cuCtxSetCurrent(context), "(context)")
    _thread.entered = True


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


class Notes:
    """Where kernels of all graphs note wrong indices and values: flags in host memory that a GPU writes. No call waits for the GPU: the next call of
    any compiled graph raises, replayed or not, and what no call came by to raise is told at the end of the process. Such an index is never used: the kernel reads the nearest
    element (an eager kernel stops with a device-side assertion, after which the process cannot use the GPU any more)."""

    def __init__(self) -> None:
        self.memory = torch.zeros(FLAGS, dtype=torch.int32, pin_memory=torch.cuda.is_available())
        self.flags = (ctypes.c_int * FLAGS).from_address(self.memory.data_ptr())

    def address(self, device: int) -> int:
        """Where ``device`` sees the flags: not everywhere at the host's own address."""
        host, seen = self.memory.data_ptr(), ctypes.c_uint64()
        with torch.cuda.device(device):
            torch.cuda.current_stream()  # makes the context
            code = cuda().cuMemHostGetDevicePointer_v2(ctypes.byref(seen), ctypes.c_void_p(host), 0)
        return host if code else seen.value

    @staticmethod
    def shared() -> "Notes":
        global _notes
        if _notes is None:
            _notes = Notes()
            atexit.register(_notes.tell)
        return _notes

    def tell(self) -> None:
        if any(self.flags):
            warn("a kernel on a GPU met an index out of range, or a value without meaning, and no compiled call followed that could raise")


_notes: Notes | None = None


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

    def run(self, k: int) -> Callable[..., int]:
        run = self.table["runs"][k]
        function = self.c[f"run{k}"]
        function.argtypes, function.restype = [ctypes.c_void_p] * (1 + run["arena"] + run["pointers"]), ctypes.c_int
        self.finish()
        return function

    def check(self) -> None:
        """Raises what kernels of this or of another graph found in an earlier call."""
        notes = _notes
        if notes is not None and any(notes.flags):
            fail(bits(notes.flags))

    def finish(self) -> None:
        """Wait for the compiler, load machine code, hand its addresses to the C side."""
        if self.ready:
            return
        self.ready = True
        kernels = (_Kernel * len(self.making)).in_dll(self.c, "kernels")
        for slot, made in zip(kernels, self.making):
            slot.function, slot.threads, slot.shared = self.function(made)
        self.connect(any(launch["checks"] for run in self.table["runs"] for launch in run["launches"]))

    def function(self, made: "Future[triton_pool.Made]") -> tuple[int, int, int]:
        """(function, threads, bytes of shared memory) of a kernel, once it is compiled."""
        with torch.cuda.device(self.index):
            torch.cuda.current_stream()  # makes the context
            return loaded(self.index, *freeze(made.result()))

    def connect(self, checks: bool) -> None:
        """Tell the C side how to launch, and where wrong indices are noted."""
        ctypes.c_void_p.in_dll(self.c, "launch").value = ctypes.cast(cuda().cuLaunchKernel, ctypes.c_void_p).value
        if checks:
            ctypes.c_void_p.in_dll(self.c, "raised").value = Notes.shared().address(self.index)


class Sized(Loaded):
    """Kernels whose sizes are arguments: programs come when sizes need them. ``plan(…)`` is what a module's ``make_plan`` calls."""

    def __init__(self, table: dict[str, Any], device: torch.device):
        super().__init__(table, device)
        self.functions: dict[int, tuple[int, int, int]] = {}
        self.variants = Variants(table, self.add)

    def add(self, program: dict[str, Any]) -> int:
        """Have ``program`` compiled beside the host's work; its number."""
        self.making += triton_pool.submit([program], hardware(self.device).capability)
        return len(self.making) - 1

    def run(self, k: int) -> Callable[..., int]:
        run = self.table["runs"][k]
        function = self.c[f"run{k}"]
        numbers = [NUMBERS[n] for n in run["numbers"]]
        function.argtypes, function.restype = [ctypes.c_void_p] * (3 + run["pointers"]) + numbers, ctypes.c_int
        self.finish()
        return function

    def finish(self) -> None:
        if not self.ready:
            self.ready = True
            self.connect(self.table["checks"])

    def plan(self, kernels: Sequence[Any], nbytes: int = 0, offsets: Sequence[int] = (), make_views: Callable[..., tuple] = lambda storage: ()) -> Plan:
        """What a call with these sizes launches, and where (``Variants.plan``)."""
        return self.variants.plan(kernels, self.pack, nbytes, offsets, make_views)

    def pack(self, calls: Sequence[Call]) -> Any:
        """A run's launches as the numbers that its C function reads."""
        numbers = [len(calls)]
        for call in calls:
            found = self.functions.get(call.program)
            if found is None:
                found = self.functions[call.program] = self.function(self.making[call.program])
            function, threads, shared = found
            numbers += [function, *call.grid, threads, shared, len(call.args), *itertools.chain.from_iterable(call.args)]
        return (ctypes.c_int64 * len(numbers))(*numbers)


def freeze(made: triton_pool.Made) -> tuple[bytes, tuple]:
    return made[0], tuple(sorted(made[1].items()))


@functools.cache
def loaded(device: int, binary: bytes, launch: tuple) -> tuple[int, int, int]:
    """(function, threads, bytes of shared memory) of machine code on ``device``."""
    about, driver = dict(launch), cuda()
    enter(device)
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
