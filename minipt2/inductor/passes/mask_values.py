"""What can be told of a mask's values before it is computed: all of them, or between which numbers they lie.

``constant(node)`` computes what depends on no input (``triu(full((t, t), -inf), 1)``); ``rows(node)`` says what a softmax must know of the
rows of an additive mask: whether one may be -inf all along, and how large its largest element is at least; ``alike(node)`` whether its rows are
the same for all queries (padding, spread over them). Asked by ``attention_mask``.
Upstream has no counterpart: there a mask goes to the operator as it is, and rows that are masked whole get other gradients than in eager.
"""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ...shapes.known import SYMBOLIC, same

LOST = -1e12
"""A number next to which scores vanish: float32 has steps of 65536 there. Rows of nothing above it give every key the same weight."""
NEAR = 16.0
"""Largest elements of a row up to which the logarithm of its sum of exponentials is as exact as without a mask."""
MOST_ELEMENTS = 1 << 24
_LEARNT = 1e6
"""What a parameter that learns is taken to stay within: an infinite one would have made its own gradient NaN."""

_VIEWS = frozenset("expand expand_as view view_as reshape unsqueeze squeeze permute transpose contiguous getitem clone repeat flatten unflatten "
                   "detach movedim index_select gather t".split())
_CASTS = frozenset("to float type type_as half bfloat16".split())
_ELEMENTWISE = frozenset("""
    where masked_fill eq ne lt le gt ge logical_not logical_and logical_or invert inv not_ and_ or_ bitwise_not bitwise_and bitwise_or
    add sub mul neg abs bool
""".split()) | _CASTS
_PURE = _VIEWS | _ELEMENTWISE | frozenset("""
    full zeros ones arange full_like zeros_like ones_like new_full new_zeros new_ones eye tril triu
""".split())


@dataclass(frozen=True)
class Rows:
    """Of all rows of a mask: ``empty``: one may be -inf all along; ``lost``: one may have no element above ``LOST`` (and some that is
    finite); ``near``: the largest element of each is known to lie within ``NEAR``."""

    empty: bool
    lost: bool
    near: bool


@dataclass(frozen=True)
class _Bounds:
    """Finite elements lie between ``low`` and ``high``; with ``hidden``, others are -inf."""

    low: float
    high: float
    hidden: bool = False

    def __or__(self, other: "_Bounds") -> "_Bounds":
        return _Bounds(min(self.low, other.low), max(self.high, other.high), self.hidden or other.hidden)


def name_of(node: fx.Node) -> str:
    """``masked_fill`` for the function and for the method."""
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def writes(node: fx.Node) -> bool:
    """Whether ``node`` writes into a tensor."""
    name = name_of(node)
    spelt_so = name.endswith("_") and not name.endswith("__") and node.target not in _SPELT_SO
    return node.op in ("call_function", "call_method") and (spelt_so or name in _IN_PLACE or "out" in node.kwargs)


_SPELT_SO = {operator.and_, operator.or_, operator.not_, operator.is_}
_IN_PLACE = {spelling for name in "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor imatmul ilshift irshift setitem".split()
             for spelling in (name, f"__{name}__")}
_FRESH = (_ELEMENTWISE - _CASTS) | frozenset("""
    matmul bmm softmax dropout linear layer_norm embedding cat any all amax sum full_like zeros_like ones_like tril triu repeat clone index_select gather
    scaled_dot_product_attention
""".split())
"""What gives a tensor of its own: whatever else there is may give a view."""


def _changes(node: fx.Node) -> bool:
    """Whether somebody may write into ``node``, or into a view of it: its value is not what made it then."""
    pending, seen = [node], {node}
    while pending:
        tensor = pending.pop()
        for user in tensor.users:
            if writes(user) and _written(user) in (tensor, None):
                return True
            if name_of(user) not in _FRESH and user not in seen and user.op != "output":
                seen.add(user)
                pending.append(user)
    return False


def _written(write: fx.Node) -> fx.Node | None:
    """The tensor that ``write`` writes into; None: not said simply."""
    return write.args[0] if "out" not in write.kwargs and write.args and isinstance(write.args[0], fx.Node) else None


# ------------------------------------------------------------------ all values
def constant(node: fx.Node) -> torch.Tensor | None:
    """The value of ``node``, on the CPU, where it depends on no input and on no size that varies; else None."""
    known: dict[fx.Node, Any] = {}
    pending = [node]
    while pending:
        top = pending[-1]
        missing = [a for a in top.all_input_nodes if a not in known]
        if not missing:
            known[pending.pop()] = None
        elif all(map(_computable, missing)):
            pending.extend(missing)
        else:
            return None
    if not _computable(node):
        return None
    for n in known:
        args, kwargs = fx.node.map_arg((n.args, n.kwargs), known.__getitem__)
        args, kwargs = pytree.tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
        known[n] = getattr(args[0], n.target)(*args[1:], **kwargs) if n.op == "call_method" else n.target(*args, **kwargs)
    return known[node]


def _computable(node: fx.Node) -> bool:
    val = node.meta.get("val")
    if node.op not in ("call_function", "call_method") or name_of(node) not in _PURE or not isinstance(val, torch.Tensor) or _changes(node):
        return False
    numbers = [leaf for leaf in pytree.tree_leaves((node.args, node.kwargs)) if isinstance(leaf, (SYMBOLIC, str))]
    return not numbers and all(type(n) is int for n in val.shape) and val.numel() <= MOST_ELEMENTS


# ------------------------------------------------------------------ for which queries
def alike(mask: fx.Node) -> bool:
    """Whether ``mask`` (..., queries, keys) is known to be the same for all queries."""
    val = mask.meta["val"]
    if not isinstance(val, torch.Tensor) or val.ndim < 2 or same(val.shape[-2], 1):
        return True
    name = name_of(mask)
    if (name in _ELEMENTWISE or name == "expand") and not _changes(mask):
        if all(map(alike, [a for a in mask.all_input_nodes if a.meta.get("val") is not None])):
            return True
    value = constant(mask)
    return value is not None and bool((value == value[..., :1, :]).all())


# ------------------------------------------------------------------ between which numbers
def rows(mask: fx.Node) -> Rows:
    """What is known of the rows of an additive mask."""
    value = constant(mask)
    if value is not None:
        top = value.amax(-1)
        finite = top[top > -math.inf]
        return Rows(finite.numel() < top.numel(), bool((finite < LOST).any()), bool((finite.abs() <= NEAR).all()))
    found = _bounds(mask)
    if found is None:
        return Rows(True, mask.meta["val"].dtype is not torch.float16, False)
    return Rows(found.hidden, found.low < LOST, -NEAR <= found.low and found.high <= NEAR)


def _bounds(x: Any) -> _Bounds | None:
    """None: nothing is known."""
    if not isinstance(x, fx.Node):
        if type(x) not in (int, float, bool) or x == math.inf or x != x:
            return None
        return _Bounds(math.inf, -math.inf, True) if x == -math.inf else _Bounds(x, x)
    if _changes(x):
        return None
    if x.op in ("placeholder", "get_attr"):
        return _of_input(x.meta["val"])
    name, args = name_of(x), x.args
    if name in _VIEWS:
        return _bounds(args[0])
    if name in ("embedding", "index_select", "full", "new_full"):
        return _bounds(args[1] if name in ("embedding", "full") else args[0] if name == "index_select" else args[2])
    if name in ("zeros", "new_zeros", "zeros_like", "ones", "new_ones", "ones_like"):
        return _Bounds(0, 0) if "zeros" in name else _Bounds(1, 1)
    if name in _CASTS:
        return _cast(_bounds(args[0]), x.meta["val"].dtype)
    if name in ("where", "masked_fill"):
        return _either(*((args[1], args[2]) if name == "where" else (args[0], args[2])))
    if name in ("triu", "tril"):
        return _either(args[0], 0)
    if name in ("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "invert", "bool"):
        return _Bounds(0, 1)
    return _cast(_arithmetic(name, args), x.meta["val"].dtype) if not x.kwargs and len(args) == 2 else None


def _of_input(val: Any) -> _Bounds | None:
    if not isinstance(val, torch.Tensor):
        return None
    if val.dtype is torch.bool:
        return _Bounds(0, 1)
    return _Bounds(-_LEARNT, _LEARNT) if val.requires_grad else None


def _cast(found: _Bounds | None, dtype: torch.dtype) -> _Bounds | None:
    """What a narrower dtype does not hold may have become -inf."""
    if found is None or not dtype.is_floating_point or found.low > found.high:
        return found if dtype.is_floating_point else None
    largest = torch.finfo(dtype).max
    if found.high > largest:
        return None
    return found if found.low >= -largest else _Bounds(-largest, found.high, True)


def _either(*options: Any) -> _Bounds | None:
    a, b = map(_bounds, options)
    return None if a is None or b is None else a | b


def _arithmetic(name: str, args: Any) -> _Bounds | None:
    a, b = map(_bounds, args)
    if a is None or b is None:
        return None
    if name == "sub" and not b.hidden:
        name, b = "add", _Bounds(-b.high, -b.low)
    if name == "add":
        low, high = (a.low + b.low, a.high + b.high) if _some(a) and _some(b) else (math.inf, -math.inf)
        return _Bounds(low, high, a.hidden or b.hidden)
    if name == "mul" and not a.hidden and not b.hidden:
        ends = [p * q for p in (a.low, a.high) for q in (b.low, b.high)]
        return _Bounds(min(ends), max(ends))
    return None


def _some(bounds: _Bounds) -> bool:
    """Whether any element may be finite."""
    return bounds.low <= bounds.high
