"""``lowerings``: prim name -> function. Entries stand beside the functions they name."""
from __future__ import annotations

from typing import Any, Callable

lowerings: dict[str, Callable[..., Any]] = {}
"""``fn(graph, *args)`` with the prim's arguments, nodes replaced by ``tensors.Tensor``; returns a Tensor or a list of them."""


def lowering(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function for prims of these names."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        lowerings.update(dict.fromkeys(names, fn))
        return fn

    return register
