"""The backends that come with minipt2, each a composition of rooms.

Upstream: ``torch._dynamo.backends.debugging`` (``eager``, ``aot_eager``) and ``torch._dynamo.backends.inductor``.
"""
from __future__ import annotations

import itertools
from typing import Any, Callable

import torch
from torch import fx

from ..config import config
from ..distributed.fsdp import gather_ahead
from .registry import register_backend

Compiled = Callable[..., Any]
_names = itertools.count()


@register_backend
def eager(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Compiled:
    """Run the captured graph as it is: shows what capture alone does."""
    return gm.forward


@register_backend
def aot_eager(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Compiled:
    """Forward and backward graphs made ahead of time, run with eager kernels: shows what ``aot_autograd`` does."""
    from ..aot_autograd import aot_compile, in_pieces, run_eagerly

    def compile(piece: fx.GraphModule, inputs: list) -> Compiled:
        return aot_compile(piece, inputs, fw_compiler=config.bind(lambda graph, fakes: run_eagerly(gather_ahead(graph, config.gather_ahead), fakes)))
    return in_pieces(gm, example_inputs, compile)


@register_backend
def inductor(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Compiled:
    """Graphs made ahead of time, reduced to prims, compiled to fused loops in C."""
    from ..aot_autograd import compiled, in_pieces
    from . import stored

    def compile(piece: fx.GraphModule, inputs: list) -> Compiled:
        return compiled(piece, lambda: stored.plan(piece, inputs, piece.meta.get("name") or f"graph{next(_names)}"))
    return in_pieces(gm, example_inputs, compile)


@register_backend
def numpy(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Compiled:
    """Graphs made ahead of time, reduced to prims, run by NumPy: shows that the prims are enough to build on."""
    from ..aot_autograd import aot_compile, in_pieces
    from ..prims import complete, expand
    from .numpy_backend import lower

    def compile(piece: fx.GraphModule, inputs: list) -> Compiled:
        return aot_compile(piece, inputs, fw_compiler=lower, decompose=lambda joint: expand(joint, complete))
    return in_pieces(gm, example_inputs, compile)
