"""Functions of torch that are compositions of operators in C++, for tensors of symbolic sizes where that C++ takes known sizes only.

Most have a second composition in Python, which torch's Python dispatcher calls; a few of those gather element by element what one operator
does, and are told here which. Upstream: ``torch._dispatch.python`` and ``torch._decomp.decompositions``.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Sequence

import torch
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from ..shapes.known import SYMBOLIC
from .recurrent import steps_vary, without_steps
from .views import has_symbols

aten = torch.ops.aten
_RESIZING = {
    "nearest": (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d),
    "nearest-exact": (aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d),
    "linear": (aten.upsample_linear1d,), "bilinear": (None, aten.upsample_bilinear2d), "trilinear": (None, None, aten.upsample_trilinear3d),
    "bicubic": (None, aten.upsample_bicubic2d),
}
"""Mode of ``interpolate`` -> its operator for one, two and three dimensions."""


def run(fn: Callable, args: Sequence[Any], kwargs: dict[str, Any], again: Callable[[], Any] = tuple) -> Any:
    """``fn(*args, **kwargs)``, any function of torch, on fake tensors under their mode.

    Where C++ refuses symbols once more in Python (not at first: for most functions that records more operators), where that does too with the
    sizes at hand, which are guarded then. ``again()`` comes before each repetition. Raises what the first attempt raises.
    """
    if steps_vary(fn, args):
        return without_steps(*args)
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
        result = _interpolate(*args, **(kwargs or {})) if func is F.interpolate else None
        return func(*args, **(kwargs or {})) if result is None else result


def _interpolate(x: torch.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None, antialias: bool = False) -> torch.Tensor | None:
    """None for what is more than one operator, and for wrong arguments."""
    n = x.dim() - 2
    ops = _RESIZING.get(mode, ())
    if antialias or recompute_scale_factor or not 0 < n <= len(ops) or ops[n - 1] is None or (size is None) == (scale_factor is None):
        return None
    sizes, scales = (list(v) if isinstance(v, (list, tuple)) else [v] * n for v in (size, scale_factor))
    if size is None:
        sizes = [torch.sym_int(length * scale) for length, scale in zip(x.shape[2:], scales)]
    aligned = () if mode.startswith("nearest") else (bool(align_corners),)
    return ops[n - 1].default(x, sizes, *aligned, *scales)
