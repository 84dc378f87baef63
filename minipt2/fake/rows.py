"""Operators whose result eager allocates row-major, whatever the memory order of their operands; their meta kernels say like the operand.

Upstream: the kernels themselves, in ``aten/src/ATen/native``: ``Distributions.cpp``, ``Im2Col.cpp``, ``RReLU`` and ``log_sigmoid`` in ``Activation.cpp``.
"""
from __future__ import annotations

from typing import Any, Callable

import torch
from torch._ops import OpOverload

from .families import new
from .tensor import FakeMode, FakeTensor

aten = torch.ops.aten
Rule = Callable[[FakeMode, OpOverload, tuple, dict], Any]


def _always(args: tuple, kwargs: dict) -> bool:
    return True


def _on_a_cpu(args: tuple, kwargs: dict) -> bool:
    return args[0].fake_device.type == "cpu"


def _unreduced(args: tuple, kwargs: dict) -> bool:
    return args[3] == 0


ROW_MAJOR: dict[OpOverload, Callable[[tuple, dict], bool]] = {
    aten.poisson.default: _always, aten._standard_gamma.default: _always, aten.im2col.default: _always, aten.normal.Tensor_Tensor: _always,
    aten.isin.Tensor_Tensor: _always, aten.isin.Tensor_Scalar: _always, aten.rrelu_with_noise.default: _always,
    aten.glu_backward.default: _always, aten.log_sigmoid_forward.default: _on_a_cpu, aten.nll_loss2d_forward.default: _unreduced,
}
"""Operator -> whether it is so of these arguments."""


def row_major(rule: Rule, applies: Callable[[tuple, dict], bool]) -> Rule:
    """What ``rule`` says, each result row-major where that ``applies``."""
    def handler(mode: FakeMode, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        found = rule(mode, func, args, kwargs)
        if not applies(args, kwargs):
            return found
        return new(mode, found.shape, found) if isinstance(found, FakeTensor) else tuple([new(mode, t.shape, t) for t in found])
    return handler
