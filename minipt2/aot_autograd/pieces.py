"""Graphs in which sizes depend on data, compiled in pieces.

before: ``y = relu(x); n = nonzero(y); z = n * 2``: a size that is known only when ``nonzero`` has run
after:  a compiled piece ``x -> y``; ``nonzero`` as it is; a compiled piece ``(u0, n) -> z``

What makes such a size runs between two pieces; what follows takes the size as an input like any other, and autograd connects the
pieces. So no later stage has to know of sizes that come up within a graph. Upstream keeps such graphs whole.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, Sequence

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..errors import at_user_lines
from ..prims.lazy import Graph
from ..shapes.known import SYMBOLIC, symbols_in

Compile = Callable[[fx.GraphModule, list], Callable[..., Sequence[Any]]]


def in_pieces(gm: fx.GraphModule, example_inputs: list, compile: Compile) -> Callable[..., Sequence[Any]]:
    """``compile(gm, example_inputs)``, piece by piece where nodes of ``gm`` are marked ``meta["depends_on_data"]``."""
    if not any(node.meta.get("depends_on_data") for node in gm.graph.nodes):
        return compile(gm, example_inputs)
    return Pieces(gm, compile)


class Pieces:
    """What runs in turn: compiled pieces, and single nodes between them. Called like ``gm``."""

    def __init__(self, gm: fx.GraphModule, compile: Compile):
        self.gm, self.compile = gm, compile
        self.inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
        self.steps: list[_Alone | _Piece] = []
        self.grad = torch.is_grad_enabled()
        self._cut()
        self._free_early()

    def __call__(self, *args: Any) -> tuple:
        values = dict(zip(self.inputs, args))
        symbols = {n.meta["val"].node.expr: value for n, value in values.items() if isinstance(n.meta.get("val"), SYMBOLIC)}
        for step, last in zip(self.steps, self.last):
            step(values, symbols)
            for node in last:
                values.pop(node, None)
        return tuple(_filled(self.output.args[0], values, symbols))

    def _cut(self) -> None:
        nodes: list[fx.Node] = []
        grad, alone = self.grad, set()
        for node in self.gm.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            if node.meta.get("depends_on_data") or node.target is operator.getitem and node.args[0] in alone:
                alone.add(node)
                self._piece(nodes, grad)
                self.steps.append(_Alone(self.gm, node, grad))
                nodes = []
            elif not isinstance(node.meta.get("val"), SYMBOLIC):  # such are computed where they are needed
                grad = node.args[0] if node.target is torch._C._set_grad_enabled else grad
                nodes.append(node)
        self._piece(nodes, grad)

    def _piece(self, nodes: list[fx.Node], grad: bool) -> None:
        if nodes:
            before = [n.args[0] for n in nodes if n.target is torch._C._set_grad_enabled]
            start = self.steps[-1].grad if self.steps else self.grad
            self.steps.append(_Piece(self.gm, nodes, start, grad if before else start, self.grad))

    def _free_early(self) -> None:
        """The steps compiled, and after which of them each value is needed no more."""
        last: dict[fx.Node, int] = {}
        for k, step in enumerate(self.steps):
            last.update(dict.fromkeys(step.needs, k))
        kept = set(self.output.all_input_nodes)
        self.last = [[n for n, at in last.items() if at == k and n not in kept] for k in range(len(self.steps))]
        wanted = kept.union(*(step.needs for step in self.steps))
        for step in self.steps:
            if isinstance(step, _Piece):
                step.build(wanted, self.compile)


class _Alone:
    """A node that runs as it is, and the symbols that its result tells."""

    def __init__(self, gm: fx.GraphModule, node: fx.Node, grad: bool):
        self.gm, self.node, self.grad = gm, node, grad
        self.needs = node.all_input_nodes
        self.shows = node.meta.get("shows", ())

    def __call__(self, values: dict, symbols: dict) -> None:
        args, kwargs = _filled((self.node.args, self.node.kwargs), {**values, **_attributes(self.gm, self.needs)}, symbols)
        try:
            with torch.set_grad_enabled(self.grad):
                if self.node.op == "call_function":
                    result = self.node.target(*args, **kwargs)
                else:
                    result = getattr(args[0], self.node.target)(*args[1:], **kwargs)
        except Exception as error:
            at_user_lines(error, self.node.meta.get("stack", ()))
            raise
        values[self.node] = result
        leaves = pytree.tree_leaves(result)
        for k, d, e in self.shows:
            _learn(symbols, e, leaves[k] if d is None else leaves[k].shape[d])


class _Piece:
    """Nodes in a row as a graph of their own. It starts under grad mode ``start`` and leaves ``end``; outside both is ``outer``."""

    def __init__(self, gm: fx.GraphModule, nodes: list[fx.Node], start: bool, end: bool, outer: bool):
        self.gm, self.nodes, self.start, self.grad, self.outer = gm, nodes, start, end, outer
        inside = set(nodes)
        self.needs = list(dict.fromkeys(n for node in nodes for n in _tensors_among(node.all_input_nodes) if n not in inside))

    def build(self, wanted: set[fx.Node], compile: Compile) -> None:
        graph = Graph()
        self.results = [n for n in self.nodes if n in wanted]
        self.symbols = _symbols_of([*self.needs, *self.nodes])
        copies: dict[fx.Node, Any] = {}
        examples: list[Any] = []
        for symbol in self.symbols:
            self._placeholder(graph, symbol.node.expr.name, symbol, {"static": False}, examples)
        for node in self.needs:
            if node.op == "get_attr":
                copies[node] = graph.node_copy(node)
            else:
                copies[node] = self._placeholder(graph, node.name, node.meta["val"], node.meta, examples)
        self.needs = [n for n in self.needs if n.op != "get_attr"]
        self._switch(graph, self.outer, self.start)
        for node in self.nodes:
            _copy(graph, node, copies)
        self._switch(graph, self.grad, self.outer)
        graph.output(tuple(copies[n] for n in self.results))
        module = fx.GraphModule(self.gm, graph)
        module.meta["name"] = f"{self.gm.meta.get('name', 'graph')}_piece_{self.nodes[0].name}"
        if self.symbols:
            from ..shapes import materialize

            materialize(module)
        self.function = compile(module, examples)

    def __call__(self, values: dict, symbols: dict) -> None:
        results = self.function(*[symbols[s.node.expr] for s in self.symbols], *[values[n] for n in self.needs])
        values.update(zip(self.results, results))

    @staticmethod
    def _placeholder(graph: fx.Graph, name: str, example: Any, meta: dict, examples: list) -> fx.Node:
        node = graph.placeholder(name)
        node.meta = {**meta, "val": example}
        examples.append(example)
        return node

    @staticmethod
    def _switch(graph: fx.Graph, before: bool, after: bool) -> None:
        if before != after:
            graph.call_function(torch._C._set_grad_enabled, (after,)).meta.update(val=None, stack=())


def _copy(graph: fx.Graph, node: fx.Node, copies: dict[fx.Node, Any]) -> None:
    """``node`` in ``graph``; numbers among its arguments are given as such."""
    def given(n: fx.Node) -> Any:
        return n.meta["val"] if isinstance(n.meta.get("val"), SYMBOLIC) else copies[n]

    copies[node] = graph.create_node(node.op, node.target, *fx.map_arg((node.args, node.kwargs), given), node.name)
    copies[node].meta = dict(node.meta)


def _tensors_among(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    return [n for n in nodes if not isinstance(n.meta.get("val"), SYMBOLIC)]


def _symbols_of(nodes: Sequence[fx.Node]) -> list[Any]:
    """The symbols in what the nodes give and take, as SymInts and SymFloats."""
    met: list[Any] = []
    for node in nodes:
        numbers = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), SYMBOLIC)]
        for leaf in pytree.tree_leaves((node.meta.get("val"), numbers)):
            met += [leaf] if isinstance(leaf, SYMBOLIC) else [*leaf.shape, *leaf.stride(), leaf.storage_offset()] if isinstance(leaf, torch.Tensor) else []
    return symbols_in([n for n in met if isinstance(n, SYMBOLIC)])


def _attributes(gm: fx.GraphModule, nodes: Sequence[fx.Node]) -> dict[fx.Node, Any]:
    return {n: operator.attrgetter(n.target)(gm) for n in nodes if n.op == "get_attr"}


def _filled(structure: Any, values: dict, symbols: dict) -> Any:
    """Nodes replaced by their values, numbers computed."""
    from ..shapes import value

    def fill(n: fx.Node) -> Any:
        if n in values:
            return values[n]
        return value(n.meta["val"].node.expr, symbols)

    return fx.map_arg(structure, fill)


def _learn(symbols: dict, e: Any, number: Any) -> None:
    """The symbol that ``e`` (linear in one) is made of, now that its value is known."""
    from ..shapes.relations import solve

    new = [s for s in e.free_symbols if s not in symbols]
    if len(new) == 1:
        known = solve(e, new[0], number, symbols)
        if known is not None:
            symbols[new[0]] = known
