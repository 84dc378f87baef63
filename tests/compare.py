"""The comparison every test uses: compiled against eager, values, dtypes, shapes, strides, gradients, mutated state."""
from __future__ import annotations

import copy
from typing import Any, Callable

import torch
from torch.utils import _pytree as pytree

import minipt2

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 2e-2, torch.float16: 1e-2}


def assert_same(expected: Any, found: Any, tolerance: float | None = None, strides: bool = True) -> None:
    """Equal trees: same structure, and tensors equal in dtype, shape, strides, requires_grad and (closely) values."""
    left, spec = pytree.tree_flatten(expected)
    right, found_spec = pytree.tree_flatten(found)
    assert spec == found_spec, f"structure {spec} against {found_spec}"
    for e, f in zip(left, right):
        if not isinstance(e, torch.Tensor):
            assert type(e) is type(f) and e == f, f"{e!r} against {f!r}"
            continue
        assert isinstance(f, torch.Tensor), f"tensor against {f!r}"
        assert e.requires_grad == f.requires_grad
        rtol = TOLERANCE.get(e.dtype, 0) if tolerance is None else tolerance
        torch.testing.assert_close(f, e, rtol=rtol, atol=rtol, check_stride=strides and e.numel() > 0, equal_nan=True)


def clone(tree: Any) -> Any:
    """Copies of all tensors, each a leaf with the same strides and requires_grad."""
    def one(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        copied = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(t.detach())
        return copied.requires_grad_(t.requires_grad)
    return pytree.tree_map(one, tree)


def step(fn: Callable, args: tuple, kwargs: dict | None = None, grad: bool = False) -> tuple[Any, Any, Any]:
    """(outputs, gradients of all float inputs that require grad, inputs afterwards)."""
    args, kwargs = clone((args, kwargs or {}))
    output = fn(*args, **kwargs)
    grads = None
    if grad:
        outputs = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor) and t.requires_grad]
        inputs = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        tangents = [torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape) for t in outputs]
        grads = torch.autograd.grad(outputs, inputs, tangents, allow_unused=True)
    return output, grads, (args, kwargs)


def check(fn: Callable, *args: Any, grad: bool = False, calls: int = 2, seed: int = 0, tolerance: float | None = None,
          **settings: Any) -> Callable:
    """Compile ``fn`` and compare ``calls`` calls with eager; returns the compiled function."""
    compiled = minipt2.compile(fn, **settings)
    for k in range(calls):
        torch.manual_seed(seed + k)
        expected = step(fn, args, grad=grad)
        torch.manual_seed(seed + k)
        assert_same(expected, step(compiled, args, grad=grad), tolerance)
    return compiled


def check_module(module: torch.nn.Module, *args: Any, grad: bool = True, calls: int = 2, seed: int = 0,
                 tolerance: float | None = None, **settings: Any) -> torch.nn.Module:
    """The same for a module: parameters' gradients and all buffers are compared too."""
    twin = copy.deepcopy(module)
    compiled = minipt2.compile(twin, **settings)
    for k in range(calls):
        results = []
        for m, call in ((module, module), (twin, compiled)):
            torch.manual_seed(seed + k)
            m.zero_grad(set_to_none=True)
            with torch.set_grad_enabled(grad):
                output = call(*clone(args))
            if grad:
                floats = [t for t in pytree.tree_leaves(output) if isinstance(t, torch.Tensor) and t.requires_grad]
                sum((t.float() * torch.linspace(0.5, 1.5, t.numel()).view(t.shape)).sum() for t in floats).backward()
            results.append((output, {n: p.grad for n, p in m.named_parameters()}, dict(m.named_buffers())))
        assert_same(results[0], results[1], tolerance)
    return compiled
