"""Operators without a rule or a meta kernel of their own: through upstream's ``FakeTensorMode``, converted there and back.

The first use imports most of upstream's compiler (seconds); common models never come here.
"""
from __future__ import annotations

import contextlib
import functools
import logging
from typing import Any, Iterator

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from .tensor import DataDependent, DynamicShape, FakeMode, FakeTensor, Unfakeable


@functools.cache
def upstream_mode(symbols: bool = False) -> Any:
    """Upstream's mode; operators only. What it finds for symbols is true of their environment, so that of these it keeps nothing."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_enabled = mode.cache_enabled and not symbols
    return mode


def run_borrowed(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict, symbols: bool = False) -> Any:
    """``func`` on fake tensors by upstream's rules. Raises ``DataDependent``, ``DynamicShape``, ``Unfakeable`` and the kernel's errors.

    symbols: whether sizes or numbers are symbolic; what upstream would then log of operators that refuse them is nobody's concern.
    """
    from torch._subclasses import fake_tensor as theirs

    there = upstream_mode(symbols)
    back: dict[int, FakeTensor] = {}

    def lend(value: torch.Tensor) -> torch.Tensor:
        ours = value if isinstance(value, FakeTensor) else mode.from_tensor(value)
        lent = theirs.FakeTensor(there, ours.elem.detach(), ours.fake_device)
        back[id(lent)] = ours
        return lent

    args, kwargs = pytree.tree_map_only(torch.Tensor, lend, (args, kwargs))
    try:
        with there, _silent(theirs.log) if symbols else contextlib.nullcontext():
            result = func(*args, **kwargs)
    except theirs.DataDependentOutputException as error:
        raise DataDependent(str(error.func)) from error
    except theirs.DynamicOutputShapeException as error:
        raise DynamicShape(str(error.func)) from error
    except theirs.UnsupportedFakeTensorException as error:
        raise Unfakeable(str(error)) from error
    return pytree.tree_map_only(torch.Tensor, lambda t: back.get(id(t)) or take(mode, t), result)


@contextlib.contextmanager
def _silent(log: logging.Logger) -> Iterator[None]:
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def take(mode: FakeMode, lent: torch.Tensor) -> FakeTensor:
    """Our fake tensor for one of theirs: a meta tensor over the same storage. Raises ``Unfakeable`` for other layouts."""
    if lent.layout is not torch.strided:
        raise Unfakeable(f"a tensor of layout {lent.layout}")
    elem = torch.empty(0, dtype=lent.dtype, device="meta").set_(lent.untyped_storage())
    return FakeTensor(mode, elem.as_strided(lent.size(), lent.stride(), lent.storage_offset()), lent.fake_device)


def for_strangers(value: torch.Tensor) -> torch.Tensor:
    """One of our fake tensors as upstream's: what a backend written for ``torch.compile`` expects."""
    from torch._subclasses.fake_tensor import FakeTensor as Theirs

    if not isinstance(value, FakeTensor):
        return value
    return Theirs(upstream_mode(), value.elem.detach(), value.fake_device).requires_grad_(value.requires_grad)
