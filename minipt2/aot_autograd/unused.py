"""The backward of a call some of whose outputs no loss used: autograd hands it no gradient for them, and eager computes nothing with it.

A language model in training returns its keys and values beside the logits; nobody differentiates them. Before::

    add(tangent_k, mm(...))            # tangent_k: zeros, written and read for each layer

After: ``mm(...)``. Upstream (``torch._functorch``) hands zeros to the one backward it has.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch
from torch import fx

from ..prims.core import TABLE, Prim
from ..prims.kinds import drop_dead

aten = torch.ops.aten
LINEAR = frozenset("""
    permute reshape slice flip copy_strided neg sum broadcast_in_dim convert mul div mm bmm
    view _unsafe_view transpose t expand unsqueeze squeeze select clone _to_copy getitem
""".split())
"""Prims and ATen operators that give nothing where their first operand is nothing; so do those that name operands ``grad``, where all of these are."""
BILINEAR = frozenset("mul mm bmm".split())
"""… where one of their two operands is nothing."""


def leave_out(gm: fx.GraphModule, absent: Sequence[int]) -> None:
    """Take the tangents at the places ``absent`` among the placeholders out of a backward graph of prims or ATen operators, in place.

    What is linear in them goes with them, as in eager (infinities and NaNs that zeros would have met leave no trace); a gradient that depends
    on nothing else is None. Other readers read zeros.
    """
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    left_out = [placeholders[k] for k in absent]
    gone = set(left_out)
    for node in list(gm.graph.nodes):
        if node.op == "output":
            node.args = fx.node.map_arg(node.args, lambda x: None if x in gone else x)
        elif gone.isdisjoint(node.all_input_nodes):
            continue
        elif _vanishes(node, gone):
            gone.add(node)
        elif (rest := _other_term(node, gone)) is not None:
            node.replace_all_uses_with(rest)
        else:
            for x in gone.intersection(node.all_input_nodes):
                node.replace_input_with(x, _zeros(x, node))
    drop_dead(gm.graph)
    for node in left_out:
        gm.graph.erase_node(node)
    gm.recompile()


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return getattr(node.target, "__name__", "") if schema is None else schema.name.split("::")[-1]


def _vanishes(node: fx.Node, gone: set[fx.Node]) -> bool:
    name, nothing = _name(node), [isinstance(x, fx.Node) and x in gone for x in node.args]
    schema = getattr(node.target, "_schema", None)
    if schema is not None:
        gradients = [k for k, a in enumerate(schema.arguments[:len(node.args)]) if a.name.startswith("grad")]  # an LSTM's backward has three
        if any(nothing[k] for k in gradients) and all(nothing[k] or node.args[k] is None for k in gradients):
            return True
    if name in ("where", "masked_fill"):  # a choice between nothing and zero
        choices = (0, 2) if name == "masked_fill" else (1, 2)
        return any(nothing[k] for k in choices) and all(nothing[k] or _is_zero(node.args[k]) for k in choices)
    return name in LINEAR and nothing[0] or name in BILINEAR and nothing[1] or name in ("add", "sub") and all(nothing[:2])


def _is_zero(x: Any) -> bool:
    """Whether an operand is the number 0, or a tensor filled with it."""
    if not isinstance(x, fx.Node):
        return x == 0
    name = _name(x)
    if name in ("broadcast_in_dim", "convert", "expand", "copy_strided"):
        return _is_zero(x.args[0])
    return name in ("zeros", "zeros_like", "zero") or name in ("full", "full_like", "scalar_tensor") and _is_zero(x.args[name != "scalar_tensor"])


def _other_term(node: fx.Node, gone: set[fx.Node]) -> fx.Node | None:
    """The term of a sum that there is, if the other one is nothing."""
    if _name(node) not in ("add", "sub") or node.args[0] in gone and _name(node) == "sub" or node.kwargs:
        return None
    rest = node.args[0] if node.args[1] in gone else node.args[1]
    whole = isinstance(rest, fx.Node) and (rest.meta["val"].shape, rest.meta["val"].dtype) == (node.meta["val"].shape, node.meta["val"].dtype)
    return rest if whole else None


def _zeros(like: fx.Node, before: fx.Node) -> fx.Node:
    """Zeros in the shape and the memory order of ``like``."""
    val, graph = like.meta["val"], like.graph
    prims = any(isinstance(n.target, Prim) for n in graph.nodes)
    with graph.inserting_before(before):
        if prims:
            zeros = graph.call_function(TABLE["full"], (tuple(val.shape), 0, val.dtype, val.device))
            zeros.meta["val"] = zeros.target.meta(*zeros.args)
            ordered = graph.call_function(TABLE["copy_strided"], (zeros, tuple(val.stride())))
        else:
            empty = graph.call_function(aten.empty_strided.default, (list(val.shape), list(val.stride())), {"dtype": val.dtype, "device": val.device})
            ordered = graph.call_function(aten.zero.default, (empty,))
            empty.meta["val"] = val
    ordered.meta["val"] = val
    return ordered
