"""Symbolic numbers in a graph as nodes that compute them.

before: ``view(x, [s0, 4 * s1])`` with SymInts directly among the arguments
after:  ``m = mul(4, s1); view(x, [s0, m])`` where ``s0`` and ``s1`` are the graph's inputs

so that plain Python runs the graph on numbers. Upstream: what ``make_fx`` records as it traces with symbols.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx

from .functions import meaning, pytype_of
from .known import SYMBOLIC, plain
from .poly import atom, poly
from .relations import single

if TYPE_CHECKING:
    from .env import ShapeEnv


def materialize(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm``, changed in place and recompiled where it held symbolic numbers.

    Raises KeyError for a symbol that is no input of it and shown by no node: no number that one returns, no size of what it returns.
    """
    writer = _Writer(gm.graph)
    changed = False
    for node in list(gm.graph.nodes):
        if node.op != "placeholder" and _has_symbols((node.args, node.kwargs)):
            changed = True
            with gm.graph.inserting_before(node):
                node.args, node.kwargs = fx.node.map_aggregate((node.args, node.kwargs), writer.given)
        writer.note(node)
    if changed:
        gm.graph.lint()
        gm.recompile()
    return gm


class _Writer:
    """Writes nodes that compute numbers, each expression once."""

    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.known: dict[sympy.Basic, Any] = {}
        self.shown: dict[sympy.Symbol, tuple[fx.Node, int, int]] = {}
        """Symbols that depend on data: the tensor and the dimension whose size is the symbol plus so much."""

    def note(self, node: fx.Node) -> None:
        """Remember which symbol ``node`` is or shows."""
        value = node.meta.get("val")
        if isinstance(value, SYMBOLIC) and value.node.expr.is_Symbol:
            self.known.setdefault(value.node.expr, node)
        elif node.meta.get("depends_on_data") or node.target is operator.getitem:
            for d, n in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
                p = single(poly(n.node.expr)) if isinstance(n, SYMBOLIC) and n.node.hint is None else None
                if p is not None and p[1] == 1 and atom(p[0]).is_Symbol:
                    self.shown.setdefault(atom(p[0]), (node, d, p[2]))

    def given(self, value: Any) -> Any:
        """The node for a symbolic number; other values stay."""
        return self.node(value.node.expr, value.node.env) if isinstance(value, SYMBOLIC) else value

    def node(self, e: sympy.Basic, env: "ShapeEnv") -> Any:
        if e not in self.known:
            self.known[e] = self.made(e, env) if e.args else self.symbol(e) if e.is_Symbol else env.hint(e)
            if isinstance(self.known[e], fx.Node):
                self.known[e].meta.update(stack=(), val=plain(env.node(e, pytype_of(e))))
        return self.known[e]

    def symbol(self, symbol: sympy.Symbol) -> fx.Node:
        tensor, dim, more = self.shown[symbol]
        size = self.graph.call_method("size", (tensor, dim))
        if not more:
            return size
        size.meta.update(stack=(), val=tensor.meta["val"].shape[dim])
        return self.graph.call_function(operator.sub, (size, more))

    def made(self, e: sympy.Basic, env: "ShapeEnv") -> fx.Node:
        function, binary = meaning(e)
        first, *others = [self.node(a, env) for a in e.args]
        if not binary:
            return self.graph.call_function(function, (first, *others))
        total = first
        for k, other in enumerate(others, 2):
            total = self.graph.call_function(function, (total, other))
            total.meta.update(stack=(), val=plain(env.node(e.func(*e.args[:k], evaluate=False), pytype_of(e))) if k < len(e.args) else None)
        return total


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_symbols, value))
    if isinstance(value, dict):
        return any(map(_has_symbols, value.values()))
    if isinstance(value, slice):
        return _has_symbols((value.start, value.stop, value.step))
    return isinstance(value, SYMBOLIC)
