"""Rows of matrices that a GPU multiplies begin at multiples of 16 bytes.

Before (a language model's last layer: 50,257 words)::

    logits = mm(x, permute(w))                  # (2048, 768) @ (768, 50257), result's rows 50257 elements apart
    grad_x = mm(convert(grad, bf16), w)         # reads rows that lie so

After: the result, and what ``convert`` computes, lie in rows of 50264; who reads them reads 50257 of each. A library's kernels for rows that begin
anywhere load element by element: on an H200 in bfloat16 the first takes 1.68 ms, with such rows 0.22.

What is computed in the graph is stored so from the start, at no cost. A graph input, and a result that leaves the graph with eager's strides,
is copied where that takes less than the product gains. Sizes that vary, and 32-bit numbers, stay as they are.
Upstream: ``torch._inductor.fx_passes.pad_mm`` and its option ``comprehensive_padding``.
"""
from __future__ import annotations

from math import prod

from torch import fx

from ...prims import kind
from .graphs import is_prim, meta_of, prim, shape_of
from .operands import PRODUCTS

ALIGNED, ANYHOW = 6.5e14, 0.9e14
"""Operations a second of a product on tensor cores (H200, bfloat16), by how its rows lie."""
BANDWIDTH, LAUNCH = 4e12, 5e-6
"""Bytes a second of a copy; seconds that a kernel more takes."""
VIEWS = ("permute", "reshape")


def align_products(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many matrices lie in aligned rows now."""
    return sum(_align(node) for node in list(gm.graph.nodes) if is_prim(node, *PRODUCTS) and _on_tensor_cores(node))


def _on_tensor_cores(node: fx.Node) -> bool:
    val = node.meta["val"]
    return val.device.type == "cuda" and val.dtype.itemsize == 2 and all(isinstance(n, int) for x in _matrices(node) for n in shape_of(x))


def _matrices(product: fx.Node) -> list[fx.Node]:
    """The two operands, then the result."""
    first = 1 if product.target.name in ("addmm", "baddbmm") else 0
    return [*product.args[first:first + 2], product]


def _align(product: fx.Node) -> int:
    *operands, result = _matrices(product)
    saved = 2 * prod(shape_of(result)) * shape_of(operands[0])[-1] * (1 / ANYHOW - 1 / ALIGNED)
    todo = [x for x in dict.fromkeys(operands) if _misaligned(x)]
    widen = "layout" not in product.meta and _misaligned(result)
    price = sum(map(_price, todo)) + (_copy_time(result) if widen and _leaves(result) else 0)
    if not (todo or widen) or saved < price + LAUNCH:
        return 0
    for x in todo:
        _align_operand(product, x)
    if widen:
        product.meta["layout"] = _padded(result)
    return len(todo) + widen


def _unit(node: fx.Node) -> int:
    return 16 // node.meta["val"].dtype.itemsize


def _misaligned(node: fx.Node) -> bool:
    """Whether rows, or columns if those lie one after the other, begin anywhere. What has neither is copied by the library anyway."""
    sizes, strides = shape_of(node), _source_strides(node)
    inner = [d for d in (-1, -2) if strides[d] == 1]
    if 0 in sizes or not inner:
        return False
    return any(strides[d] % _unit(node) for d in range(-len(sizes), 0) if d != inner[0] and sizes[d] > 1)


def _source_strides(node: fx.Node) -> tuple[int, ...]:
    """Strides of what a product reads or makes, those that this pass gave it included."""
    if is_prim(node, "permute"):
        strides = _source_strides(node.args[0])
        return tuple([strides[d] for d in node.args[1]])
    if is_prim(node, "reshape") and _keeps_rows(node):
        inner = _source_strides(node.args[0])
        if inner[-1] == 1 and inner == _rows(shape_of(node.args[0]), inner[-2]):
            return _rows(shape_of(node), inner[-2])
    return tuple(node.meta.get("layout") or node.meta["val"].stride())


def _keeps_rows(reshape: fx.Node) -> bool:
    sizes, inner = shape_of(reshape), shape_of(reshape.args[0])
    return min(len(sizes), len(inner)) >= 2 and sizes[-1] == inner[-1]


def _rows(sizes: tuple[int, ...], row: int) -> tuple[int, ...]:
    """Strides of row-major memory with ``row`` elements from one row to the next."""
    strides = [1, row]
    for n in reversed(sizes[1:-1]):
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides))


def _padded(node: fx.Node) -> tuple[int, ...]:
    """Row-major strides with rows that begin at multiples of 16 bytes."""
    unit, sizes = _unit(node), shape_of(node)
    return _rows(sizes, -(-sizes[-1] // unit) * unit)


def _origin(x: fx.Node) -> fx.Node:
    """What an operand is a view of: rows stay rows, or become columns."""
    while is_prim(x, "permute") or is_prim(x, "reshape") and _keeps_rows(x):
        x = x.args[0]
    return x


def _computed(node: fx.Node) -> bool:
    """Whether the graph itself stores ``node``, row-major, and nobody outside sees how."""
    val = node.meta["val"]
    return kind(node) == "pointwise" and len(val.shape) >= 2 and tuple(val.stride()) == _rows(tuple(val.shape), val.shape[-1]) and not _leaves(node)


def _price(x: fx.Node) -> float:
    """Seconds that it takes to have an operand in aligned rows."""
    origin = _origin(x)
    return 0 if _computed(origin) or origin.meta.get("static") else _copy_time(x)


def _copy_time(x: fx.Node) -> float:
    val = meta_of(x.meta["val"])
    return 2 * prod(val.shape) * val.dtype.itemsize / BANDWIDTH + LAUNCH


def _leaves(node: fx.Node) -> bool:
    """Whether a result, or a view of it, leaves the graph."""
    return any(u.op == "output" or is_prim(u, *VIEWS) and _leaves(u) for u in node.users)


def _align_operand(product: fx.Node, x: fx.Node) -> None:
    """Let ``product`` read ``x`` in aligned rows: as all readers of what is computed here do, or from a copy."""
    origin = _origin(x)
    if _computed(origin):
        _store_padded(origin)
        return
    sizes = shape_of(x)
    with product.graph.inserting_before(product):
        if _source_strides(x)[-1] == 1:
            copy = prim(product.graph, "copy_strided", (x, _padded(x)), product)
        else:
            swap = (*range(len(sizes) - 2), len(sizes) - 1, len(sizes) - 2)
            turned = prim(product.graph, "permute", (x, swap), product)
            copy = prim(product.graph, "permute", (prim(product.graph, "copy_strided", (turned, _padded(turned)), product), swap), product)
    product.replace_input_with(x, copy)


def _store_padded(node: fx.Node) -> None:
    """All readers of ``node`` read it in aligned rows."""
    with node.graph.inserting_after(node):
        copy = prim(node.graph, "copy_strided", (node, _padded(node)), node)
    node.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
