"""Matrices that a GPU multiplies have rows of whole 16 bytes.

Before (a language model's last layer: 50,257 words)::

    logits = mm(x, permute(w, (1, 0)))                     # (2048, 768) @ (768, 50257)

After::

    wide = mm(x, permute(pad(w, (7, 0)), (1, 0)))          # (2048, 768) @ (768, 50264)
    logits = slice(wide)                                   # 50257 columns of it

A library's kernels for rows of another length load element by element: on an H200 in bfloat16 this product takes 1.68 ms, padded 0.22 (rows that
only begin at such distances do not help: it is the length that the library chooses a kernel by). What the graph computes is stored padded from
the start; an input is copied, and so is a result that leaves the graph in eager's strides, where that takes less than the product gains.
Sizes that vary, and 32-bit numbers, stay as they are. Upstream: ``torch._inductor.fx_passes.pad_mm``.
"""
from __future__ import annotations

from math import prod

from torch import fx

from ...prims import kind
from .graphs import is_prim, prim, shape_of
from .operands import PRODUCTS

ALIGNED, ANYHOW = 6.5e14, 0.9e14
"""Operations a second of a product on tensor cores (H200, bfloat16), by the length of its rows."""
BANDWIDTH, LAUNCH = 4e12, 5e-6
"""Bytes a second of a copy; seconds that a kernel more takes."""
Padding = tuple[int, ...]
"""Elements to be added at the end of each dimension."""


def align_products(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many products were padded."""
    padded: dict[tuple[fx.Node, Padding], fx.Node] = {}
    return sum(_align(node, padded) for node in list(gm.graph.nodes) if is_prim(node, *PRODUCTS) and _on_tensor_cores(node))


def _on_tensor_cores(product: fx.Node) -> bool:
    val = product.meta["val"]
    static = all(isinstance(n, int) for x in (product, *_operands(product)) for n in shape_of(x))
    return val.device.type == "cuda" and val.dtype.itemsize == 2 and static and 0 not in shape_of(product)


def _operands(product: fx.Node) -> tuple[fx.Node, fx.Node]:
    a, b = product.args[1:3] if product.target.name in ("addmm", "baddbmm") else product.args
    return a, b


def _align(product: fx.Node, padded: dict[tuple[fx.Node, Padding], fx.Node]) -> bool:
    a, b = _operands(product)
    rows, inner, columns = _extra(product, a, b)
    batch = (0,) * (len(shape_of(product)) - 2)
    wanted = {(a, 0): (*batch, rows, inner), (b, 1): (*batch, inner, columns)}
    saved = 2 * prod(shape_of(product)) * shape_of(a)[-1] * (1 / ANYHOW - 1 / ALIGNED)
    price = LAUNCH + sum(_price(x) for (x, _), more in wanted.items() if any(more)) + (_copy_time(product) if _leaves(product) else 0)
    if not any((rows, inner, columns)) or saved < price:
        return False
    a, b = [_padded(x, more, product, padded) for (x, _), more in wanted.items()]
    _replace(product, a, b, (*batch, rows, columns))
    return True


def _extra(product: fx.Node, a: fx.Node, b: fx.Node) -> tuple[int, int, int]:
    """What rows, inner size and columns lack to multiples of 16 bytes, where a matrix has them one after the other in memory."""
    whole = 16 // product.meta["val"].dtype.itemsize
    (rows, inner), columns = shape_of(a)[-2:], shape_of(b)[-1]
    by_rows, by_columns = [not is_prim(x, "permute") or x.meta["val"].stride()[-1] == 1 for x in (a, b)]
    return (0 if by_rows else -rows % whole, -inner % whole if by_rows or not by_columns else 0, -columns % whole)


def _price(x: fx.Node) -> float:
    """Seconds that it takes to have an operand padded: none for what is stored for this product anyway."""
    source = x.args[0] if is_prim(x, "permute") else x
    while is_prim(source, "reshape"):
        source = source.args[0]
    return 0 if kind(source) == "pointwise" or source.meta.get("static") else _copy_time(x)


def _copy_time(x: fx.Node) -> float:
    return 2 * prod(shape_of(x)) * x.meta["val"].dtype.itemsize / BANDWIDTH + LAUNCH


def _leaves(node: fx.Node) -> bool:
    """Whether a result, or a view of it, leaves the graph."""
    return any(u.op == "output" or is_prim(u, "permute", "reshape") and _leaves(u) for u in node.users)


def _padded(x: fx.Node, more: Padding, product: fx.Node, padded: dict[tuple[fx.Node, Padding], fx.Node]) -> fx.Node:
    """``x`` with zeros behind it; a transposed one stays the transposed view of what is padded as it lies."""
    if not any(more):
        return x
    if is_prim(x, "permute"):
        order = x.args[1]
        lies = [0] * len(order)
        for d, source in enumerate(order):
            lies[source] = more[d]
        inner = _padded(x.args[0], tuple(lies), product, padded)
        with product.graph.inserting_before(product):
            return prim(product.graph, "permute", (inner, order), product)
    if (x, more) not in padded:
        with product.graph.inserting_before(product):
            padded[x, more] = prim(product.graph, "pad", (x, (0,) * len(more), more, 0), product)
    return padded[x, more]


def _replace(product: fx.Node, a: fx.Node, b: fx.Node, more: Padding) -> None:
    """The product of padded operands, and the part of it that is the product."""
    graph, sizes = product.graph, shape_of(product)
    with graph.inserting_before(product):
        if product.target.name in ("addmm", "baddbmm"):
            bias = _padded_bias(product, more)
            wide = prim(graph, product.target.name, (bias, a, b, *product.args[3:]), product)
        else:
            wide = prim(graph, product.target.name, (a, b), product)
        part = prim(graph, "slice", (wide, (0,) * len(sizes), sizes, (1,) * len(sizes)), product) if any(more) else wide
    part.meta["val"] = product.meta["val"]  # where it leaves the graph, it is to have these strides
    product.replace_all_uses_with(part)
    graph.erase_node(product)


def _padded_bias(product: fx.Node, more: Padding) -> fx.Node:
    """The first operand of an addmm, which is broadcast to the result's sizes."""
    bias, sizes = product.args[0], shape_of(product)
    own = shape_of(bias)
    here = tuple([m if n == size else 0 for n, size, m in zip(own, sizes[len(sizes) - len(own):], more[len(more) - len(own):])])
    return prim(product.graph, "pad", (bias, (0,) * len(own), here, 0), product) if any(here) else bias
