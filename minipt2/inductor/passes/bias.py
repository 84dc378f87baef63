"""A linear layer's bias joins the loops that read its result.

Before::

    y = gelu(addmm(bias, x, w))          # addmm first fills its result with the bias, then reads it again

After::

    y = gelu(mm(x, w) + bcast(bias))     # one load of a short vector inside the loop that computes gelu

Where the result goes straight into another contraction or out of the graph, addmm stays: the bias would need a pass of its own.
Measured on 512x256 @ 256x768: mm 0.97 of addmm's time. Upstream: ``torch._inductor.fx_passes.post_grad.unfuse_bias_add_to_pointwise``.
"""
from __future__ import annotations

from torch import fx

from ...prims import kind
from .graphs import is_prim, prim, shape_of


def unfuse_bias(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many ``addmm`` became ``mm``."""
    found = [n for n in gm.graph.nodes if is_prim(n, "addmm") and n.args[3:] == (1, 1) and len(shape_of(n.args[0])) == 1 and _feeds_loops(n)]
    for node in found:
        bias, a, b = node.args[:3]
        with gm.graph.inserting_before(node):
            product = prim(gm.graph, "mm", (a, b), node)
            spread = prim(gm.graph, "broadcast_in_dim", (bias, shape_of(node), (1,)), node)
            node.replace_all_uses_with(prim(gm.graph, "add", (product, spread), node))
        gm.graph.erase_node(node)
    return len(found)


def _feeds_loops(node: fx.Node) -> bool:
    """Every reader, seen through views, is elementwise work or a reduction."""
    return bool(node.users) and all(
        user.op == "call_function" and (kind(user) in ("pointwise", "reduction") or (kind(user) == "view" and _feeds_loops(user)))
        for user in node.users)
