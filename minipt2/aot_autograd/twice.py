"""Gradients of gradients: a backward compiled ahead of time has no backward of its own.

Where ``create_graph=True`` asks for one, the captured graph runs again on eager kernels under autograd, which knows all derivatives.
That takes a graph that may run twice: one that draws no random numbers and writes nothing. Upstream refuses (``_functorch``'s
"does not currently support double backward").
"""
from __future__ import annotations

import contextlib
import weakref
from typing import Any, Callable, Sequence

import torch
from torch import fx

from ..errors import Unsupported
from .ops import info


class Again:
    """``gm``, to be run once more as eager would have, under the autocast state of the moment this object is made."""

    def __init__(self, gm: Callable[..., Sequence[Any]]):
        self.gm = gm
        self.autocast = [(d, torch.get_autocast_dtype(d)) for d in ("cpu", "cuda") if torch.is_autocast_enabled(d)]

    def remember(self, args: Sequence[Any]) -> list[tuple[Any, Any]]:
        """What it takes to find the arguments again, unchanged; keeps no tensor alive."""
        return [(weakref.ref(a), a._version) if isinstance(a, torch.Tensor) else (a, None) for a in args]

    def gradients(self, remembered: Sequence[tuple[Any, Any]], needed: Sequence[bool], tangents: Sequence[torch.Tensor | None],
                  create_graph: bool = True) -> list:
        """The gradient of each argument that is ``needed``, with a graph of its own. Raises Unsupported when an argument is gone."""
        args = [a if version is None else a() for a, version in remembered]
        if any(version is not None and (a is None or a._version != version) for a, (_, version) in zip(args, remembered)):
            raise refusal("an input of the compiled function has been freed or written in place since")
        with contextlib.ExitStack() as modes:
            modes.enter_context(torch.enable_grad())
            for device, dtype in self.autocast:
                modes.enter_context(torch.autocast(device, dtype=dtype))
            outputs = self.gm(*args)
        pairs = [(o, t) for o, t in zip(outputs, tangents) if t is not None and o.requires_grad]
        wanted = [a for a, need in zip(args, needed) if need]
        found = iter(torch.autograd.grad([o for o, _ in pairs], wanted, [t for _, t in pairs], create_graph=create_graph, allow_unused=True))
        return [next(found) if need else None for need in needed]


def draws_random_numbers(gm: fx.GraphModule) -> bool:
    """Whether running the (ATen) graph twice would give two results."""
    return any(isinstance(n.target, torch._ops.OpOverload) and info(n.target).random for n in gm.graph.nodes)


def refusal(why: str) -> Unsupported:
    return Unsupported("MP503", f"the gradient of a compiled function cannot be differentiated here: {why}")


class OnlyOnce(torch.autograd.Function):
    """Lets gradients pass and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, *grads: torch.Tensor | None) -> tuple:
        return tuple(None if g is None else g.view_as(g) for g in grads)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise refusal("its graph draws random numbers, writes into inputs or returns views, so it cannot be run again")
