"""Inference: linear layers and convolutions become products with packed weights where those are faster here.

Before::

    y = addmm(bias, x, permute(weight, (1, 0)));  z = relu(y)

After::

    packed = pack(permute(weight, (1, 0)))                                       # frozen: computed once
    z = product(x, packed, bias, None, columns, None, "relu", ())

The same for a convolution of an image in channels-last memory, with the residual that is added to its result. Which is faster, this or MKL and oneDNN,
is measured for each shape, once for each machine (``autotune.cpu``). A packed weight is a second copy of the weight; ``freeze=False`` does without.
Upstream: ``torch._inductor.mkldnn_lowerings`` with ``CppPackedGemmTemplate``, and ``freezing`` that packs weights.
"""
from __future__ import annotations

import torch
from torch import fx

from ...prims import TensorMeta
from ...prims.kinds import drop_dead, pure
from ...prims.meta import channels_last_strides, contiguous_strides, is_channels_last, same_layout
from ..codegen.c_openmp_products import ACTIVATIONS, PANEL
from ..products import Problem, Window, pack, pack_filter, product, run
from .graphs import emit, is_prim, likely, plain_sizes, prim, same_sizes, shape_of, static_nodes, widened
from .onednn import find_activation, find_residual

FEWEST_ROWS = 16
"""Of fewer rows a product only reads its weight: vendors' kernels do that as fast."""
FEWEST_CHANNELS = 8
"""With fewer, the innermost loop is too short."""


def pack_products(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many products were packed. Weights must be placeholders with ``meta["static"]``."""
    from ..autotune.cpu import worth_packing  # only a process that compiles needs it
    static = static_nodes(gm.graph, pure)
    static -= widened(gm.graph, static)
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    done = 0
    for node in list(gm.graph.nodes):
        problem = _problem(node, static)
        if problem is not None and worth_packing(problem):
            _replace(gm.graph, node, problem, order)
            done += 1
    if done:
        drop_dead(gm.graph)
    return done


# ------------------------------------------------------------------ recognising
def _operands(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node | None]:
    """(x, weight, bias) of a product."""
    if is_prim(node, "mm"):
        return node.args[0], node.args[1], None
    if is_prim(node, "addmm"):
        return node.args[1], node.args[2], node.args[0]
    return node.args[0], node.args[1], node.args[2]


def _problem(node: fx.Node, static: set[fx.Node]) -> Problem | None:
    """The sizes of a product that may be packed; None for anything else."""
    if not is_prim(node, "mm", "addmm", "convolution"):
        return None
    x, weight, bias = _operands(node)
    val = node.meta["val"]
    frozen = weight in static and x not in static and (bias is None or bias in static and bias.meta["val"].stride() == (1,))
    if not frozen or val.dtype != torch.float32 or val.device.type != "cpu" or not all(isinstance(n, int) for n in shape_of(weight)) or 0 in shape_of(weight):
        return None
    return _convolution(node, x, weight) if is_prim(node, "convolution") else _linear(node, x, weight, bias)


def _linear(node: fx.Node, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> Problem | None:
    if is_prim(node, "addmm") and (node.args[3:] != (1, 1) or shape_of(bias) != shape_of(weight)[1:]):
        return None
    rows = likely(shape_of(x)[0])
    row_major = plain_sizes(x.meta["val"].stride())[-1] == 1 and plain_sizes(node.meta["val"].stride())[-1] == 1
    return Problem(rows, *shape_of(weight), None, None, bias is None) if rows >= FEWEST_ROWS and row_major else None


def _convolution(node: fx.Node, x: fx.Node, weight: fx.Node) -> Problem | None:
    """Batch and image may be of any size: C is told them at each call. What is raced is the likely size, which an image needs to have."""
    _, _, _, stride, padding, dilation, transposed, _, groups = node.args
    pairs = [(v[0], v[-1]) for v in (stride, padding, dilation)]
    columns, inside, *taps = shape_of(weight)
    channels, depthwise = inside * groups, inside == 1 and groups == columns > 1
    if transposed or not (groups == 1 or depthwise) or len(shape_of(node)) != 4 or not all(isinstance(n, int) for n in (shape_of(x)[1], *sum(pairs, ()))):
        return None
    if any(not isinstance(n, int) and n.node.hint is None for n in shape_of(x)[2:]):
        return None
    shape, out = tuple(map(likely, shape_of(x))), tuple(map(likely, shape_of(node)))
    if 0 in shape or 0 in out or not _dense(x) or not _dense(node) or out[0] * out[2] * out[3] < FEWEST_ROWS:
        return None
    window = Window(tuple(taps), *pairs, depthwise)
    if (channels if depthwise else run(window, channels)) < FEWEST_CHANNELS:
        return None
    return Problem(out[0] * out[2] * out[3], inside * taps[0] * taps[1], columns, shape, window)


def _dense(image: fx.Node) -> bool:
    """Whether pixels follow each other, each with its channels, and nothing between."""
    shape, strides = shape_of(image), tuple(image.meta["val"].stride())
    return is_channels_last(shape, strides) and same_layout(shape, strides, channels_last_strides(shape))


# ------------------------------------------------------------------ rewriting
def _replace(graph: fx.Graph, node: fx.Node, problem: Problem, order: dict[fx.Node, int]) -> None:
    x, weight, bias = _operands(node)
    other, value = (None, _seen(node)) if problem.window is None else find_residual(node, order)
    activation, root, scalars = find_activation(value, ACTIVATIONS)
    if activation is None:
        root, name, scalars = value if problem.window else node, "none", []
    else:
        name = activation.attr
    with graph.inserting_before(root if root is not node else node.next):
        panels = (-(-problem.columns // PANEL), problem.depth, PANEL)
        packed = TensorMeta(panels, torch.float32, node.meta["val"].device, contiguous_strides(panels))
        weight = emit(graph, pack if problem.window is None else pack_filter, (weight,), node, packed)
        window = None if problem.window is None else tuple(problem.window)
        new = emit(graph, product, (x, weight, bias, other, problem.columns, window, name, tuple(scalars)), node, node.meta["val"])
        if not same_sizes(shape_of(root), shape_of(node)):
            new = prim(graph, "reshape", (new, shape_of(root)), node)
    new.meta["stack"] = root.meta.get("stack", ())
    order[new] = order[root]
    root.replace_all_uses_with(new)


def _seen(node: fx.Node) -> fx.Node:
    """What a linear layer's readers see: its product of two dimensions with the leading ones back in place."""
    user = next(iter(node.users)) if len(node.users) == 1 else node
    return user if is_prim(user, "reshape") and same_sizes(shape_of(user)[-1:], shape_of(node)[-1:]) else node
