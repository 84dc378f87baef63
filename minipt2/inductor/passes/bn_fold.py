"""Inference: batch norm after a convolution becomes part of the convolution's weight and bias.

Before::

    y = convolution(x, weight, None, ...)
    z = (y - bcast(mean)) * bcast(rstd) * bcast(gamma) + bcast(beta)       # mean ... depend on parameters alone

After::

    scale = rstd * gamma;  shift = -mean * rstd * gamma + beta             # frozen: computed once
    z = convolution(x, weight * scale[:, None, None, None], shift, ...)

Any chain of additions, subtractions and multiplications by per-channel parameters folds, not only that of batch norm.
Upstream: ``torch._inductor.fx_passes.freezing_patterns`` and ``torch.nn.utils.fusion.fuse_conv_bn_weights``.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ...exercise import exercise
from ...prims.kinds import drop_dead, pure
from .graphs import is_prim, prim, shape_of, static_nodes

Operand = Any  # a (channels,) node or a number


@exercise("2.5")
def fold_conv_bn(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many convolutions took something in. Weights must be placeholders with ``meta["static"]``."""
    # >>> 2.5
    static = static_nodes(gm.graph, pure)
    folded = 0
    for conv in list(gm.graph.nodes):
        if is_prim(conv, "convolution") and _foldable(conv, static):
            chain = _affine_chain(conv, static)
            if chain:
                _fold(gm.graph, conv, chain, static)
                folded += 1
    if folded:
        drop_dead(gm.graph)
    return folded
    # <<< 2.5


def _foldable(conv: fx.Node, static: set[fx.Node]) -> bool:
    weight, bias, transposed = conv.args[1], conv.args[2], conv.args[6]
    return (weight in static and (bias is None or bias in static) and not transposed
            and conv.meta["val"].dtype in (torch.float32, torch.float64))  # in bf16 eager rounds between the two


@exercise("2.5")
def _affine_chain(conv: fx.Node, static: set[fx.Node]) -> list[tuple[fx.Node, str, Operand, bool]]:
    """(node, op, operand, operand stands first) of each affine step; every value but the last has one reader."""
    # >>> 2.5
    chain, value = [], conv
    while len(value.users) == 1:
        user = next(iter(value.users))
        if not is_prim(user, "add", "sub", "mul", "div"):
            break
        first = user.args[0] is not value
        operand = _per_channel(user.args[0] if first else user.args[1], static)
        if operand is None or user.args[0] is user.args[1] or (first and user.target.name == "div"):
            break
        chain.append((user, user.target.name, operand, first))
        value = user
    return chain
    # <<< 2.5


def _per_channel(operand: Any, static: set[fx.Node]) -> Operand | None:
    """The (channels,) node that a broadcast repeats over dimension 1, or a number; None for anything else."""
    if isinstance(operand, (int, float)) and not isinstance(operand, bool):
        return operand
    if not is_prim(operand, "broadcast_in_dim") or operand.args[0] not in static:
        return None
    source, shape, dims = operand.args
    sizes = shape_of(source)
    if len(dims) == 1 and dims[0] == 1 and sizes == (shape[1],):
        return source
    wide = [d for d, n in zip(dims, sizes) if n != 1]
    if wide == [1] and shape[1] in sizes:  # (C, 1, 1) and the like
        return _flat(source, shape[1])
    return None


def _flat(source: fx.Node, channels: int) -> fx.Node:
    with source.graph.inserting_after(source):
        return prim(source.graph, "reshape", (source, (channels,)), source)


def _fold(graph: fx.Graph, conv: fx.Node, chain: list[tuple[fx.Node, str, Operand, bool]], static: set[fx.Node]) -> None:
    weight, bias = conv.args[1], conv.args[2]
    last = chain[-1][0]
    with graph.inserting_before(last):
        scale, shift = 1.0, 0.0 if bias is None else bias
        for _, op, operand, first in chain:
            scale, shift = _step(graph, conv, op, operand, first, scale, shift)
        shape = shape_of(weight)
        if scale != 1.0:
            if isinstance(scale, fx.Node):
                scale = prim(graph, "broadcast_in_dim", (scale, shape, (0,)), conv)
            weight = prim(graph, "mul", (weight, scale), conv)
        if not isinstance(shift, fx.Node):
            val = conv.meta["val"]
            shift = prim(graph, "full", ((shape[0],), float(shift), val.dtype, val.device), conv)
        new = prim(graph, "convolution", (conv.args[0], weight, shift, *conv.args[3:]), last)
        new.meta.update({k: v for k, v in last.meta.items() if k != "val"})
    _keep_stack(new, conv)
    last.replace_all_uses_with(new)


def _keep_stack(node: fx.Node, conv: fx.Node) -> None:
    node.meta["stack"] = conv.meta.get("stack", ())


@exercise("2.5")
def _step(graph: fx.Graph, like: fx.Node, op: str, operand: Operand, first: bool, scale: Operand, shift: Operand) -> tuple[Operand, Operand]:
    """scale * y + shift, after one more step."""
    # >>> 2.5
    def apply(name: str, a: Operand, b: Operand) -> Operand:
        if isinstance(a, fx.Node) or isinstance(b, fx.Node):
            if name == "mul" and (a == 1.0 or b == 1.0):
                return b if a == 1.0 else a
            if name == "add" and (a == 0.0 or b == 0.0):
                return b if a == 0.0 else a
            if name == "mul" and (a == 0.0 or b == 0.0):
                return 0.0
            if name == "sub" and a == 0.0:
                return prim(graph, "neg", (b,), like)
            return prim(graph, name, (a, b), like)
        return {"add": a + b, "sub": a - b, "mul": a * b, "div": a / b if b else 0.0}[name]

    if op in ("mul", "div"):
        return apply(op, scale, operand), apply(op, shift, operand)
    if op == "add":
        return scale, apply("add", shift, operand)
    if first:  # operand - value
        return apply("mul", scale, -1.0), apply("sub", operand, shift)
    return scale, apply("sub", shift, operand)
    # <<< 2.5



