"""In-place operators that fill a tensor with random numbers: which number an element gets.

Eager draws in the order of memory, a functional twin (``bernoulli.p``) in the order of dimensions. Where the two differ, the twin draws for a tensor
whose dimensions are in the order of memory, and the result is permuted back. Before ``m = empty(3, 4), stride (1, 3); m.bernoulli_(0.9)``; after
``m = permute(bernoulli(empty(4, 3), 0.9), (1, 0))``. Dropout after attention meets such masks: its operand is a transposed product.
Upstream draws other numbers than eager. Called by ``functionalize``.
"""
from __future__ import annotations

from typing import Any, Callable

from torch import fx
from torch._ops import OpOverload

from ..prims.meta import dims_by_stride
from .ops import aten

Emit = Callable[..., fx.Node]
"""``emit(target, args, kwargs)``: a new node with its fake value."""
FILLS: dict[OpOverload, OpOverload] = {
    aten.bernoulli_.float: aten.bernoulli.p, aten.cauchy_.default: aten.cauchy.default, aten.geometric_.default: aten.geometric.default,
    aten.log_normal_.default: aten.log_normal.default, aten.random_.default: aten.random.default, aten.random_.to: aten.random.to,
    aten.uniform_.default: aten.uniform.default}
"""Operators whose result does not depend on what was there before, and their functional twins. Not ``normal_`` and ``exponential_``: of a contiguous
tensor their kernels draw other numbers than of others, so that theirs must see the layout."""
BETWEEN = getattr(aten.random_, "from")
"""Integers from a lower to an upper bound; its twin is named by a word that Python's grammar keeps for itself, and ``randint`` draws the same."""


def to_draw(node: fx.Node, target: fx.Node) -> bool:
    """Whether ``drawn`` says what ``node`` writes."""
    bounded = node.target is BETWEEN and len(node.args) == 3 and node.args[2] is not None and node.kwargs.get("generator") is None
    return bounded or node.target in FILLS and not _in_order(target)


def _in_order(target: fx.Node) -> bool:
    """Whether memory holds the elements of ``target`` in the order of its dimensions."""
    val = target.meta["val"]
    order = dims_by_stride([s for n, s in zip(val.shape, val.stride()) if not (isinstance(n, int) and n == 1)])
    return order == sorted(order, reverse=True)


def drawn(emit: Emit, node: fx.Node, target: fx.Node) -> fx.Node:
    """What ``node`` writes into ``target``."""
    val = target.meta["val"]
    order = dims_by_stride(val.stride())[::-1]
    inverse = sorted(range(len(order)), key=lambda d: order[d])
    sizes, kind = [val.shape[d] for d in order], {"dtype": val.dtype, "device": val.device}
    if node.target is BETWEEN:
        values = emit(aten.randint.low, (*node.args[1:], sizes), kind)
    else:
        memory = emit(aten.empty.memory_format, (sizes,), kind)
        values = emit(FILLS[node.target], (memory, *node.args[1:], *defaults(node.target, node)), node.kwargs)
    return emit(aten.permute.default, (values, inverse))


def defaults(op: OpOverload, node: fx.Node) -> tuple[Any, ...]:
    """Positional arguments that ``node`` leaves out: a twin may not know them (``bernoulli_.float`` has a default for p, ``bernoulli.p`` has none)."""
    left = op._schema.arguments[len(node.args):]
    return tuple([a.default_value for a in left if not a.kwarg_only and a.name not in node.kwargs])
