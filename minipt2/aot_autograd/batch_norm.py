"""Batch norm in its one native form, whatever library eager would have called.

cuDNN's and MIOpen's operators keep an opaque buffer for their backward; no decomposition could read it. Before
``cudnn_batch_norm`` and ``cudnn_batch_norm_backward``; after ``native_batch_norm`` and ``native_batch_norm_backward``.
Upstream: ``torch._decomp.decompositions.cudnn_batch_norm``.
"""
from __future__ import annotations

from torch import fx

from .ops import aten

_FORWARD = (aten.cudnn_batch_norm.default, aten.miopen_batch_norm.default)
_BACKWARD = (aten.cudnn_batch_norm_backward.default, aten.miopen_batch_norm_backward.default)


def use_native_batch_norm(graph: fx.Graph) -> None:
    """Rewrite vendor batch norms of a recorded graph in place; results keep their order, the opaque one loses its readers."""
    for node in graph.nodes:
        if node.target in _FORWARD:
            node.target = aten.native_batch_norm.default
            node.meta["val"] = tuple(node.meta["val"][:3])
        elif node.target in _BACKWARD:
            x, grad, *statistics, epsilon = node.args[:8]
            node.target = aten.native_batch_norm_backward.default
            node.args = (grad, x, *statistics, True, epsilon, [True, True, True])
