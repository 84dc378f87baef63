"""GRUs and simple RNNs over sequences of a symbolic length: C++ composes them step by step, and would fix the length.

What they return is told here without a step, by operations that are as differentiable; a graph runs such a node with eager's kernel,
between its compiled pieces, for any length. Upstream breaks the graph at every recurrent module.
"""
from __future__ import annotations

from typing import Any, Sequence

import torch

from ..shapes.known import symbolic

_VF = torch._VF
STEPWISE = frozenset((_VF.gru, _VF.rnn_tanh, _VF.rnn_relu))


def steps_vary(fn: Any, args: Sequence[Any]) -> bool:
    """Whether ``fn(*args)`` is a recurrent function, of padded sequences, whose length is a symbol."""
    if fn not in STEPWISE or len(args) != 9 or not isinstance(args[2], (list, tuple)):
        return False
    input, batch_first = args[0], args[8]
    return symbolic(input.shape[1:2] if batch_first else input.shape[:1])


def without_steps(input: torch.Tensor, hx: torch.Tensor, params: Sequence[torch.Tensor], has_biases: bool, num_layers: int, dropout: float,
                  train: bool, bidirectional: bool, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Tensors like the outputs, (length, batch, directions * hidden), and the last states, ``hx.shape``."""
    link = sum([p.sum() for p in (hx, *params)])
    first, second = input.shape[:2]
    length, batch = (second, first) if batch_first else (first, second)
    output = (input.sum() + link).expand(length, batch, hx.shape[-1] * (1 + bidirectional)).contiguous()
    return output.transpose(0, 1) if batch_first else output, (hx + output.sum()).contiguous()
