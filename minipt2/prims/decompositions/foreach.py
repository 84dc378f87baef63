"""``_foreach_*``: lists of tensors, as optimisers use them; the plain rule for each element. Upstream: foreach in ``torch._inductor.lowering``."""
from __future__ import annotations

from typing import Any, Callable

from . import pointwise, reductions  # noqa: F401  the plain rules must be there first
from ..core import Value
from .registry import decompositions, overload, rule

_OVERLOADS = {"List": "Tensor", "Scalar": "Scalar", "ScalarList": "Scalar", "Tensor": "Tensor"}


def foreach(name: str, kind: str, fn: Callable[..., Any], library: bool = False) -> None:
    """``_foreach_<name>.<kind>``: lists among the arguments advance together, all others go to each call."""

    @rule(f"_foreach_{name}.{kind}" if kind else f"_foreach_{name}", library=library)
    def apply(*args: Any, **kwargs: Any) -> list[Value]:
        n = len(next(a for a in args if isinstance(a, (list, tuple))))
        columns = [a if isinstance(a, (list, tuple)) else [a] * n for a in args]
        return [fn(*row, **kwargs) for row in zip(*columns)]


def plain(*names: str) -> Callable[..., Any]:
    """The first of these overloads that has a rule."""
    return next(decompositions[overload(name)] for name in names if overload(name) in decompositions)


def _register() -> None:
    for name in "add sub mul div maximum minimum clamp_min clamp_max pow".split():
        for kind, tensor_kind in _OVERLOADS.items():
            foreach(name, kind, plain(f"{name}.{tensor_kind}", f"{name}.Tensor_{tensor_kind}", f"{name}.Tensor", name))
    for name in ("abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt "
                 "sigmoid sign sin sinh sqrt tan tanh trunc").split():
        foreach(name, "", plain(name))
    lerp_scalar, lerp_tensor = plain("lerp.Scalar"), plain("lerp.Tensor")
    foreach("lerp", "Scalar", lerp_scalar)
    foreach("lerp", "ScalarList", lerp_scalar)
    foreach("lerp", "List", lerp_tensor)
    for name in ("addcmul", "addcdiv"):
        fn = plain(name)
        foreach(name, "Scalar", lambda x, a, b, value=1, fn=fn: fn(x, a, b, value=value))
        foreach(name, "ScalarList", lambda x, a, b, value=1, fn=fn: fn(x, a, b, value=value))
    foreach("norm", "Scalar", lambda x, ord=2, dtype=None: reductions.linalg_vector_norm(x, ord, dtype=dtype))


_register()
