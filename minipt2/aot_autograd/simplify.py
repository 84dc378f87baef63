"""Cheap clean-up of a functional graph: aliases that no value can tell, expressions computed twice, results nobody reads.

Upstream: ``torch._functorch.compile_utils.fx_graph_cse`` and ``torch.fx.Graph.eliminate_dead_code``.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import fx

from ..prims.kinds import drop_dead, pure
from ..shapes.known import key
from .ops import ALIAS_ONLY, aten, origin_of, storage_root


def output_node(graph: fx.Graph) -> fx.Node:
    return next(iter(reversed(graph.nodes)))


def drop_aliases(graph: fx.Graph) -> None:
    """``detach(x)`` and ``alias(x)`` become ``x``."""
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in ALIAS_ONLY:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)


def drop_unread_statistics(graph: fx.Graph) -> None:
    """In training, batch norm's backward is handed the running statistics and does not read them."""
    for node in graph.nodes:
        if node.target is aten.native_batch_norm_backward.default and node.args[7]:
            node.args = (*node.args[:3], None, None, *node.args[5:])


def narrow_masks(graph: fx.Graph) -> None:
    """Let a dropout mask drawn as 0.0 and 1.0 be kept as booleans: ``m = bernoulli(e, p)`` becomes ``(m != 0).to(float)``."""
    for node in list(graph.nodes):
        if node.target is aten.bernoulli.p and node.meta["val"].dtype.is_floating_point:
            with graph.inserting_before(node.next):
                mask = graph.call_function(aten.ne.Scalar, (node, 0))
                again = graph.call_function(aten._to_copy.default, (mask,), {"dtype": node.meta["val"].dtype})
            node.replace_all_uses_with(again, delete_user_cb=lambda user, mask=mask: user is not mask)
            with torch.no_grad():
                mask.meta.update(val=node.meta["val"] != 0, stack=node.meta.get("stack", ()))  # in no checkpoint: it is to be saved
            again.meta.update(node.meta)


def _key(value: Any) -> Any:
    """A hashable stand-in for an argument; 1, 1.0 and True differ."""
    if isinstance(value, (tuple, list)):
        return (type(value) is tuple, *map(_key, value))
    if isinstance(value, dict):
        return tuple((k, _key(v)) for k, v in sorted(value.items()))
    if isinstance(value, slice):
        return ("slice", *map(_key, (value.start, value.stop, value.step)))
    return value if isinstance(value, fx.Node) else (type(value), repr(value) if isinstance(value, float) else key(value))


def share(graph: fx.Graph) -> None:
    """Compute equal expressions once. Storages that the graph returns stay apart: a caller may write into one of them."""
    returned: set[fx.Node] = set()
    for node in output_node(graph).all_input_nodes:
        returned.update((node, memory := storage_root(node)))
        while memory.target is aten._unsafe_view.default:  # no view to autograd, and the same storage
            returned.add(memory := storage_root(memory.args[0]))
    seen: dict[Any, fx.Node] = {}
    for node in list(graph.nodes):
        if node.op != "call_function" or not pure(node) or node in returned:
            continue
        first = seen.setdefault((node.target, _key(node.args), _key(node.kwargs)), node)
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)


def separate_outputs(graph: fx.Graph, updates: int = 0) -> None:
    """Give each tensor of the first output group storage of its own: no input, constant or other output shares it.

    The first ``updates`` outputs are copied into inputs when the graph has run: those are only kept out of inputs that are
    overwritten.
    """
    output = output_node(graph)
    outputs, *rest = output.args[0]
    taken: set[fx.Node] = set()
    separate = []
    for i, node in enumerate(outputs):
        root = storage_root(node)
        if i < updates:
            shared = root.meta.get("mutated")
        else:
            shared = root.op in ("placeholder", "get_attr") or root in taken
            taken.add(root)
        separate.append(_clone(graph, output, node) if shared else node)
    output.args = ((tuple(separate), *rest),)


def _clone(graph: fx.Graph, before: fx.Node, node: fx.Node) -> fx.Node:
    with graph.inserting_before(before):
        clone = graph.call_function(aten.clone.default, (node,))
    with torch.no_grad():
        clone.meta.update(origin_of(node.meta), val=node.meta["val"].detach().clone())
    return clone


def simplify(graph: fx.Graph, updates: int = 0) -> None:
    """All of the above, on a graph that returns ``(outputs, grads)``; see ``separate_outputs`` for ``updates``."""
    drop_aliases(graph)
    drop_unread_statistics(graph)
    narrow_masks(graph)
    separate_outputs(graph, updates)
    share(graph)
    drop_dead(graph)
