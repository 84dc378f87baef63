"""On a CPU: attention by C of our own where that is faster.

Before::

    out, lse = _scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)

After::

    out, lse = attention(q, k, v, 0.0, True)                                     # minipt2/inductor/attention.py

The same for the backward. Which is faster is measured for each shape, once for each machine (``autotune.own_attention``); in
training a forward is ours only where its backward is. Upstream leaves the call to ATen.
"""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import fx

from ..attention import BACKWARD, FORWARD, WIDTH, attention, attention_backward
from .graphs import likely, shape_of

OWN = {FORWARD: attention, BACKWARD: attention_backward}
FEWEST_MULTIPLICATIONS = 1 << 20
"""Of q @ k.T: a race takes longer than smaller ones will ever save."""


class Heads(NamedTuple):
    """The sizes of a call, for the race; ``mask``: its shape, where there is one."""

    batch: int
    heads: int
    rows: int
    columns: int
    width: int
    causal: bool
    mask: tuple[int, ...] | None
    backward: bool


def replace_attention(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many calls are ours."""
    done = 0
    for node in gm.graph.nodes:
        problem = _problem(node)
        if problem is None:
            continue
        from ..autotune.own_attention import worth_computing  # only a process that compiles such a graph needs it
        if worth_computing(problem) and (not _learns(node) or worth_computing(problem._replace(backward=True))):
            node.target = OWN[node.target]
            done += 1
    return done


def _learns(node: fx.Node) -> bool:
    """Whether ``node`` is a forward whose backward follows: ATen's would need the softmax's divisor from ATen's forward."""
    return node.target is FORWARD and any(user.args[1] == 1 and user.users for user in node.users)


def _problem(node: fx.Node) -> Heads | None:
    """The likely sizes of a call that may be ours; None for anything else."""
    if node.op != "call_function" or node.target not in OWN:
        return None
    backward = node.target is BACKWARD
    named = dict(zip(("grad", "q", "k", "v", "out", "lse", "dropout_p", "is_causal") if backward else ("q", "k", "v", "dropout_p", "is_causal"), node.args))
    mask, q, k = node.kwargs.get("attn_mask"), named["q"], named["k"]
    tensors = [n for n in (*named.values(), mask) if isinstance(n, fx.Node)]
    if named.get("dropout_p", 0.0) or any(n.meta["val"].dtype != torch.float32 or n.meta["val"].device.type != "cpu" for n in tensors):
        return None
    if shape_of(k)[:2] != shape_of(q)[:2]:  # heads that share keys
        return None
    batch, heads, rows, width = map(likely, shape_of(q))
    columns = likely(shape_of(k)[2])
    if width % WIDTH or batch * heads * rows * columns * width < FEWEST_MULTIPLICATIONS:
        return None
    masked = None if mask is None else tuple(map(likely, shape_of(mask)))
    return Heads(batch, heads, rows, columns, width, bool(named.get("is_causal", False)), masked, backward)
