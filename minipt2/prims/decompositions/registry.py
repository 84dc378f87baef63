"""The table of decompositions and the two decorators that fill it.

A rule has the parameters of its ATen overload; tensors arrive as :class:`~minipt2.prims.core.Value` and are handed to prims. A rule that
cannot express a case raises :class:`NoRule`; the node then stays a fallback. Upstream: ``torch._decomp`` and ``torch._refs``.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from ...shapes.known import SYMBOLIC, same_all
from .. import ops as p
from ..core import Value
from ..meta import broadcast_shapes
from ..promote import LOW_PRECISION, Kind, apply_kind, computation_dtype, opmath_dtype, to_float, to_int

Rule = Callable[..., Any]
decompositions: dict[Any, Rule] = {}
"""What ``expand`` applies by default: without the operators that a compiler with PyTorch's kernels at hand keeps whole."""
complete: dict[Any, Rule] = {}
"""Every rule: ``expand(gm, complete)`` is for backends that have nothing but the prims."""


class NoRule(Exception):
    """Raised by a rule for arguments it does not cover; the text becomes ``meta["fallback"]``."""


def overload(name: str) -> Any:
    """``"add.Tensor"`` -> ``torch.ops.aten.add.Tensor``; no dot means ``.default``. None if this torch has no such overload."""
    packet_name, _, overload_name = name.partition(".")
    packet = getattr(torch.ops.aten, packet_name, None)
    return getattr(packet, overload_name or "default", None)


def rule(*names: str, library: bool = False) -> Callable[[Rule], Rule]:
    """Register the decorated function for the ATen overloads called ``names``.

    ``library``: PyTorch's own kernel beats the prims, so only ``complete`` has the rule.
    """

    def register(fn: Rule) -> Rule:
        for name in names:
            op = overload(name)
            if op is not None:
                complete[op] = fn
                if not library:
                    decompositions[op] = fn
        return fn

    return register


def elementwise(*names: str, operands: int = 1, kind: Kind = Kind.DEFAULT, opmath: bool = False, wide: bool = False,
                library: bool = False) -> Callable[[Rule], Rule]:
    """``rule`` for elementwise operations: the first ``operands`` arguments are promoted and broadcast before the body runs.

    The body then sees tensors of one shape and dtype, and numbers; its result is converted to the dtype that ``kind`` says.
    ``opmath``: the body is a formula that eager evaluates in float32 for bfloat16 and float16, rounding once at the end. ``wide``: it does so
    on the CPU where the second operand is a tensor of no dimension and wider than the result: it is read as it is.
    """

    def register(fn: Rule) -> Rule:
        def apply(*args: Any, **kwargs: Any) -> Value:
            xs, rest = args[:operands], args[operands:]
            dtype = computation_dtype(*[x for x in xs if x is not None])
            out_dtype = apply_kind(dtype, kind)
            compute = dtype if kind is Kind.BOOL else out_dtype
            if opmath or wide and _reads_wide(args[1], out_dtype):
                compute = opmath_dtype(compute)
            return p.convert(fn(*prepare(xs, compute), *rest, **kwargs), out_dtype)

        apply.__doc__, apply.__name__, apply.__module__ = fn.__doc__, fn.__name__, fn.__module__
        apply.operands, apply.kind, apply.opmath = operands, kind, opmath  # type: ignore[attr-defined]  read by the reference page
        rule(*names, library=library)(apply)
        return apply

    return register


def _reads_wide(b: Any, dtype: torch.dtype) -> bool:
    return dtype in LOW_PRECISION and isinstance(b, Value) and not b.ndim and b.device.type == "cpu" and b.dtype in (torch.float32, torch.float64)


def prepare(xs: Sequence[Any], dtype: torch.dtype | None) -> list[Any]:
    """Tensors converted to ``dtype`` (None: left alone) and broadcast to their common shape; numbers of the dtype's Python type."""
    tensors = [x for x in xs if isinstance(x, Value)]
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return [broadcast_to(p.convert(x, dtype) if dtype else x, shape) if isinstance(x, Value) else number(x, dtype) for x in xs]


def number(x: Any, dtype: torch.dtype | None) -> Any:
    """A Python number as the type that matches ``dtype``."""
    if dtype is None or not isinstance(x, (bool, int, float, *SYMBOLIC)):
        return x
    if dtype is torch.bool:
        return bool(x)
    return to_float(x) if dtype.is_floating_point else to_int(x)


def rounded(x: Any, dtype: torch.dtype) -> Any:
    """A Python number as an element of the half type ``dtype`` holds it (symbolic ones, and other dtypes: as it is)."""
    return x if isinstance(x, SYMBOLIC) or dtype not in LOW_PRECISION else torch.tensor(x, dtype=dtype).item()


def broadcast_to(x: Value, shape: Sequence[int]) -> Value:
    """``x`` repeated to ``shape``, dimensions aligned from the right."""
    if same_all(x.shape, shape):
        return x
    return p.broadcast_in_dim(x, tuple(shape), tuple(range(len(shape) - x.ndim, len(shape))))


def full_like(x: Value, value: Any, dtype: torch.dtype | None = None) -> Value:
    """A tensor of one value with the shape (and by default dtype) of ``x``."""
    dtype = dtype or x.dtype
    return p.full(x.shape, number(value, dtype), dtype, x.device)


def opmath(x: Value) -> Value:
    """``x`` in the dtype that eager computes composite formulas in."""
    return p.convert(x, opmath_dtype(x.dtype))
