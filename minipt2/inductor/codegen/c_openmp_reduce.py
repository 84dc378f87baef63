"""Reductions in C: where they start, how a value is added, how partial results meet.

Maximum and minimum of floats run as plain comparisons, which become vector instructions, with a flag beside them that
remembers a NaN. Upstream: ``reduction_init``, ``reduction_combine`` in ``torch._inductor.codegen.cpp``.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch

from ...exercise import exercise
from .c_openmp_ops import C, VALUE, is_float, literal

_SIGNS = {"sum": "+", "prod": "*", "any": "|", "all": "&", "max": "max", "min": "min"}


@exercise("6.3")
def identity(kind: str, dtype: torch.dtype) -> str:
    """The value that changes nothing: -inf or the least integer for a maximum."""
    # >>> 6.3
    if kind in ("max", "min"):
        if is_float(dtype):
            return literal(float("-inf") if kind == "max" else float("inf"), dtype)
        if dtype is torch.bool:
            return "0" if kind == "max" else "1"
        info = torch.iinfo(dtype)
        return literal(info.min if kind == "max" else info.max, dtype)
    return literal({"sum": 0, "prod": 1, "any": False, "all": True}[kind], dtype)
    # <<< 6.3


def combine(kind: str, dtype: torch.dtype, a: str, b: str) -> str:
    """Expression for two partial results taken together, NaN included."""
    if kind in ("any", "all"):
        return f"({a} {_SIGNS[kind]} {b})"
    return C(dtype).op({"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[kind], a, b)


@dataclass(frozen=True)
class Accumulator:
    """A scalar that gathers one reduction inside a simd loop."""

    name: str
    kind: str
    dtype: torch.dtype

    @property
    def flagged(self) -> bool:
        return self.kind in ("max", "min") and is_float(self.dtype)

    @property
    def rounds(self) -> bool:
        """Does its error grow with the number of elements?"""
        return self.kind in ("sum", "prod") and is_float(self.dtype)

    def declare(self) -> list[str]:
        lines = [f"{self.ctype} {self.name} = {identity(self.kind, self.dtype)};"]
        return lines + [f"int {self.name}_nan = 0;"] if self.flagged else lines

    @property
    def ctype(self) -> str:
        return "int" if self.dtype is torch.bool else VALUE[self.dtype]

    def clause(self) -> str:
        text = f"reduction({_SIGNS[self.kind]}:{self.name})"
        return f"{text} reduction(|:{self.name}_nan)" if self.flagged else text

    @exercise("6.3")
    def update(self, value: str) -> list[str]:
        """Lines that take one value in; floating-point extrema note a NaN beside them."""
        # >>> 6.3
        if self.flagged:
            sign = ">" if self.kind == "max" else "<"
            return [f"{self.name} = {value} {sign} {self.name} ? {value} : {self.name};", f"{self.name}_nan |= {value} != {value};"]
        return [f"{self.name} = {combine(self.kind, self.dtype, self.name, value)};"]
        # <<< 6.3

    def absorb(self, part: "Accumulator") -> list[str]:
        """Add a partial result of the same kind."""
        return [*self.update(part.name), *([f"{self.name}_nan |= {part.name}_nan;"] if self.flagged else [])]

    def result(self) -> str:
        """The reduced value, once the loop is done."""
        if not self.flagged:
            return f"({self.name} != 0)" if self.dtype is torch.bool else self.name
        return f"({self.name}_nan ? {literal(float('nan'), self.dtype)} : {self.name})"


@exercise("6.3")
def reduce(kind: str, dtype: torch.dtype, body: str, n: str, name: str = "acc") -> str:
    """C that reduces the expression ``body`` of the index ``i`` over ``0 <= i < n`` into ``name``: initialise, accumulate, combine."""
    # >>> 6.3
    acc = Accumulator(name + "_part", kind, dtype)
    lines = [*acc.declare(), f"#pragma omp simd {acc.clause()}", f"for (int i = 0; i < {n}; i++) {{", f"  const {VALUE[dtype]} x = {body};",
             *("  " + line for line in acc.update("x")), "}", f"const {VALUE[dtype]} {name} = {acc.result()};"]
    return "\n".join(lines)
    # <<< 6.3
