"""Symbolic numbers in a graph as nodes that compute them.

before: ``view(x, [s0, 4 * s1])`` with SymInts directly among the arguments
after:  ``m = mul(4, s1); view(x, [s0, m])`` where ``s0`` and ``s1`` are the graph's inputs

so that plain Python runs the graph on numbers. Upstream: what ``make_fx`` records as it traces with symbols.
"""
from __future__ import annotations

import operator
from typing import Any

import sympy
from torch import fx

from .functions import meaning, pytype_of
from .known import SYMBOLIC, plain
from .poly import atom, poly
from .relations import single
from .symint import Node


def materialize(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm``, changed in place and recompiled where it held symbolic numbers.

    A node's ``meta["shows"]`` lists what tells symbols that depend on data: (which of its results, dimension or None for the number itself,
    the expression). Raises KeyError for a symbol that is no input of the graph and shown by no node.
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
        self.shown: dict[sympy.Symbol, tuple[fx.Node, int, int | None, int]] = {}
        """Symbols that depend on data: the node, which of its results, and the dimension whose size is the symbol plus so much."""

    def note(self, node: fx.Node) -> None:
        """Remember which symbols ``node`` is or shows."""
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, SYMBOLIC):
            self.known[value.node.expr] = node
        for k, dim, e in node.meta.get("shows", ()):
            if dim is None and value is not None and isinstance(value, SYMBOLIC):
                self.known[e] = node
            elif (p := single(poly(e))) is not None and p[1] == 1 and atom(p[0]).is_Symbol:
                self.shown.setdefault(atom(p[0]), (node, k, dim, p[2]))

    def given(self, value: Any) -> Any:
        """The node for a symbolic number; other values stay."""
        return self.node(value.node.expr, value.node) if isinstance(value, SYMBOLIC) else value

    def node(self, e: sympy.Basic, like: Node) -> Any:
        if e not in self.known:
            self.known[e] = self.made(e, like) if e.args else self.symbol(e) if e.is_Symbol else like.env.hint(e)
            if isinstance(self.known[e], fx.Node):
                self.known[e].meta.update(stack=(), val=plain(like.like(e, pytype_of(e))))
        return self.known[e]

    def symbol(self, symbol: sympy.Symbol) -> fx.Node:
        node, k, dim, more = self.shown[symbol]
        value = node.meta["val"]
        if isinstance(value, (tuple, list)):
            node, value = self.graph.call_function(operator.getitem, (node, k)), value[k]
            node.meta.update(stack=(), val=value)
        size = node if dim is None else self.graph.call_method("size", (node, dim))
        if not more:
            return size
        size.meta.update(stack=(), val=value.shape[dim])
        return self.graph.call_function(operator.sub, (size, more))

    def made(self, e: sympy.Basic, like: Node) -> fx.Node:
        function, binary = meaning(e)
        first, *others = [self.node(a, like) for a in e.args]
        if not binary:
            return self.graph.call_function(function, (first, *others))
        total = first
        for k, other in enumerate(others, 2):
            total = self.graph.call_function(function, (total, other))
            if k < len(e.args):
                part = e.func(*e.args[:k], evaluate=False)
                total.meta.update(stack=(), val=plain(like.like(part, pytype_of(part))))
        return total


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_symbols, value))
    if isinstance(value, dict):
        return any(map(_has_symbols, value.values()))
    if isinstance(value, slice):
        return _has_symbols((value.start, value.stop, value.step))
    return isinstance(value, SYMBOLIC)
