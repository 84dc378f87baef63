"""Symbolic sizes: what a dimension, a stride or an index is, what is known about it, and what compiled code relies on.

In: sizes with the places they come from. Out: SymInts that torch computes with, answers to its questions, guards; and smaller
expressions that are equal. Called by ``dynamo`` (an environment per frame), ``fake`` and ``prims`` (whose shape rules compute with
SymInts), and ``inductor`` (index expressions). Upstream counterpart: ``torch.fx.experimental.symbolic_shapes`` and ``torch.utils._sympy``.

* ``expr``: ``FloorDiv``, ``Mod`` and index arithmetic. ``poly``, ``facts``: deciding what follows from what is known.
* ``functions``, ``arithmetic``: what expressions mean, and how operations make them. ``symint``: the node behind ``torch.SymInt``.
* ``env``: symbols, questions, answers. ``guards``: the smallest list of conditions. ``materialize``: SymInts in a graph as nodes.
"""
from .env import LateGuard, ShapeEnv, UnknownSize
from .expr import FloorDiv, Mod, bounds, floordiv, linear, mod, recombine, simplify, size
from .functions import python, value
from .guards import ShapeGuard
from .materialize import materialize
from .symint import Node, call

__all__ = ["FloorDiv", "LateGuard", "Mod", "Node", "ShapeEnv", "ShapeGuard", "UnknownSize", "bounds", "call", "floordiv", "linear", "materialize",
           "mod", "python", "recombine", "simplify", "size", "value"]  # fmt: skip
