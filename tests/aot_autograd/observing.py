"""Test helper: everything that a call makes visible to autograd and to aliasing, as data that can be compared."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch
from torch.utils import _pytree as pytree

from .lifting import copies


def storages(tensors: Sequence[torch.Tensor]) -> list[int]:
    """Which tensors share storage with which: the index of the first one in the same storage."""
    seen: dict[int, int] = {}
    return [seen.setdefault(t.untyped_storage().data_ptr(), i) for i, t in enumerate(tensors)]


def place(t: torch.Tensor, tensors: Sequence[torch.Tensor]) -> int | None:
    return next((i for i, other in enumerate(tensors) if other is t), None)


def may_overlap(t: torch.Tensor) -> bool:
    """Whether two elements may lie at one place."""
    return t.numel() > 1 and t.numel() > 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride())) or any(
        s == 0 and n > 1 for n, s in zip(t.shape, t.stride()))


def observe(call: Callable, inputs: Sequence[torch.Tensor], leaf: bool = True, seed: int = 0, times: int = 1) -> dict[str, Any]:
    """What ``call(*inputs)`` (on copies, leaves or not; ``times`` in a row) returns, writes, aliases and gives as gradients, or raises."""
    leaves = copies(inputs)
    args = [t if leaf or not t.requires_grad else t * 1 for t in leaves]
    before = [a._version for a in args]
    torch.manual_seed(seed)
    try:
        for _ in range(times):
            outs = pytree.tree_leaves(call(*args))
        every = [*args, *(o for o in outs if isinstance(o, torch.Tensor))]
        seen = dict(
            values=[e.detach().clone() for e in every], plain=[o for o in outs if not isinstance(o, torch.Tensor)],
            shapes=[(e.dtype, tuple(e.shape), [s for n, s in zip(e.shape, e.stride()) if n != 1 and e.numel()]) for e in every],
            tracked=[e.requires_grad for e in every], leaves=[e.is_leaf for e in every], histories=[e.grad_fn is not None for e in every],
            identities=[place(e, every) for e in every], storages=storages([e for e in every if e.numel()]),
            views=[o._is_view() for o in every if any(o.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in args)],
            written=[a._version - b > 0 for a, b in zip(args, before)])
        floats = [o for o in {id(e): e for e in every}.values() if o.requires_grad]
        total = sum((((o * o.conj()).real.sum() * 0.5 + o.real.sum() * (i + 2)) for i, o in enumerate(floats)), torch.zeros(()))
        total = total if total.dim() == 0 else total.sum()
        if total.requires_grad:
            total.backward()
        seen["grads"] = [t.grad for t in leaves]
        with torch.no_grad():  # aliased in the same places: write into each, and look at all
            for k, e in enumerate(every):
                if not may_overlap(e):
                    e.copy_(e * 2 + k)
        seen["after"] = [e.detach().clone() for e in every]
    except Exception as error:
        return dict(error=type(error).__name__, text=str(error).split("\n")[0][:60], late="outs" in locals())
    return seen


def differences(expected: dict[str, Any], found: dict[str, Any], tolerance: float = 1e-5) -> list[str]:
    """The names of what differs, with both sides."""
    if expected.get("late"):
        return []  # eager forbids to look at what it returned
    if expected.keys() != found.keys():
        return [f"eager {expected}\ncompiled {found}"]
    told = []
    for key, left in expected.items():
        try:
            if key in ("values", "grads", "after"):
                torch.testing.assert_close(found[key], left, rtol=tolerance, atol=tolerance, equal_nan=True)
            else:
                assert found[key] == left
        except (AssertionError, TypeError) as error:
            told.append(f"{key}: eager {left}, compiled {found[key]}" if key not in ("values", "grads", "after") else f"{key}: {error}")
    return told
