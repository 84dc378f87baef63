"""The mask of an attention that is written out, in the form that the fused operator takes, and eager's numbers where it would give others.

=========================  ================================================  ============================================================
a row of scores            eager, written out                                the operator, and what is done about it
=========================  ================================================  ============================================================
filled with -1e9 all along  the mean of the values                           0: the mean is selected
filled with -inf           NaN, and NaN in gradients of the head's values    0: NaN is selected, in a form whose gradients are NaN
a bias of -inf all along   the same, and in those of its queries and keys    the same
a bias of -1e30 all along  scores vanish in the sum: the mean again; their   its backward makes the softmax from the logarithm of the sum,
                           gradients do not vanish                           in which the sum vanishes too: see ``_without_scores``
a bias of -1000            scores keep 13 bits of 24                         the same logarithm: the bias is moved so that it ends at 0
=========================  ================================================  ============================================================

A mask that is known (``mask_values``) needs less, or none: causal ones become ``is_causal``; of one that is alike for all queries a row is enough.
Called by ``attention``.
"""
from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field, replace
from typing import Any, Callable

import torch
from torch import fx

from ...shapes.known import known, same
from .mask_values import LOST, NEAR, Rows, alike, constant, rows

FAINT = 2.0 ** -40
"""Scores this much smaller change no weight."""
MOST_LEARNT = 256
"""Keys up to which a bias that learns goes to the operator. Measured on an H200, bfloat16, a training step: windows of 49 keys 1.52 times as fast as
written out, of 64 keys 1.19 times, 128 keys 1.53 times, 256 keys 1.65 times, 512 keys 0.79 times (the bias's gradient is as large as all scores)."""
Call = Callable[..., fx.Node]


@dataclass
class Attention:
    """What a chain of nodes from ``scores = q @ k_t`` to ``dropout(softmax) @ v`` computes."""

    q: fx.Node
    k_t: fx.Node
    v: fx.Node
    first: fx.Node
    last: fx.Node
    scale: float = 1.0
    bias: fx.Node | None = None
    filled: fx.Node | None = None
    """Where the scores are replaced by ``fill``; with ``negated``, where they are not."""
    negated: bool = False
    fill: float = 0.0
    drop: float = 0.0
    """The chance by which a weight is dropped."""
    between: list[fx.Node] = field(default_factory=list)
    after: list[fx.Node] = field(default_factory=list)
    """What happens to the weights: casts, a dropout."""

    @property
    def mask(self) -> fx.Node | None:
        return self.bias if self.bias is not None else self.filled

    @property
    def trains(self) -> bool:
        return value(self.last).requires_grad


@dataclass
class Operands:
    """Nodes for the operator, of the rank that the model uses. Where ``unseen``, its result is replaced by ``instead``."""

    q: Any
    k: Any
    v: Any
    mask: Any = None
    causal: bool = False
    unseen: Any = None
    instead: Any = None


def value(node: fx.Node) -> torch.Tensor:
    return node.meta["val"]


def expanded(mask: Any) -> bool:
    """Whether neighbours in ``mask``'s rows are one element."""
    return isinstance(mask, fx.Node) and not same(value(mask).shape[-1], 1) and same(value(mask).stride()[-1], 0)


# ------------------------------------------------------------------ whether it may be
def mask_agrees(a: Attention) -> bool:
    """Whether the operator takes the mask of ``a``, and every number can be eager's."""
    if a.mask is None:
        return True
    mask, scores = value(a.mask), value(a.first)
    if mask.device != scores.device or not 2 <= mask.ndim <= scores.ndim:
        return False
    if not all(m == 1 or m == s for m, s in zip(reversed(mask.shape), reversed(scores.shape))):
        return False
    if a.filled is not None:
        return mask.dtype is torch.bool
    q = value(a.q)
    if mask.dtype not in (q.dtype, torch.float32):
        return False
    if mask.requires_grad and (q.device.type == "cpu" or not known(scores.shape[-1] <= MOST_LEARNT)):
        return False  # on a CPU the operator computes all scores, as written
    return not a.trains or not rows(a.bias).lost or not mask.requires_grad and alike(a.bias) and q.dtype is not torch.float16


# ------------------------------------------------------------------ what it becomes
def operands(call: Call, a: Attention, copies: dict[fx.Node, fx.Node]) -> Operands:
    """The operator's arguments for ``a``. ``call(target, *args, **kwargs)``: a new node of the graph that holds ``copies``."""
    made = Operands(copies[a.q], call("transpose", copies[a.k_t], -2, -1), copies[a.v])
    if a.mask is None:
        return made
    fixed = constant(a.mask)
    seen = None if fixed is None else _seen(a, fixed)
    if seen is not None and bool(seen.all()):
        return made
    if seen is not None and _causal(seen, a):
        return replace(made, causal=True)
    mask = copies[a.mask]
    if not same(value(a.mask).shape[-2], 1) and alike(a.mask):
        mask = call(operator.getitem, mask, (..., slice(0, 1), slice(None)))
    return (_filled if a.filled is not None else _biased)(call, a, made, mask, seen is not None and bool(seen.any(-1).all()))


def _seen(a: Attention, mask: torch.Tensor) -> torch.Tensor | None:
    """Which scores of a known mask count, if it does nothing else to them."""
    if a.filled is not None:
        return mask if a.negated else ~mask
    return mask == 0 if bool(((mask == 0) | (mask == -math.inf)).all()) else None


def _causal(seen: torch.Tensor, a: Attention) -> bool:
    queries, keys = value(a.first).shape[-2:]
    return tuple(seen.shape[-2:]) == (queries, keys) and bool((seen == torch.ones(queries, keys, dtype=torch.bool).tril()).all())


def _filled(call: Call, a: Attention, made: Operands, hidden: fx.Node, sees: bool) -> Operands:
    kept = call(torch.logical_not, hidden)
    mask, hidden = (hidden, kept) if a.negated else (kept, hidden)
    if sees:
        return replace(made, mask=mask)
    unseen = call("all", hidden, dim=-1, keepdim=True)
    if a.fill == -math.inf:
        return replace(made, mask=mask, unseen=unseen, instead=_undefined(call, a, made, unseen))
    if a.drop:  # of equal weights too some are dropped: those of a query of 0
        return replace(made, q=call(torch.where, unseen, 0.0, made.q), mask=call(torch.logical_or, mask, unseen))
    return replace(made, mask=mask, unseen=unseen, instead=call("mean", made.v, -2, keepdim=True))


def _undefined(call: Call, a: Attention, made: Operands, unseen: fx.Node) -> Any:
    """NaN; with gradients in a form that gives NaN to the values' too, as eager does for the values of every head that has such a query."""
    if not value(a.v).requires_grad:
        return math.nan
    heads = call("any", unseen, dim=-2, keepdim=True) if value(a.filled).ndim > 1 else unseen
    factor = call("type_as", call(torch.where, heads, math.nan, 0.0), made.v)
    return call(torch.mul, call("mean", made.v, -2, keepdim=True), factor)


def _biased(call: Call, a: Attention, made: Operands, plain: fx.Node, sees: bool) -> Operands:
    bias, dtype, facts = value(a.bias), value(a.q).dtype, Rows(False, False, True) if sees else rows(a.bias)
    mask = plain if facts.near or bias.dtype == dtype and not a.trains else _moved(call, a, plain, facts)
    if facts.lost and (a.trains or dtype is torch.float16 and bias.dtype != dtype):
        made = _without_scores(call, a, made, call("lt", call("amax", plain, -1, keepdim=True), LOST))
    if bias.dtype != dtype or mask is not plain:  # numbers beside tensors may have widened it, which the kernels would not notice
        mask = call("to", mask, dtype)
    made = replace(made, mask=call("contiguous", mask) if expanded(a.bias) else mask)
    if not facts.empty:
        return made
    constants = call("detach", plain) if bias.requires_grad else plain
    unseen = call("all", call(torch.eq, constants, -math.inf), dim=-1, keepdim=True)
    return replace(made, unseen=unseen, instead=_spoilt(call, a, made, plain, unseen) if a.trains else math.nan)


def _moved(call: Call, a: Attention, bias: fx.Node, facts: Rows) -> fx.Node:
    """``bias`` with the largest element of each row near 0, which no softmax notices; in rows that are lost what is largest is 0, the rest -inf.

    Where the dtype is a half one, small numbers stay as they are: they would lose more than they win.
    """
    constants = call("detach", bias) if value(a.bias).requires_grad else bias
    top = call("amax", constants, -1, keepdim=True)
    lost = call("lt", top, LOST)
    far = call(torch.logical_and, call("gt", call("abs", top), NEAR), call(torch.logical_not, lost))
    moved = call(torch.sub, bias, call(torch.where, far, top, 0.0))
    if not facts.lost:
        return moved
    # half the range of bfloat16, where float16 has its queries taken away: next to it scores vanish in the forward
    least = -(2.0 ** 100) if value(a.q).dtype is not torch.float16 and not a.trains else 0.0
    return call(torch.where, lost, call(torch.where, call(torch.lt, bias, top), -math.inf, least), moved)


def _without_scores(call: Call, a: Attention, made: Operands, lost: fx.Node) -> Operands:
    """Where ``lost``, scores that change no weight, and yet the gradients of queries and keys that they would have: q is made faint, and its
    gradient, and what k's gradient loses by that is given back. All queries of a head must be lost together."""
    q, k = made.q, made.k
    if not a.trains:
        return replace(made, q=call(torch.where, lost, 0.0, q))
    straight = call(torch.sub, q, call("detach", q))
    faint = call(torch.add, call(torch.mul, q, FAINT), straight)
    still = call("detach", k)
    louder = call(torch.add, still, call(torch.mul, call(torch.sub, k, still), 1 / FAINT))
    return replace(made, q=call(torch.where, lost, faint, q), k=call(torch.where, lost, louder, k))


def _spoilt(call: Call, a: Attention, made: Operands, bias: fx.Node, unseen: fx.Node) -> fx.Node:
    """NaN in a form whose gradients are NaN: of the queries that see nothing, and of all keys and values of their head."""
    nan = lambda where, like: call("type_as", call(torch.where, where, math.nan, 0.0), like)  # noqa: E731
    heads = call("any", unseen, dim=-2, keepdim=True)
    means = call(torch.add, call("mean", made.k, -2, keepdim=True), call("mean", made.v, -2, keepdim=True))
    total = call(torch.add, call(torch.mul, means, nan(heads, made.v)), call(torch.mul, made.q, nan(unseen, made.q)))
    if not value(a.bias).requires_grad:
        return total
    return call(torch.add, total, call("to", call(torch.mul, call("mean", bias, -1, keepdim=True), nan(unseen, bias)), value(a.q).dtype))
