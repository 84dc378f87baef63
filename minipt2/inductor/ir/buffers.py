"""Buffers of a lowered graph, in program order, and how each comes to hold its values.

Upstream: ``torch._inductor.ir`` (``InputBuffer``, ``ComputedBuffer``, ``ExternKernel``, ``FixedLayout``).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import sympy
import torch

from ...errors import UserFrame
from ..sizes import tidy
from .body import LoopBody

Expr = sympy.Expr


@dataclass(frozen=True)
class Layout:
    """Shape and memory order of a tensor, in elements."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    dtype: torch.dtype
    device: torch.device
    offset: Expr = sympy.Integer(0)

    def index(self, index: list[Expr]) -> Expr:
        """Position in memory of the element at ``index``."""
        return sum((i * s for i, s in zip(index, self.strides)), self.offset)


@dataclass
class Buffer:
    """A named piece of memory. ``layout`` describes how its elements lie in it."""

    name: str
    layout: Layout

    def reads(self) -> set[str]:
        """Names of the buffers that must be complete before this one is made."""
        return set()

    def writes(self) -> set[str]:
        return {self.name}


@dataclass
class Input(Buffer):
    """A graph input. ``static``: a parameter or buffer, the same object call after call. ``position``: its place in the argument list."""

    position: int
    static: bool = False


@dataclass
class Constant(Buffer):
    """A tensor known at compile time."""

    value: torch.Tensor


@dataclass
class Computed(Buffer):
    """Filled by a loop nest. Its body's stores may also (or only) go to other buffers: an input it mutates, the part of a
    concatenation it fills, a copy it scatters into, the mean beside the variance; ``writes()`` names them all."""

    body: LoopBody
    stack: tuple[UserFrame, ...] = ()
    origins: tuple[str, ...] = ()
    """Names of the FX nodes computed here, for comments in the generated code."""

    def reads(self) -> set[str]:
        read = {name for name, _ in self.body.loads()}
        return read | {name for name, _, mode in self.body.stores() if mode is not None}

    def writes(self) -> set[str]:
        return {name for name, _, _ in self.body.stores()}


@dataclass(frozen=True)
class TensorRef:
    """A tensor argument of an extern call: a buffer seen through ``layout`` (None: as it is)."""

    buffer: str
    layout: Layout | None = None


@dataclass
class Extern(Buffer):
    """A call of an eager kernel (ATen overload, oneDNN operator, prim reference).

    ``args``/``kwargs`` nest TensorRef, numbers, lists, None. ``outputs`` are the buffers it makes (several for multi-output
    kernels; ``None`` where the output is unused); a single-output call makes ``self`` alone. ``out_variant``: the overload that
    takes ``out=`` to write into a preallocated buffer of exactly ``layout``; None: the call allocates. ``mutates``: buffers written in place.
    ``target == "alloc"``: only memory, filled by the ``Computed``s that store to it (parts of a concatenation, a second result of a reduction).
    """

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    outputs: list[Buffer | None] = field(default_factory=list)
    out_variant: Any = None
    mutates: tuple[str, ...] = ()
    stack: tuple[UserFrame, ...] = ()
    origins: tuple[str, ...] = ()
    random: bool = False
    """Draws random numbers: keeps program order with the other random calls."""
    effect: bool = False
    """Called for what it may raise: runs whether or not it makes something that is read, in program order with its like."""

    def reads(self) -> set[str]:
        return {ref.buffer for ref in tensor_refs((self.args, self.kwargs))}

    def writes(self) -> set[str]:
        made = {b.name for b in self.outputs if b is not None} if self.outputs else {self.name}
        return made | set(self.mutates)


def tensor_refs(tree: Any) -> list[TensorRef]:
    """All TensorRefs in nested arguments, in order."""
    if isinstance(tree, TensorRef):
        return [tree]
    if isinstance(tree, dict):
        tree = tree.values()
    elif not isinstance(tree, (list, tuple)):
        return []
    return [ref for item in tree for ref in tensor_refs(item)]


@dataclass
class Output:
    """A graph output: a view of a buffer, or a plain number, an expression of sizes or None in ``value``."""

    ref: TensorRef | None
    value: Any = None


@dataclass
class Program:
    """What lowering makes of one graph. ``buffers`` are in a valid execution order."""

    inputs: list[Input]
    constants: list[Constant]
    buffers: list[Computed | Extern]
    outputs: list[Output]
    name: str = "graph"
    symbols: dict[sympy.Symbol, int] = field(default_factory=dict)
    """Sizes and numbers that are arguments of the call, and their places in the argument list."""
    derived: dict[sympy.Symbol, Expr] = field(default_factory=dict)
    """Names for what is computed from them (and from names before) at each call: sizes that are no products, scalars of kernels."""
    hints: dict[sympy.Symbol, Any] = field(default_factory=dict)
    """What each was when the graph was compiled: for decisions about speed."""

    def same(self, a: Any, b: Any) -> bool:
        """Whether two sizes are equal whatever the symbols are."""
        difference = sympy.sympify(a - b)
        while not self.derived.keys().isdisjoint(difference.free_symbols):
            difference = difference.xreplace(self.derived)
        return tidy(difference) == 0

    def find(self, name: str) -> Buffer:
        return self.by_name()[name]

    def by_name(self) -> dict[str, Buffer]:
        table: dict[str, Buffer] = {b.name: b for b in (*self.inputs, *self.constants, *self.buffers)}
        for buffer in self.buffers:
            if isinstance(buffer, Extern):
                table.update({b.name: b for b in buffer.outputs if b is not None})
        return table
