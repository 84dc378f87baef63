"""``torch.ops.minipt2.assume(condition, truth)``: what captured code takes for true of a tensor's data, checked where a graph computes it.

``dynamo`` writes it for a branch whose other way only raises (``if not (scale > 0).all(): raise``). ``condition``: a tensor of one element;
where its truth is not ``truth`` the operator raises ``AssumptionFailed``, and the frame runs again as plain Python, which raises what
there is to raise. It returns nothing: every stage keeps such operators for what they may raise.
"""
from __future__ import annotations

import torch

from .errors import AssumptionFailed

_library = torch.library.Library("minipt2", "FRAGMENT")
_library.define("assume(Tensor condition, bool truth) -> ()")


def _assume(condition: torch.Tensor, truth: bool) -> None:
    if bool(condition) is not truth:
        raise AssumptionFailed(f"a condition that was taken to be {truth} is {not truth}")


_library.impl("assume", _assume, "CompositeExplicitAutograd")
_library.impl("assume", lambda condition, truth: None, "Meta")

ASSUME = torch.ops.minipt2.assume.default
