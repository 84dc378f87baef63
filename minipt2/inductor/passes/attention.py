"""Attention that a model writes out becomes one call of ``scaled_dot_product_attention``, which never holds the scores in memory.

Runs on the captured graph, before the backward is traced, so that the backward is the fused one too.
Before ``softmax((q @ k.transpose(-2, -1)) / 8 + mask, -1) @ v``; after ``scaled_dot_product_attention(q, k, v, mask, scale=1/8)``.
Upstream: ``torch._inductor.fx_passes.fuse_attention``.
"""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import torch
import torch.nn.functional as F
from torch import fx

from ...prims.lazy import Graph
from ...shapes.known import same

DEEPEST_HEAD = 32
"""On a CPU the fused backward computes the scores again: with gradients it wins only over heads of so many channels."""
FILLED = -1e9
"""A number from which on a masked score leaves nothing after the exponential, whatever the other scores are."""

_SPELLINGS: dict[str, tuple[Any, ...]] = {
    "matmul": (operator.matmul, torch.matmul, torch.bmm, "matmul", "bmm"),
    "softmax": (torch.softmax, F.softmax, "softmax"),
    "div": (operator.truediv, torch.div, "div"),
    "mul": (operator.mul, torch.mul, "mul"),
    "add": (operator.add, torch.add, "add"),
    "fill": (torch.masked_fill, "masked_fill"),
    "where": (torch.where,),
    "dropout": (F.dropout,),
    "cast": ("to", "float", "type", "type_as"),
}
_KIND = {target: kind for kind, targets in _SPELLINGS.items() for target in targets}


@dataclass
class _Attention:
    """What a chain of nodes from ``scores = q @ k_t`` to ``softmax @ v`` computes."""

    q: fx.Node
    k_t: fx.Node
    v: fx.Node
    first: fx.Node
    last: fx.Node
    scale: float = 1.0
    bias: fx.Node | None = None
    filled: fx.Node | None = None
    """Where the scores are replaced by ``fill``; with ``negated``, where they are not."""
    negated: bool = False
    fill: float = 0.0
    between: list[fx.Node] = field(default_factory=list)


def fuse_attention(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm`` with its written-out attentions fused; ``gm`` itself where there is none.

    Masks of attentions lie row-major then: for one that is expanded along its last dimension the operator would take its slow way.
    """
    found = [a for node in gm.graph.nodes if _kind(node) == "softmax" and (a := _match(node)) and _applies(a)]
    expanded = [node for node in gm.graph.nodes if node.target is F.scaled_dot_product_attention and _expanded(_mask_of(node))]
    if not found and not expanded:
        return gm
    graph, copies = Graph(), {}
    output = graph.graph_copy(gm.graph, copies)
    graph.output(output)
    for attention in found:
        _rewrite(graph, attention, copies)
    for node in expanded:
        mask = copies[_mask_of(node)]
        with graph.inserting_before(copies[node]):
            copies[node].replace_input_with(mask, _call(graph, copies[node], "contiguous", (mask,), {}))
    made = fx.GraphModule(gm, graph)
    made.meta.update(gm.meta)
    return made


def _mask_of(node: fx.Node) -> Any:
    return node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")


def _expanded(mask: Any) -> bool:
    """Whether neighbours in ``mask``'s rows are one element."""
    return isinstance(mask, fx.Node) and not same(_value(mask).shape[-1], 1) and same(_value(mask).stride()[-1], 0)


# ------------------------------------------------------------------ recognising
def _kind(node: Any) -> str | None:
    if not isinstance(node, fx.Node) or node.op not in ("call_function", "call_method"):
        return None
    return _KIND.get(node.target)


def _match(softmax: fx.Node) -> _Attention | None:
    if not _over_last(softmax) or (last := _reader(softmax)) is None:
        return None
    weights = softmax
    if _kind(last) == "cast":
        weights, last = last, _reader(last)
    if _kind(last) != "matmul" or last.args[0] is not weights or last.args[1] is weights:
        return None
    made = _Attention(softmax, softmax, last.args[1], softmax, last)
    node = softmax.args[0]
    while node is not None and _kind(node) != "matmul":
        made.between.append(node)
        node = _step(node, made)
    if node is None or len(_readers(node)) != 1:
        return None
    made.q, made.k_t, made.first = node.args[0], node.args[1], node
    return made


def _over_last(softmax: fx.Node) -> bool:
    dim = softmax.args[1] if len(softmax.args) > 1 else softmax.kwargs.get("dim")
    return dim in (-1, _value(softmax).ndim - 1)


def _step(node: fx.Node, made: _Attention) -> fx.Node | None:
    """The operand of ``node`` that leads to the scores; what the node does to them is noted. None: not attention as known here."""
    if len(_readers(node)) != 1:
        return None
    kind, masked = _kind(node), made.bias is not None or made.filled is not None
    if kind == "cast":
        return node.args[0] if _value(node).dtype == torch.float32 else None
    if kind in ("mul", "div") and len(node.args) == 2 and not node.kwargs:
        return _scaling(node, kind, made)
    if masked or node.kwargs:
        return None
    if kind == "add" and len(node.args) == 2:
        return _adding(node, made)
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


def _scaling(node: fx.Node, kind: str, made: _Attention) -> fx.Node | None:
    a, b = node.args
    if isinstance(b, fx.Node) and kind == "mul":
        a, b = b, a
    if not isinstance(a, fx.Node) or type(b) not in (int, float) or b == 0 or not math.isfinite(b):
        return None
    made.scale *= b if kind == "mul" else 1 / b
    return a


def _adding(node: fx.Node, made: _Attention) -> fx.Node | None:
    """Of two operands the scores are the one that only the sum reads and that a matmul leads to."""
    for scores, bias in (node.args, node.args[::-1]):
        if isinstance(scores, fx.Node) and isinstance(bias, fx.Node) and _kind(scores) in ("matmul", "mul", "div", "cast"):
            made.bias = bias
            return scores
    return None


def _readers(node: fx.Node) -> list[fx.Node]:
    """Users of ``node``, but for those that only gave it back: a dropout that drops nothing, a cast to the dtype it has."""
    return [user for user in node.users if user.users or _kind(user) not in ("dropout", "cast")]


def _reader(node: fx.Node) -> fx.Node | None:
    readers = _readers(node)
    return readers[0] if len(readers) == 1 else None


def _value(node: fx.Node) -> torch.Tensor:
    return node.meta["val"]


# ------------------------------------------------------------------ whether it may be, and pays
def _applies(a: _Attention) -> bool:
    if not all(isinstance(n, fx.Node) for n in (a.q, a.k_t, a.v)):
        return False
    return _plain_region(a) and _shapes_agree(a) and _scaled_before_masked(a) and _mask_agrees(a) and _pays(a)


def _plain_region(a: _Attention) -> bool:
    """Whether q, k, v and the mask are at the end what they were where they were read, and the modes too."""
    node = a.first
    while node is not a.last:
        if _acts(node):
            return False
        node = node.next
    return True


def _acts(node: fx.Node) -> bool:
    """Whether ``node`` writes into a tensor, or sets a mode (and gives nothing)."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    writes = name.endswith("_") and not name.endswith("__") or node.target in _IN_PLACE or "out" in node.kwargs
    return writes or node.meta.get("val") is None


_IN_PLACE = {getattr(operator, name) for name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor imatmul".split()}


def _shapes_agree(a: _Attention) -> bool:
    q, k_t, v = _value(a.q), _value(a.k_t), _value(a.v)
    if q.ndim not in (3, 4) or not q.ndim == k_t.ndim == v.ndim or not q.dtype == k_t.dtype == v.dtype or not q.dtype.is_floating_point:
        return False
    if q.dtype == torch.float64 or not q.device == k_t.device == v.device or _value(a.last).dtype != q.dtype:
        return False
    batch = tuple(q.shape[:-2])
    return tuple(k_t.shape[:-2]) == batch == tuple(v.shape[:-2]) and q.shape[-1] == v.shape[-1]


def _scaled_before_masked(a: _Attention) -> bool:
    """Walking up from the softmax, masks come before scales (a scaled mask would be another mask)."""
    kinds = [_kind(n) for n in a.between]
    masks = [i for i, kind in enumerate(kinds) if kind in ("add", "fill", "where")]
    scales = [i for i, kind in enumerate(kinds) if kind in ("mul", "div")]
    return not masks or not scales or masks[0] < scales[0]


def _mask_agrees(a: _Attention) -> bool:
    mask = _masking(a)
    if mask is None:
        return True
    value, scores = _value(mask), _value(a.first)
    if value.requires_grad or value.device != scores.device or value.dtype != (_value(a.q).dtype if a.bias is not None else torch.bool):
        return False
    if not 2 <= value.ndim <= scores.ndim:
        return False
    if a.bias is not None and _value(a.last).requires_grad:
        return False  # in rows of biases like -1e30 the operator's backward loses the sum of the exponentials: gradients n times too large
    return all(m == 1 or m == s for m, s in zip(reversed(value.shape), reversed(scores.shape)))


def _pays(a: _Attention) -> bool:
    value = _value(a.q)
    return value.device.type != "cpu" or not _value(a.last).requires_grad or value.shape[-1] <= DEEPEST_HEAD


# ------------------------------------------------------------------ rewriting
def _rewrite(graph: fx.Graph, a: _Attention, copies: dict[fx.Node, fx.Node]) -> None:
    last = copies[a.last]
    with graph.inserting_before(last):
        result = _fused(lambda target, *args, **kwargs: _call(graph, last, target, args, kwargs), a, copies)
    last.replace_all_uses_with(result)
    for node in (a.last, *_up_to(a)):
        for dead in [u for u in copies[node].users if not u.users]:
            graph.erase_node(dead)
        graph.erase_node(copies[node])


def _up_to(a: _Attention) -> Iterator[fx.Node]:
    """The chain from the reader of the softmax back to the first product."""
    weights = a.last.args[0]
    while _kind(weights) == "cast":
        yield weights
        weights = weights.args[0]
    yield weights
    yield from a.between
    yield a.first


def _call(graph: fx.Graph, like: fx.Node, target: Any, args: tuple, kwargs: dict) -> fx.Node:
    node = graph.call_method(target, args, kwargs) if isinstance(target, str) else graph.call_function(target, args, kwargs)
    node.meta.update({k: v for k, v in like.meta.items() if k != "val"})
    return node


def _fused(call: Callable[..., fx.Node], a: _Attention, copies: dict[fx.Node, fx.Node]) -> fx.Node:
    q, k, v = copies[a.q], call("transpose", copies[a.k_t], -2, -1), copies[a.v]
    mask, unseen, instead = _mask(call, a, copies)
    if _value(a.q).ndim == 3:
        q, k, v = (call("unsqueeze", x, 1) for x in (q, k, v))
        if mask is not None and _value(_masking(a)).ndim == 3:
            mask = call("unsqueeze", mask, 1)
    result = call(F.scaled_dot_product_attention, q, k, v, mask, scale=a.scale)
    if _value(a.q).ndim == 3:
        result = call("squeeze", result, 1)
    return result if unseen is None else call(torch.where, unseen, instead, result)


def _masking(a: _Attention) -> fx.Node | None:
    return a.bias if a.bias is not None else a.filled


def _undefined(call: Callable[..., fx.Node], a: _Attention, unseen: fx.Node, copies: dict[fx.Node, fx.Node]) -> Any:
    """NaN; with gradients in a form that gives NaN to the values' too, as eager does for the values of every head that has such a query."""
    if not _value(a.v).requires_grad:
        return math.nan
    heads = call("any", unseen, dim=-2, keepdim=True) if _value(a.filled).ndim > 1 else unseen
    factor = call("type_as", call(torch.where, heads, math.nan, 0.0), copies[a.v])
    return call(torch.mul, call("mean", copies[a.v], -2, keepdim=True), factor)


def _mask(call: Callable[..., fx.Node], a: _Attention, copies: dict[fx.Node, fx.Node]) -> tuple[Any, Any, Any]:
    """The operator's mask; which queries see no key, and what softmax gives them (the operator gives 0): the mean of the values where
    the scores are replaced by one number, NaN where that is -inf."""
    if a.filled is not None:
        hidden = copies[a.filled]
        kept = call(torch.logical_not, hidden)
        mask, hidden = (hidden, kept) if a.negated else (kept, hidden)
        unseen = call("all", hidden, dim=-1, keepdim=True)
        return mask, unseen, _undefined(call, a, unseen, copies) if a.fill == -math.inf else call("mean", copies[a.v], -2, keepdim=True)
    if a.bias is None:
        return None, None, None
    mask = call("contiguous", copies[a.bias]) if _expanded(a.bias) else copies[a.bias]
    return mask, call("all", call(torch.eq, mask, -math.inf), dim=-1, keepdim=True), math.nan
