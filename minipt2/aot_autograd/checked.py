"""Compositions whose check of values goes lost when they are traced, in a form that keeps it. Called by ``trace``."""
from __future__ import annotations

import torch

from .ops import aten


def _one_hot(index: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """On fake tensors ``one_hot`` is a comparison that takes any number; looked up in the numbers there are, a wrong one is an error."""
    if num_classes >= 0:
        known = torch.arange(num_classes, device=index.device)
        index = known.index_select(0, index.reshape(-1)).reshape(index.shape)
    return torch.nn.functional.one_hot(index, num_classes)


CHECKED = {torch.nn.functional.one_hot: _one_hot, aten.one_hot.default: _one_hot}
"""Function -> what the tracer calls in its place."""
