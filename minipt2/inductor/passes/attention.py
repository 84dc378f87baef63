"""Attention that a model writes out becomes one call of ``scaled_dot_product_attention``, which never holds the scores in memory.

Runs on the captured graph, before the backward is traced, so that the backward is the fused one too.
Before ``softmax((q @ k.transpose(-2, -1)) / 8 + mask, -1) @ v``; after ``scaled_dot_product_attention(q, k, v, mask, scale=1/8)``.
A dropout of the weights goes along on a GPU: the operator draws it (other numbers than eager, as often; ``config.eager_random`` keeps those),
and its backward draws the same again. The result lies as the product's would, where that can be seen.
Masks: ``attention_mask``. Upstream: ``torch._inductor.fx_passes.fuse_attention``.
"""
from __future__ import annotations

import math
import operator
from typing import Any, Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import fx

from ...config import config
from ...prims.lazy import Graph
from ...shapes.known import known, same
from .attention_mask import Attention, expanded, mask_agrees, operands, value
from .mask_values import name_of, writes

DEEPEST_HEAD = 32
"""On a CPU the fused backward computes the scores again: with gradients it wins only over heads of so many channels."""
FILLED = -1e9
"""A number from which on a masked score leaves nothing after the exponential, whatever the other scores are."""

_SPELLINGS: dict[str, tuple[Any, ...]] = {
    "matmul": (operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm"),
    "softmax": (torch.softmax, F.softmax, "softmax"),
    "div": (operator.truediv, torch.div, "div", operator.itruediv, "div_"),
    "mul": (operator.mul, torch.mul, "mul", operator.imul, "mul_"),
    "add": (operator.add, torch.add, "add", operator.iadd, "add_"),
    "fill": (torch.masked_fill, "masked_fill", "masked_fill_"),
    "where": (torch.where,),
    "dropout": (F.dropout,),
    "cast": ("to", "float", "type", "type_as"),
}
_KIND = {target: kind for kind, targets in _SPELLINGS.items() for target in targets}


def fuse_attention(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm`` with its written-out attentions fused; ``gm`` itself where there is none.

    Masks of attentions lie row-major then: for one that is expanded along its last dimension the operator would take its slow way.
    """
    found = [a for node in gm.graph.nodes if _kind(node) == "softmax" and (a := _match(node)) and _applies(a)]
    spread = [node for node in gm.graph.nodes if node.target is F.scaled_dot_product_attention and expanded(_mask_of(node))]
    if not found and not spread:
        return gm
    graph, copies = Graph(), {}
    output = graph.graph_copy(gm.graph, copies)
    graph.output(output)
    for attention in found:
        _rewrite(graph, attention, copies)
    for node in spread:
        mask = copies[_mask_of(node)]
        with graph.inserting_before(copies[node]):
            copies[node].replace_input_with(mask, _call(graph, copies[node], "contiguous", (mask,), {}))
    made = fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def _mask_of(node: fx.Node) -> Any:
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")


# ------------------------------------------------------------------ recognising
def _kind(node: Any) -> str | None:
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return None
    return _KIND.get(node.target)


def _match(softmax: fx.Node) -> Attention | None:
    if not _over_last(softmax) or (last := _reader(softmax)) is None:
        return None
    weights, after, drop = softmax, [], 0.0
    while _kind(last) == "cast" or _kind(last) == "dropout" and not drop:
        if _kind(last) == "dropout" and not (drop := _chance(last)) or last.args[:1] != (weights,):
            return None
        after.append(last)
        weights, last = last, _reader(last)
    if _kind(last) != "matmul" or last.args[0] is not weights or last.args[1] is weights:
        return None
    made = Attention(softmax, softmax, last.args[1], softmax, last, drop=drop, after=after)
    node = softmax.args[0]
    while isinstance(node, fx.Node):
        for write in reversed(_writes(node)):
            made.between.append(write)
            if _step(write, made) is not node:
                return None
        if len(_readers(node)) - len(_writes(node)) != 1 or _kind(node) == "matmul":
            break
        made.between.append(node)
        node = _step(node, made)
    if not isinstance(node, fx.Node) or _kind(node) != "matmul" or len(_readers(node)) - len(_writes(node)) != 1:
        return None
    made.q, made.k_t, made.first = node.args[0], node.args[1], node
    return made


def _chance(dropout: fx.Node) -> float:
    """By which ``dropout`` drops an element; 0 where it is none that the operator knows."""
    given = _drops(dropout)
    known = type(given["p"]) is float and 0 < given["p"] < 1 and given["training"] is True and given["inplace"] is False
    return given["p"] if known else 0.0


def _drops(dropout: fx.Node) -> dict[str, Any]:
    """Its arguments behind the first one."""
    return {"p": 0.5, "training": True, "inplace": False} | dict(zip(("p", "training", "inplace"), dropout.args[1:])) | dropout.kwargs


def _over_last(softmax: fx.Node) -> bool:
    dim = softmax.args[1] if len(softmax.args) > 1 else softmax.kwargs.get("dim")
    return dim in (-1, value(softmax).ndim - 1)


def _step(node: fx.Node, made: Attention) -> fx.Node | None:
    """The operand of ``node`` that leads to the scores; what the node does to them is noted. None: not attention as known here."""
    kind, masked = _kind(node), made.bias is not None or made.filled is not None
    if kind == "cast":
        return node.args[0] if value(node).dtype == torch.float32 else None
    if kind in ("mul", "div") and len(node.args) == 2 and not node.kwargs:
        return _scaling(node, kind, made)
    if masked or node.kwargs:
        return None
    if kind == "add" and len(node.args) == 2:
        return _adding(node, made, node.args[:1] if _in_place(node) else node.args)
    if kind == "fill":
        scores, made.filled, made.fill = node.args
    elif kind == "where":
        made.filled, a, b = node.args
        made.negated = isinstance(a, fx.Node)
        scores, made.fill = (a, b) if made.negated else (b, a)
    else:
        return None
    known = isinstance(made.fill, (int, float)) and made.fill <= FILLED and isinstance(made.filled, fx.Node)
    return scores if known and isinstance(scores, fx.Node) else None


def _scaling(node: fx.Node, kind: str, made: Attention) -> fx.Node | None:
    a, b = node.args
    if isinstance(b, fx.Node) and kind == "mul":
        a, b = b, a
    if not isinstance(a, fx.Node) or type(b) not in (int, float) or b == 0 or not math.isfinite(b):
        return None
    made.scale *= b if kind == "mul" else 1 / b
    return a


def _adding(node: fx.Node, made: Attention, either: Sequence[Any]) -> fx.Node | None:
    """Of ``either`` operand the scores are the one that a matmul leads to."""
    for scores in either:
        bias = node.args[node.args[0] is scores]
        if isinstance(scores, fx.Node) and isinstance(bias, fx.Node) and _kind(scores) in ("matmul", "mul", "div", "cast"):
            made.bias = bias
            return scores
    return None


def _in_place(node: fx.Node) -> bool:
    return writes(node) and bool(node.args)


def _writes(node: fx.Node) -> list[fx.Node]:
    """What changes ``node`` in place, in order, before the last of its users reads it (``scores += mask``)."""
    users = sorted(node.users)
    return [user for user in users[:-1] if _kind(user) is not None and _in_place(user) and user.args[0] is node and not user.users]


def _readers(node: fx.Node) -> list[fx.Node]:
    """Users of ``node``, but for those that only gave it back: a dropout that drops nothing, a cast to the dtype it has."""
    return [user for user in node.users if user.users or _kind(user) not in ("dropout", "cast") or _kind(user) == "dropout" and _drops(user)["inplace"]]


def _reader(node: fx.Node) -> fx.Node | None:
    readers = _readers(node)
    return readers[0] if len(readers) == 1 else None


# ------------------------------------------------------------------ whether it may be, and pays
def _applies(a: Attention) -> bool:
    if not all(isinstance(n, fx.Node) for n in (a.q, a.k_t, a.v)):
        return False
    return a.scale > 0 and _plain_region(a) and _shapes_agree(a) and _scaled_before_masked(a) and mask_agrees(a) and _pays(a)


def _plain_region(a: Attention) -> bool:
    """Whether q, k, v and the mask are at the end what they were where they were read, and the modes too."""
    node = a.first
    while node is not a.last:
        if _acts(node) and node not in a.between:
            return False
        node = node.next
    return True


def _acts(node: fx.Node) -> bool:
    """Whether ``node`` writes into a tensor, or sets a mode (and gives nothing)."""
    return writes(node) or node.meta.get("val") is None


def _shapes_agree(a: Attention) -> bool:
    q, k_t, v = value(a.q), value(a.k_t), value(a.v)
    if q.ndim not in (3, 4) or not q.ndim == k_t.ndim == v.ndim or not q.dtype == k_t.dtype == v.dtype or not q.dtype.is_floating_point:
        return False
    if q.dtype == torch.float64 or not q.device == k_t.device == v.device or value(a.last).dtype != q.dtype:
        return False
    batch = tuple(q.shape[:-2])
    return tuple(k_t.shape[:-2]) == batch == tuple(v.shape[:-2]) and q.shape[-1] == v.shape[-1]


def _scaled_before_masked(a: Attention) -> bool:
    """Walking up from the softmax, masks come before scales (a scaled mask would be another mask)."""
    kinds = [_kind(n) for n in a.between]
    masks = [i for i, kind in enumerate(kinds) if kind in ("add", "fill", "where")]
    scales = [i for i, kind in enumerate(kinds) if kind in ("mul", "div")]
    return not masks or not scales or masks[0] < scales[0]


def _pays(a: Attention) -> bool:
    q = value(a.q)
    if a.drop and (config.eager_random or q.device.type == "cpu"):
        return False  # eager's numbers are wanted, or the operator would compute all scores as well
    return q.device.type != "cpu" or not a.trains or q.shape[-1] <= DEEPEST_HEAD


# ------------------------------------------------------------------ rewriting
def _rewrite(graph: fx.Graph, a: Attention, copies: dict[fx.Node, fx.Node]) -> None:
    last = copies[a.last]
    with graph.inserting_before(last):
        result = _fused(lambda target, *args, **kwargs: _call(graph, last, target, args, kwargs), a, copies)
    last.replace_all_uses_with(result)
    for node in (a.last, *_up_to(a)):
        for dead in [u for u in copies[node].users if not u.users]:
            graph.erase_node(dead)
        graph.erase_node(copies[node])


def _up_to(a: Attention) -> Iterator[fx.Node]:
    """The chain from the reader of the softmax back to the first product."""
    yield from reversed(a.after)
    yield a.after[0].args[0] if a.after else a.last.args[0]
    yield from a.between
    yield a.first


def _call(graph: fx.Graph, like: fx.Node, target: Any, args: tuple, kwargs: dict) -> fx.Node:
    node = graph.call_method(target, args, kwargs) if isinstance(target, str) else graph.call_function(target, args, kwargs)
    node.meta.update({k: v for k, v in like.meta.items() if k != "val"})
    return node


def _fused(call: Callable[..., fx.Node], a: Attention, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    made, flat = operands(call, a, copies), value(a.q).ndim == 3
    q, k, v, mask = made.q, made.k, made.v, made.mask
    if flat:
        q, k, v = (call("unsqueeze", x, 1) for x in (q, k, v))
        if mask is not None and value(a.mask).ndim == 3:
            mask = call("unsqueeze", mask, 1)
    result = call(F.scaled_dot_product_attention, q, k, v, mask, a.drop, made.causal, scale=a.scale)
    if flat:
        result = call("squeeze", result, 1)
    if made.unseen is not None:
        result = call(torch.where, made.unseen, made.instead, result)
    return result if _laid_out_anew(a) else call("contiguous", result)


def _laid_out_anew(a: Attention) -> bool:
    """Whether nobody sees how the result lies: the operator's lies as ``q`` does or with heads side by side, a product row-major. Models put the heads
    side by side next; where they lie so that copies nothing, and nothing else shares that memory."""
    if len(a.last.users) != 1:
        return False
    moved = next(iter(a.last.users))
    if value(a.last).ndim != 4 or name_of(moved) not in ("transpose", "permute", "swapaxes") or len(moved.users) != 1:
        return False
    swapped = value(a.last).transpose(1, 2)
    q = value(a.q)
    return (all(map(same, value(moved).stride(), swapped.stride())) and name_of(next(iter(moved.users))) in ("contiguous", "reshape", "flatten")
            and (_in_order(q) or _in_order(q.transpose(1, 2))))


def _in_order(x: torch.Tensor) -> bool:
    """Whether what is allocated like ``x`` is row-major: ``x`` itself may be a part of something larger."""
    strides = x.stride()
    return same(strides[-1], 1) and all([known(a >= b) for a, b in zip(strides, strides[1:])])
