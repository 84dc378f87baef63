"""Sizes as expressions: what a dimension, a stride or an index is, and how such expressions are simplified.

In: integers and sympy expressions over size symbols and loop variables. Out: smaller ones that are equal.
Called by ``inductor`` (index expressions). Upstream counterpart: ``torch.utils._sympy``.
"""
from .expr import FloorDiv, Mod, bounds, floordiv, linear, mod, recombine, simplify, size

__all__ = ["FloorDiv", "Mod", "bounds", "floordiv", "linear", "mod", "recombine", "simplify", "size"]
