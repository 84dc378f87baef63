"""Reductions in Triton: where they start, how a block is added, how the lanes of a block meet.

Upstream: ``TritonKernel.reduction`` and ``ir.Reduction.default_accumulator``.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch

from .triton_ops import VALUE, number


def identity(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The value that changes nothing: -inf or the least integer for a maximum."""
    if kind in ("max", "min"):
        if dtype.is_floating_point:
            return float("-inf") if kind == "max" else float("inf")
        if dtype is torch.bool:
            return kind == "min"
        info = torch.iinfo(dtype)
        return info.min if kind == "max" else info.max
    return {"sum": 0, "prod": 1, "any": False, "all": True}[kind]


@dataclass(frozen=True)
class Accumulator:
    """Text of one reduction of ``kind`` over values of ``dtype``; truth values are counted in 32-bit integers."""

    kind: str
    dtype: torch.dtype

    @property
    def held(self) -> torch.dtype:
        return torch.int32 if self.dtype is torch.bool else self.dtype

    @property
    def start(self) -> str:
        return number(identity(self.kind, self.dtype), self.held)

    def full(self, shape: str) -> str:
        return f"tl.full({shape}, {self.start}, {VALUE[self.held]})"

    def prepared(self, value: str, mask: str, shape: str) -> str:
        """A value as the block that is reduced: of full shape, nothing where ``mask`` does not hold."""
        value = f"{value}.to(tl.int32)" if self.dtype is torch.bool else value
        return f"tl.where({mask}, {value}, {self.start})" if mask else f"tl.broadcast_to({value}, {shape})"

    def combine(self, a: str, b: str) -> str:
        """``a`` and ``b`` in one."""
        if self.kind == "sum":
            return f"{a} + {b}"
        if self.kind == "prod":
            return f"{a} * {b}"
        nan = ", tl.PropagateNan.ALL" if self.dtype.is_floating_point else ""
        return f"tl.{'maximum' if self.kind in ('max', 'any') else 'minimum'}({a}, {b}{nan})"

    def lanes(self, block: str) -> str:
        """One value for each row of ``block``."""
        if self.kind == "sum":
            value = f"tl.sum({block}, 1)"
        elif self.kind == "prod":
            value = f"product({block}, 1)"
        else:
            word = "max" if self.kind in ("max", "any") else "min"
            value = f"nan_{word}({block}, 1)" if self.dtype.is_floating_point else f"tl.{word}({block}, 1)"
        value = f"{value}[:, None]"
        if self.dtype is torch.bool:
            return f"{value} != 0"
        return value if self.dtype.itemsize >= 4 else f"{value}.to({VALUE[self.dtype]})"
