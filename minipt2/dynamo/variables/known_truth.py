"""Branches on tensors whose outcome is certain without their data: ``if torch.rand([]) < 0.0`` (layer drop that is off).

The random node stays in the graph, so that the generator advances as in eager.
"""
from __future__ import annotations

import operator

import torch
from torch import fx

ANSWERS = {operator.lt: False, operator.ge: True}  # against a bound <= 0: torch.rand gives numbers in [0, 1)
STRICT = {operator.le: False, operator.gt: True}  # against a bound < 0
SWAPPED = {operator.lt: operator.gt, operator.gt: operator.lt, operator.le: operator.ge, operator.ge: operator.le}


def known_truth(node: fx.Node) -> bool | None:
    """The truth of a comparison node, when it is the same for all data; else None."""
    if node.op != "call_function" or len(node.args) != 2:
        return None
    target, (left, right) = node.target, node.args
    if not isinstance(left, fx.Node):
        target, left, right = SWAPPED.get(target), right, left
    if not isinstance(right, (int, float)) or not is_uniform(left):
        return None
    if right <= 0 and target in ANSWERS:
        return ANSWERS[target]
    return STRICT.get(target) if right < 0 else None


def is_uniform(node: fx.Node) -> bool:
    """A draw of ``torch.rand`` that nothing has changed in place."""
    return node.op == "call_function" and node.target in (torch.rand, torch.ops.aten.rand) and not any(
        user.meta.get("impure") for user in node.users)
