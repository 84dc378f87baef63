"""The modules of a sharded model that gather its parameters: captured with the user's own, as if they had written them.

Upstream has no counterpart; the parametrization is that of Zhang et al., "SimpleFSDP" (2024).
"""
from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Whole(nn.Module):
    """The parameter of ``shape`` out of its parts."""

    def __init__(self, shape: torch.Size, world: int, group: str):
        super().__init__()
        self.shape, self.size, self.world, self.group = tuple(shape), shape.numel(), world, group

    def forward(self, part: torch.Tensor) -> torch.Tensor:
        return Gather.apply(part, self.world, self.group)[:self.size].view(self.shape)


class Gather(torch.autograd.Function):
    """All ranks' parts, one behind the other; the gradient is this rank's part of the mean over the ranks."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, world: int, group: str) -> torch.Tensor:
        ctx.world, ctx.group = world, group
        collectives = torch.ops._c10d_functional
        return collectives.wait_tensor(collectives.all_gather_into_tensor(part, world, group))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple:
        collectives = torch.ops._c10d_functional
        part = collectives.wait_tensor(collectives.reduce_scatter_tensor(grad.contiguous(), "sum", ctx.world, ctx.group))
        return part / ctx.world, None, None
