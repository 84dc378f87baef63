"""Symbolic numbers in a graph as nodes that compute them.

before: ``view(x, [s0, 4 * s1])`` with SymInts directly among the arguments
after:  ``m = mul(4, s1); view(x, [s0, m])`` where ``s0`` and ``s1`` are the graph's inputs

so that plain Python runs the graph on numbers. Upstream: what ``make_fx`` records as it traces with symbols.
"""
from __future__ import annotations

from typing import Any

import sympy
from torch import fx

from .functions import meaning, pytype_of
from .symint import SYMBOLIC, Node, plain


def materialize(gm: fx.GraphModule) -> fx.GraphModule:
    """``gm``, changed in place and recompiled where it held symbolic numbers. Raises KeyError for a symbol that is no input of it."""
    graph = gm.graph
    holders = [n for n in graph.nodes if n.op != "placeholder" and _has_symbols((n.args, n.kwargs))]
    if not holders:
        return gm
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    known = {n.meta["val"].node.expr: n for n in placeholders if isinstance(n.meta.get("val"), SYMBOLIC)}
    anchor = placeholders[-1].next
    for holder in holders:
        for leaf in ("args", "kwargs"):
            setattr(holder, leaf, fx.node.map_aggregate(getattr(holder, leaf), lambda a: _node(graph, anchor, known, a)))
    graph.lint()
    gm.recompile()
    return gm


def _has_symbols(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_symbols, value))
    if isinstance(value, dict):
        return any(map(_has_symbols, value.values()))
    if isinstance(value, slice):
        return _has_symbols((value.start, value.stop, value.step))
    return isinstance(value, SYMBOLIC)


def _node(graph: fx.Graph, anchor: fx.Node, known: dict[sympy.Basic, Any], value: Any) -> Any:
    """The node that computes a symbolic number; other values stay."""
    if not isinstance(value, SYMBOLIC):
        return value
    with graph.inserting_before(anchor):
        return _compute(graph, known, value.node.expr, value.node)


def _compute(graph: fx.Graph, known: dict[sympy.Basic, Any], e: sympy.Basic, of: Node) -> Any:
    if e in known:
        return known[e]
    if not e.args:
        if e.is_Symbol:
            raise KeyError(f"{e} is no input of the graph")
        return of.env.hint(e)
    args = [_compute(graph, known, a, of) for a in e.args]
    function, binary = meaning(e)
    result = args[0]
    for other in [args[1:]] if not binary else [[a] for a in args[1:]]:
        result = graph.call_function(function, (result, *other))
        result.meta.update(stack=())
    known[e] = result
    result.meta["val"] = plain(of.env.node(e, pytype_of(e)))
    return result
