"""Symbolic sizes: what a dimension, a stride or an index is, what is known about it, and what compiled code relies on.

In: sizes with the places they come from. Out: SymInts that torch computes with, answers to its questions, guards; and smaller
expressions that are equal. Called by ``dynamo`` (an environment per frame), ``fake`` and ``prims`` (whose shape rules compute with
SymInts), and ``inductor`` (index expressions). Upstream counterpart: ``torch.fx.experimental.symbolic_shapes`` and ``torch.utils._sympy``.

* ``known``: questions for shape rules, needing neither sympy nor an environment while sizes are plain.
* ``env``: symbols, questions, answers. ``guards``: the smallest list of conditions. ``graphs``: SymInts in a graph as nodes.
* ``symint``: the node behind ``torch.SymInt``. ``functions``, ``arithmetic``: what expressions mean, and how operations make them.
* ``poly``, ``ranges``, ``relations``, ``quotients``, ``facts``: deciding what follows from what is known. ``expr``: ``FloorDiv``, ``Mod``, indices.
* ``readable``: facts in their shortest form, as guards show them.

Names are loaded when they are asked for: a program whose sizes never vary does not import sympy for them.
"""
import importlib
from typing import Any

_HOMES = {
    "env": ("LateGuard", "ShapeEnv", "UnknownSize"),
    "expr": ("FloorDiv", "Mod", "bounds", "floordiv", "mod", "recombine", "simplify", "size"),
    "functions": ("python", "value"),
    "guards": ("ShapeGuard",),
    "graphs": ("materialize",),
    "symint": ("Node", "call"),
}
__all__ = [name for names in _HOMES.values() for name in names]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
