"""Sharded parameters: every rank keeps a part of each, gathers the whole where a layer needs it, and gets its part of the gradient back.

The gather is an ordinary operation of the captured graph, so the partitioner saves shards and gathers once more in the backward, and one
pass over each graph, ``gather_ahead``, decides how early the link starts. (``torch.distributed.fsdp.fully_shard`` modules compile too: their
hooks run between graphs, one unit after the other.)
Upstream: ``torch.distributed.fsdp`` and ``torch._inductor.fx_passes.bucketing``; Zhang et al., "SimpleFSDP" (2024).
"""
from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn
from torch.nn.utils import parametrize

from ..exercise import exercise
from ..prims import kind
from .sharded import Whole

GATHER, WAIT = "all_gather_into_tensor", "wait_tensor"


def shard(model: nn.Module, group: Any = None) -> nn.Module:
    """Keep this rank's part of each parameter of ``model`` only, in place; returns ``model``.

    group: of the default process group (None) or another one; every rank of it must call this. All start from the values of its first rank.
    Reading a parameter (``layer.weight``) gathers it, for training with gradients, averaged over the ranks, that end in
    ``model.parameters()``: flat parts of the same dtype, the last one padded with zeros. Make the optimiser afterwards.
    """
    import torch.distributed._functional_collectives  # noqa: F401  (the operators' meta kernels)

    group = group or dist.group.WORLD
    parts: dict[nn.Parameter, nn.Parameter] = {}
    for module in list(model.modules()):
        for name, whole in list(module.named_parameters(recurse=False)):
            if whole not in parts:
                parts[whole] = _part(whole, group)
            module._parameters[name] = parts[whole]
            parametrize.register_parametrization(module, name, Whole(whole.shape, group.size(), group.group_name), unsafe=True)
    return model


def _part(whole: nn.Parameter, group: Any) -> nn.Parameter:
    size, world = whole.numel(), group.size()
    flat = whole.new_zeros(-(-size // world) * world, requires_grad=False)
    flat[:size] = whole.detach().flatten()
    dist.broadcast(flat, dist.get_global_rank(group, 0), group)
    return nn.Parameter(flat.chunk(world)[group.rank()].clone(), whole.requires_grad)


def is_gather(node: fx.Node) -> bool:
    """Whether ``node`` starts to gather a parameter: it reads nothing but placeholders with ``meta["static"]``."""
    return _name(node) == GATHER and all(a.op == "placeholder" and a.meta.get("static") for a in node.all_input_nodes)


def chain(gather: fx.Node) -> list[fx.Node]:
    """The wait for ``gather`` and the views of what it brought, in the graph's order: none of them is work."""
    found, pending = {gather}, [gather]
    while pending:
        for user in pending.pop().users:
            if user not in found and (_name(user) == WAIT or kind(user) == "view"):
                found.add(user)
                pending.append(user)
    return [n for n in gather.graph.nodes if n in found and n is not gather]


def _name(node: fx.Node) -> str:
    return getattr(node.target, "_opname", "") if node.op == "call_function" else ""


@exercise("9.3")
def gather_ahead(gm: fx.GraphModule, depth: int) -> fx.GraphModule:
    """Start each gather ``depth`` layers before its parameter is used, and wait for it only there. Changes and returns ``gm``.

    A layer is a node that reads gathered parameters first; its gathers are those of ``is_gather`` whose ``chain`` it is the first to use.
    Chains move to just before their layer; gathers to just before the chains of the layer that stands ``depth`` layers earlier, or to the
    graph's beginning where there is none. So at most ``depth + 1`` layers' parameters are there at a time, and what is dead is freed.
    """
    # >>> 9.3
    place = {node: k for k, node in enumerate(gm.graph.nodes)}
    layers: dict[fx.Node, list[tuple[fx.Node, list[fx.Node]]]] = {}
    for gather in filter(is_gather, place):
        links = chain(gather)
        uses = {user for link in (gather, *links) for user in link.users} - {*links}
        if links and uses:
            layers.setdefault(min(uses, key=place.__getitem__), []).append((gather, links))
    order = sorted(layers, key=place.__getitem__)
    beginning = next(node for node in place if node.op not in ("placeholder", "get_attr"))
    starts = [beginning] * depth
    for layer in order:
        links = [link for _, links in layers[layer] for link in links]
        for link in links:
            layer.prepend(link)
        starts.append(links[0])
    for layer, start in zip(order, starts):
        for gather, _ in layers[layer]:
            start.prepend(gather)
    return gm
    # <<< 9.3
