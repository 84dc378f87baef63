"""Functions of torch that are compositions of operators in C++, for tensors of symbolic sizes where that C++ takes known sizes only.

Most have a second composition in Python, which torch's Python dispatcher calls; a few of those gather element by element what one operator
does, and are told here which. Upstream: ``torch._dispatch.python`` and ``torch._decomp.decompositions``.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Sequence

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..shapes.known import SYMBOLIC
from .views import has_symbols

aten = torch.ops.aten
_RESIZING = {getattr(torch._C._nn, name): getattr(aten, name).default for name in (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d")}
"""Given sizes or factors -> the operator that is given both."""


def run(fn: Callable, args: Sequence[Any], kwargs: dict[str, Any], again: Callable[[], Any] = tuple) -> Any:
    """``fn(*args, **kwargs)``, any function of torch, on fake tensors under their mode.

    Where C++ refuses symbols once more in Python (not at first: for most functions that records more operators), where that does too with the
    sizes at hand, which are guarded then. ``again()`` comes before each repetition. Raises what the first attempt raises.
    """
    try:
        return fn(*args, **kwargs)
    except RuntimeError as error:
        if not _symbolic((args, kwargs)):
            raise
        refused = error
    again()
    with contextlib.suppress(RuntimeError), enable_python_dispatcher(), _Resizing():
        return fn(*args, **kwargs)
    again()
    try:
        args, kwargs = pytree.tree_map_only((torch.Tensor, *SYMBOLIC), _specialized, (args, kwargs))
        return fn(*args, **kwargs)
    except RuntimeError as error:
        raise refused from error


def _symbolic(values: Any) -> bool:
    """Whether some tensor or number anywhere in ``values`` is symbolic."""
    return has_symbols(pytree.tree_leaves(values))


def _specialized(value: Any) -> Any:
    """The same tensor or number with its sizes known."""
    if not isinstance(value, torch.Tensor):
        return value.node.guard_int()
    return value.expand([int(n) for n in value.shape]) if has_symbols((value,)) else value


class _Resizing(TorchFunctionMode):
    """``interpolate`` as the one operator that it is."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        op = _RESIZING.get(func)
        if op is None or kwargs:
            return func(*args, **(kwargs or {}))
        x, size, *aligned, scales = args
        size = size or [torch.sym_int(n * scale) for n, scale in zip(x.shape[2:], scales)]
        return op(x, size, *aligned, *(scales or [None] * len(size)))
