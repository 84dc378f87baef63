"""Data-parallel training, compiled: the graph is cut where a bucket of gradients is complete, so that its all-reduce overlaps with the rest.

A compiled backward is one call: nothing inside it can be sent before it returns. So what is captured inside
``DistributedDataParallel.forward`` is compiled in pieces, each with a backward of its own, and autograd, which runs one after the other,
hands every piece's gradients to DDP's reducer before the next piece begins.
Upstream: ``torch._dynamo.backends.distributed`` (``DDPOptimizer``).
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

import torch
from torch import fx

from ..aot_autograd import in_pieces
from ..exercise import exercise
from .buckets import assign

Compiled = Callable[..., Sequence[Any]]
Backend = Callable[..., Compiled]


@exercise("9.2")
def ready_order(gm: fx.GraphModule) -> list[fx.Node]:
    """The trainable parameters of a captured graph, in the order in which their gradients are complete.

    Parameters are placeholders with ``meta["static"]`` whose ``meta["val"]`` requires grad. The backward runs the graph from its end, and a
    gradient is complete when the backward of the parameter's *first* use has run; a parameter that nothing uses gets none.
    """
    # >>> 9.2
    place = {node: k for k, node in enumerate(gm.graph.nodes)}
    trainable = [n for n in place if n.op == "placeholder" and n.meta.get("static") and n.users
                 and isinstance(n.meta["val"], torch.Tensor) and n.meta["val"].requires_grad]
    return sorted(trainable, key=lambda n: min(place[user] for user in n.users), reverse=True)
    # <<< 9.2


@exercise("9.2")
def cuts(gm: fx.GraphModule, buckets: Sequence[Sequence[fx.Node]]) -> list[fx.Node]:
    """The nodes before which ``gm`` is cut, in the graph's order: each bucket is complete when the backward of one piece ends.

    buckets: parameters of ``gm`` in the order in which their gradients are complete. A bucket's piece begins with the first use of any of its
    parameters. What stands before the first piece needs no cut: it belongs to the bucket that is complete last.
    """
    # >>> 9.2
    place = {node: k for k, node in enumerate(gm.graph.nodes)}
    firsts = {min((user for p in bucket for user in p.users), key=place.__getitem__) for bucket in buckets}
    return sorted(firsts, key=place.__getitem__)[1:]
    # <<< 9.2


def in_buckets(backend: Backend) -> Backend:
    """``backend``, which inside a ``DistributedDataParallel`` module is given the captured graph in pieces, one for each bucket."""
    @functools.wraps(backend)
    def compile(gm: fx.GraphModule, example_inputs: list) -> Compiled:
        module = active_module() if torch.is_grad_enabled() else None
        where = bucket_cuts(gm, module.bucket_bytes_cap) if module is not None else []
        return in_pieces(gm, example_inputs, backend, where) if where else backend(gm, example_inputs)
    return compile


def active_module() -> Any:
    """The ``DistributedDataParallel`` module whose ``forward`` runs now, or None."""
    parallel = getattr(torch.nn.parallel, "DistributedDataParallel", None)
    return getattr(parallel, "_active_ddp_module", None)


def bucket_cuts(gm: fx.GraphModule, cap: int) -> list[fx.Node]:
    """Where ``gm`` is cut for buckets of at most ``cap`` bytes."""
    order = ready_order(gm)
    node_of = {id(node.meta["val"]): node for node in order}
    buckets = assign([node.meta["val"] for node in order], cap)
    return cuts(gm, [[node_of[id(p)] for p in bucket] for bucket in buckets])
