"""Tensors compared as wholes: ``torch.equal`` and ``torch.allclose`` as what they are made of, and the ``item()`` that they return.

Upstream: ``torch/_dynamo/variables/torch.py``, where they break the graph.
"""
from __future__ import annotations

from typing import Callable

import torch

from .base import Variable, unsupported
from .containers import const
from .tensor import TensorVariable
from .torch_functions import handles


@handles(torch.equal)
def equal(tx, input, other):
    """The kernel looks at sizes first. What it refuses (another dtype, another device) is left to it."""
    if not all(isinstance(v, TensorVariable) for v in (input, other)):
        unsupported("MP102", "torch.equal of something else than tensors")
    a, b = input.value, other.value
    if a.dtype != b.dtype or a.device != b.device:
        unsupported("MP102", f"torch.equal of {a.dtype} on {a.device} and {b.dtype} on {b.device}")
    return _all(tx, torch.eq, [input, other], {}) if tuple(a.shape) == tuple(b.shape) else const(False)


@handles(torch.allclose)
def allclose(tx, *args, **kwargs):
    return _all(tx, torch.isclose, list(args), kwargs)


def _all(tx, comparison: Callable, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
    elements = tx.output.call(tx, comparison, args, kwargs)
    return elements.call_method(tx, "all", [], {}).call_method(tx, "item", [], {})
