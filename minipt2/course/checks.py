"""What exercises' tests compare with: a mismatch says its kind, the call, the expected and the found, not only that there is one."""
from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any, Iterator

import torch

from .bind import show


class Wrong(AssertionError):
    """A result that is not the expected one. ``kind`` is one of ``verdict.EXIT_CODES``."""

    def __init__(self, kind: str, expected: Any, found: Any, message: str = ""):
        self.kind, self.message = kind, message
        self.expected, self.found = (x if isinstance(x, str) else show(x) for x in (expected, found))
        super().__init__(f"{kind}{': ' + message if message else ''}\nexpected {self.expected}\nfound    {self.found}")


def same(found: Any, expected: Any, *, where: str = "", rtol: float | None = None, atol: float | None = None, stride: bool = False) -> None:
    """Raise Wrong unless both are alike: tensors by dtype, shape, values (NaN equals NaN) and, if asked, strides; containers item by item."""
    if isinstance(expected, torch.Tensor):
        return _same_tensor(found, expected, where, rtol, atol, stride)
    if isinstance(expected, (list, tuple)):
        if not isinstance(found, (list, tuple)) or len(found) != len(expected):
            raise Wrong("wrong value", expected, found, where)
        for k, (a, b) in enumerate(zip(found, expected)):
            same(a, b, where=f"{where}[{k}]", rtol=rtol, atol=atol, stride=stride)
        return None
    if type(found) is not type(expected) or found != expected:
        raise Wrong("wrong value", expected, found, where)
    return None


def _same_tensor(found: Any, expected: torch.Tensor, where: str, rtol: float | None, atol: float | None, stride: bool) -> None:
    if (rtol is None) != (atol is None):  # assert_close takes both or none
        rtol, atol = 1e-5 if rtol is None else rtol, 1e-6 if atol is None else atol
    if not isinstance(found, torch.Tensor):
        raise Wrong("wrong value", expected, found, where)
    if found.dtype != expected.dtype:
        raise Wrong("wrong dtype", str(expected.dtype), str(found.dtype), where)
    if found.shape != expected.shape:
        raise Wrong("wrong shape", list(expected.shape), list(found.shape), where)
    if stride and found.stride() != expected.stride():
        raise Wrong("wrong stride", expected.stride(), found.stride(), f"{where} shape {list(expected.shape)}")
    try:
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError:
        index = _first_difference(found, expected, rtol, atol)
        raise Wrong("wrong value", expected[index].item(), found[index].item(), f"{where} first at index {list(index)}") from None


def _first_difference(found: torch.Tensor, expected: torch.Tensor, rtol: float | None, atol: float | None) -> tuple[int, ...]:
    exact = not expected.is_floating_point() and not expected.is_complex()
    close = torch.isclose(found, expected, rtol=0 if exact else rtol or 1e-5, atol=0 if exact else atol or 1e-6, equal_nan=True)
    bad = (~close).nonzero()
    return tuple(bad[0].tolist()) if len(bad) else (0,) * expected.ndim


@contextlib.contextmanager
def unchanged(**tensors: torch.Tensor) -> Iterator[None]:
    """Raise Wrong if one of the named tensors is written meanwhile."""
    before = {name: (t._version, t.detach().clone()) for name, t in tensors.items()}
    yield
    for name, t in tensors.items():
        version, values = before[name]
        if t._version != version or not torch.equal(t.detach(), values):
            raise Wrong("input mutated", f"{name} as it was given", "it was written", name)


_fences: list[mmap.mmap] = []


def fenced(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of zeros whose last element touches a page that may not be read or written: one element too far ends the process."""
    page, size = mmap.PAGESIZE, torch.empty((), dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    body = -(-max(count * size, 1) // page) * page
    memory = mmap.mmap(-1, body + page)
    _fences.append(memory)  # as long as the process lives: the tensor does not keep it
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address + body), ctypes.c_size_t(page), 0):
        raise OSError("mprotect failed")
    if count == 0:
        return torch.zeros(shape, dtype=dtype)
    return torch.frombuffer(memory, dtype=dtype, count=count, offset=body - count * size).view(shape)
