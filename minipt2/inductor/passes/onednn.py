"""Inference: convolution, and what is done to its result, become one oneDNN operator with a packed weight.

Before::

    y = convolution(x, weight, bias, ...);  z = gelu(y)

After::

    packed = mkldnn._reorder_convolution_weight(weight, ...)                    # frozen: computed once
    z = mkldnn._convolution_pointwise(x, packed, bias, ..., "gelu", [], "none")

A sum with a residual becomes ``_convolution_pointwise.binary(x, other, packed, ..., "add")``. Of a NaN, oneDNN's ReLU makes 0, its hardtanh the lower
bound, its hardsigmoid 1: these three stay loops, and so does the sum before them.

Runs after ``products``, on the convolutions that are not faster there. Linear layers that stay, stay with MKL's plain matrix product. Measured
on this kind of machine (one thread, fp32), time of ``addmm.out`` over time of oneDNN's linear with packed weight: 0.74 - 0.97 for 32 to 2048
rows, 0.27 for one row; MKL's own packed linear 0.93 - 1.01; three products that share an input merged into one: 1.00.
Upstream: ``torch._inductor.fx_passes.mkldnn_fusion``.
"""
from __future__ import annotations

from functools import lru_cache
from typing import Any, Container, NamedTuple, Sequence

import torch
from torch import fx

from ...prims import Prim, TensorMeta, kind
from ...prims.kinds import drop_dead, pure
from ...prims.meta import is_channels_last, same_layout
from .graphs import emit, is_prim, likely, shape_of, static_nodes, widened

X = object()
"""Stands for the convolution's result in a pattern."""
_GATE = ("minimum", ("maximum", ("add", X, 3.0), 0.0), 6.0)


class Activation(NamedTuple):
    """What oneDNN calls it, and the prims it is made of; ``scalars`` names numbers of the pattern that become its parameters."""

    attr: str
    pattern: tuple
    scalars: tuple[str, ...] = ()
    algorithm: str = ""


ACTIVATIONS = (  # larger patterns first
    Activation("hardswish", ("div", ("mul", X, _GATE), 6.0)),
    Activation("hardsigmoid", ("div", _GATE, 6.0)),
    Activation("gelu", ("mul", ("mul", X, 0.5), ("add", ("erf", ("mul", X, 0.5 ** 0.5)), 1.0)), algorithm="none"),
    Activation("swish", ("div", X, ("add", ("exp", ("neg", X)), 1.0))),
    Activation("swish", ("mul", X, ("sigmoid", X))),
    Activation("leaky_relu", ("where", ("gt", X, 0), X, ("mul", X, "slope")), scalars=("slope",)),
    Activation("hardtanh", ("minimum", ("maximum", X, "low"), "high"), scalars=("low", "high")),
    Activation("relu", ("relu", X)),
    Activation("sigmoid", ("sigmoid", X)),
    Activation("tanh", ("tanh", X)),
)
FUSED = ("hardswish", "gelu", "swish", "leaky_relu", "sigmoid", "tanh")
"""Those of which oneDNN makes NaN where eager does."""
_COMMUTES = ("add", "mul", "minimum", "maximum")


@lru_cache(None)
def available() -> bool:
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_convolution_pointwise")


def _dtype_supported(dtype: torch.dtype) -> bool:
    return dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def fuse_convolutions(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns the number of convolutions replaced: those in channels-last whose weight is a parameter."""
    if not available():
        return 0
    static = static_nodes(gm.graph, pure)
    static -= widened(gm.graph, static)
    order = {node: i for i, node in enumerate(gm.graph.nodes)}
    done = 0
    for conv in list(gm.graph.nodes):
        if is_prim(conv, "convolution") and _fits(conv, static):
            _replace(gm.graph, conv, order)
            done += 1
    if done:
        drop_dead(gm.graph)
    return done


def _fits(conv: fx.Node, static: set[fx.Node]) -> bool:
    x, weight, bias, *_, transposed, _, _ = conv.args
    val, source = conv.meta["val"], x.meta["val"]
    return (weight in static and (bias is None or bias in static) and not transposed and len(val.shape) == 4 and 0 not in shape_of(x)
            and source.device.type == "cpu" and _dtype_supported(val.dtype) and is_channels_last(shape_of(x), tuple(source.stride())))


def _replace(graph: fx.Graph, conv: fx.Node, order: dict[fx.Node, int]) -> None:
    x, weight, bias, stride, padding, dilation, _, _, groups = conv.args
    stride, padding, dilation = ([v[0], v[-1]] for v in (stride, padding, dilation))
    other, value = find_residual(conv, order)
    if other is not None and all(isinstance(user.target, Prim) and kind(user) == "pointwise" for user in value.users):
        other, value = None, conv  # a loop follows that does the sum in the same pass
    activation, root, scalars = find_activation(value, FUSED) if other is None else (None, value, [])
    with graph.inserting_before(root if root is not conv else conv.next):
        if all(isinstance(n, int) for n in (*shape_of(x)[2:], *stride, *padding, *dilation, groups)):
            # else oneDNN would put packed weights into another order at each call
            weight = emit(graph, torch.ops.mkldnn._reorder_convolution_weight.default,
                          (weight, padding, stride, dilation, groups, list(map(likely, shape_of(x)))), conv, TensorMeta.of(weight.meta["val"]))
        geometry = (weight, bias, padding, stride, dilation, groups)
        if other is None:
            target: Any = torch.ops.mkldnn._convolution_pointwise.default
            args = (x, *geometry, activation.attr if activation else "none", scalars, activation.algorithm if activation else "")
        else:
            target = torch.ops.mkldnn._convolution_pointwise.binary
            args = (x, other, *geometry, "add", None, None, [], None)
        new = emit(graph, target, args, conv, conv.meta["val"])
    new.meta["stack"] = root.meta.get("stack", ())
    order[new] = order[root]
    root.replace_all_uses_with(new)


def find_residual(conv: fx.Node, order: dict[fx.Node, int]) -> tuple[fx.Node | None, fx.Node]:
    """(other, sum) when the only reader of ``conv`` adds a tensor of its shape and layout to it."""
    if len(conv.users) != 1:
        return None, conv
    add = next(iter(conv.users))
    if not is_prim(add, "add") or not all(isinstance(a, fx.Node) for a in add.args) or add.args[0] is add.args[1]:
        return None, conv
    other = add.args[1] if add.args[0] is conv else add.args[0]
    a, b = conv.meta["val"], other.meta["val"]
    alike = a.dtype == b.dtype and same_layout(shape_of(conv), tuple(a.stride()), tuple(b.stride())) and not is_prim(other, "broadcast_in_dim")
    # a residual that is itself a convolution's sole addend: the later of the two takes the sum
    if alike and is_prim(other, "convolution") and len(other.users) == 1 and order[other] > order[conv]:
        return None, conv
    return (other, add) if alike else (None, conv)


def find_activation(value: fx.Node, names: Container[str]) -> tuple[Activation | None, fx.Node, list[float]]:
    """The largest activation out of ``names`` whose inputs are ``value`` alone and whose inner results nobody else reads."""
    region = _region(value)
    for activation in ACTIVATIONS:
        if activation.attr not in names:
            continue
        for root in region:
            found: dict[str, float] = {}
            inner: set[fx.Node] = set()
            if _match(activation.pattern, root, value, found, inner) and _closed(value, root, inner):
                return activation, root, [found[s] for s in activation.scalars]
    return None, value, []


def _region(value: fx.Node, depth: int = 5) -> list[fx.Node]:
    """Prims downstream of ``value``, a few steps deep."""
    region: dict[fx.Node, None] = {}
    front = [value]
    for _ in range(depth):
        front = [u for n in front for u in n.users if u.op == "call_function" and u not in region]
        region.update(dict.fromkeys(front))
        if len(region) > 12:
            break
    return list(region)


def _match(pattern: Any, node: Any, value: fx.Node, found: dict[str, float], inner: set[fx.Node]) -> bool:
    if pattern is X:
        return node is value
    if isinstance(pattern, str):
        found[pattern] = node
        return isinstance(node, (int, float)) and not isinstance(node, bool)
    if not isinstance(pattern, tuple):
        return isinstance(node, (int, float)) and abs(node - pattern) < 1e-9
    name, *operands = pattern
    if not is_prim(node, name) or node is value or len(node.args) != len(operands):
        return False
    orders: list[Sequence[Any]] = [node.args]
    if name in _COMMUTES:
        orders.append(node.args[::-1])
    if any(all(_match(p, a, value, found, inner) for p, a in zip(operands, args)) for args in orders):
        inner.add(node)
        return True
    return False


def _closed(value: fx.Node, root: fx.Node, inner: set[fx.Node]) -> bool:
    return all(user in inner for n in inner - {root} | {value} for user in n.users)
