"""Channels-last memory for convolutions, inside the graph.

Before: every image lies row-major (NCHW). After: convolutions that run faster so read and write channels-last (NHWC); elementwise work, pooling
and concatenation between them follow; one copy where an image enters, one where it leaves the graph. Outputs keep eager's strides.

Runs on a whole joint graph, before it is cut into forward and backward: both must agree about the tensors saved between them.

Measured, one thread, oneDNN 3.12 on AVX2, time in NCHW over time in NHWC:

    ============================  =================  ==========================
    convolution                   inference, packed  training, forward+backward
    ============================  =================  ==========================
    depthwise                     1.5 - 2.5          1.6 - 1.9
    1x1                           0.9 - 1.4          1.0 - 1.4
    3x3, 64 to 256 channels       1.1 - 1.5          0.95 - 1.03
    3x3, 512 channels             1.9                0.90 (weights reordered at each call)
    3 input channels, 3x3         1.3                1.26
    3 input channels, 7x7, 16x16  0.7, 0.9           0.95
    16x16 as a packed product     1.5
    3x3 max pool, stride 2        11                 6
    ============================  =================  ==========================

Max pooling is moved even where convolutions stay. On a GPU every convolution that runs on tensor cores is moved (bfloat16, float16, and
float32 where torch allows TF32): they read channels-last, and cuDNN would transpose at each call.

Upstream: ``torch._inductor.graph.GraphLowering.decide_layout_opt``.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from ...config import config
from ...fake import FakeMode
from ...prims import Prim, TensorMeta, kind
from ...prims.kinds import drop_dead
from ...prims.meta import channels_last_strides, contiguous_strides, is_channels_last, same_layout
from ..precision import convolutions_in_tf32
from .graphs import infer, is_prim, meta_of, numel, output_node, plain_sizes, prim, same_sizes, shape_of

MAX_POOL = torch.ops.aten.max_pool2d_with_indices.default


def move_convolutions(gm: fx.GraphModule) -> fx.GraphModule:
    """Move ``gm``'s convolutions to channels-last where that wins, in place; ``meta["val"]`` carries the new strides on."""
    if not config.channels_last:
        return gm
    graph = gm.graph
    convolutions = [n for n in graph.nodes if is_prim(n, "convolution")]
    training = any(is_prim(n, "convolution_backward") for n in graph.nodes)
    chosen = {n for n in convolutions if _fits(n) and (not _is_stem(n) or not training and _takes_patches(n))}
    if training and not any(map(_on_gpu, chosen)) and not _training_wins(convolutions):
        chosen = set()
    before = {n: n.meta.get("val") for n in output_node(graph).all_input_nodes}
    copies: dict[fx.Node, fx.Node] = {}
    for node in list(graph.nodes):
        if node in chosen:
            frozen_weight = node.args[1].meta.get("static") and config.onednn and not training
            _want_channels_last(node, [0] if frozen_weight else [0, 1], copies)
        elif is_prim(node, "convolution_backward") and node.args[1] in set(copies.values()):
            _want_channels_last(node, [0, 2], copies)
        elif node.target is MAX_POOL and len(shape_of(node.args[0])) == 4 and not _on_gpu(node.args[0]):
            _want_channels_last(node, [0], copies, alone=not chosen)
    if copies:
        _propagate(graph, set(copies.values()))
        _restore_outputs(graph, before)
    return gm


def _fits(conv: fx.Node) -> bool:
    """4-d, on a CPU or on tensor cores. Transposed ones stay: oneDNN reorders them anyway."""
    x, val = conv.args[0].meta["val"], conv.meta["val"]
    return len(val.shape) == 4 and not conv.args[6] and 0 not in tuple(x.shape) and (val.device.type == "cpu" or _on_tensor_cores(conv))


def _on_gpu(node: fx.Node) -> bool:
    return node.meta["val"].device.type == "cuda"


def _on_tensor_cores(conv: fx.Node) -> bool:
    dtype = conv.meta["val"].dtype
    return _on_gpu(conv) and (dtype.itemsize == 2 or dtype == torch.float32 and convolutions_in_tf32())


def _is_stem(conv: fx.Node) -> bool:
    """Few channels under a large window: NCHW is faster there on a CPU."""
    weight = shape_of(conv.args[1])
    return weight[1] <= 4 and conv.args[8] == 1 and weight[2] >= 5 and not _on_gpu(conv)


def _takes_patches(conv: fx.Node) -> bool:
    """A stem whose rows of taps lie side by side in channels-last memory, and never outside: a fast product with packed weights."""
    return bool(config.freeze and config.packed_products and conv.args[1].meta.get("static") and conv.args[4][-1] == 0 and conv.args[5][-1] == 1)


def _training_wins(convolutions: list[fx.Node]) -> bool:
    """Weighs what each convolution gains or loses, by the table above, with its estimated time."""
    gain = 0.0
    for conv in convolutions:
        if not _fits(conv):
            continue
        weight, out = shape_of(conv.args[1]), numel(conv)
        work = out * weight[1] * weight[2] * weight[3]
        if weight[1] == 1 and conv.args[8] > 1:
            gain += 0.7 * 20 * out  # bound by memory: about 20 multiplications' time an element
        elif weight[2] == weight[3] == 1:
            gain += 0.1 * (work + 16 * out)
        else:
            gain -= (0.1 if weight[1] >= 512 else 0.02) * work
            gain -= 90 * numel(conv.args[1])  # the weight is reordered, and its gradient back
    return gain > 0


def _want_channels_last(node: fx.Node, positions: list[int], copies: dict[fx.Node, fx.Node], alone: bool = False) -> None:
    """Let ``node``, and all elementwise work and convolutions beside it, read channels-last copies of its operands. Propagation drops copies of
    what turns out to lie so anyway; others become the way their only source is stored. ``alone``: nobody else, and its first result comes back."""
    graph = node.graph
    for i in positions:
        x = node.args[i]
        if x not in copies and x not in copies.values() and not is_channels_last(shape_of(x), tuple(x.meta["val"].stride())):
            at = x.next
            while at.op == "placeholder":
                at = at.next
            with graph.inserting_before(at):
                copies[x] = copy = prim(graph, "copy_strided", (x, channels_last_strides(shape_of(x))), node)
            if alone:
                _bring_back(node)
            else:
                x.replace_all_uses_with(copy, lambda u: u is not copy and u.op == "call_function" and kind(u) in ("pointwise", "contraction"))
        node.update_arg(i, copies.get(x, x))


def _bring_back(node: fx.Node) -> None:
    """Readers of ``node``'s first result get it row-major."""
    for result in [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]:
        with node.graph.inserting_after(result):
            back = prim(node.graph, "copy_strided", (result, contiguous_strides(shape_of(result))), node)
        result.replace_all_uses_with(back, lambda user: user is not back)


def _propagate(graph: fx.Graph, changed: set[fx.Node]) -> None:
    """Recompute strides downstream of the nodes in ``changed``; copies that have become useless go."""
    for node in graph.nodes:
        if node.op != "call_function" or not any(i in changed for i in node.all_input_nodes):
            continue
        if is_prim(node, "copy_strided") and node.args[0] in changed:
            source = node.args[0]
            if same_layout(shape_of(node), tuple(source.meta["val"].stride()), tuple(node.args[1])):
                node.replace_all_uses_with(source)
                continue
        val = _result(node)
        if _strides(val) != _strides(node.meta.get("val")):
            node.meta["val"] = val
            changed.add(node)
    drop_dead(graph)


def _strides(val: Any) -> Any:
    if isinstance(val, (tuple, list)):
        return [_strides(v) for v in val]
    return plain_sizes(val.stride()) if hasattr(val, "stride") else None


def _result(node: fx.Node) -> Any:
    if isinstance(node.target, Prim):
        return infer(node)
    if getattr(node.target, "__name__", "") == "getitem":
        return node.args[0].meta["val"][node.args[1]]
    return _run_fake(node)


def _run_fake(node: fx.Node) -> Any:
    """Strides of an eager fallback's results, from its meta kernel."""
    with FakeMode():
        def fake(n: fx.Node) -> Any:
            val = meta_of(n.meta["val"])
            if not isinstance(val, TensorMeta):
                return val
            return torch.empty_strided(val.shape, val.strides, dtype=val.dtype, device=val.device)
        result = node.target(*fx.map_arg(node.args, fake), **fx.map_arg(node.kwargs, fake))
        if isinstance(result, (tuple, list)):
            return tuple(meta_of(r) for r in result)
        return meta_of(result)


def _restore_outputs(graph: fx.Graph, before: dict[fx.Node, Any]) -> None:
    """Outputs lie in memory as they did before the pass (``before``: what their nodes' ``val`` were)."""
    output = output_node(graph)

    def restored(node: fx.Node) -> fx.Node:
        val = before.get(node)
        if not hasattr(val, "stride") or same_sizes(node.meta["val"].stride(), val.stride()):
            return node
        return prim(graph, "copy_strided", (node, tuple(val.stride())), node)

    with graph.inserting_before(output):
        output.args = (fx.map_arg(output.args[0], restored),)
