"""Graphs compiled in pieces: where sizes depend on data, and where the caller wants a cut.

before: ``y = relu(x); n = nonzero(y); z = n * 2``: a size that is known only when ``nonzero`` has run
after:  a compiled piece ``x -> y``; ``nonzero`` as it is; a compiled piece ``(u0, n) -> z``

What makes such a size runs between two pieces; what follows takes the size as an input like any other, and autograd connects the
pieces. So no later stage has to know of sizes that come up within a graph. Upstream keeps such graphs whole.
"""
from __future__ import annotations

import contextlib
import operator
from typing import Any, Callable, Collection, Iterator, NamedTuple, Sequence

import torch
from torch import fx
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.utils import _pytree as pytree

from ..errors import at_user_lines
from ..prims.lazy import Graph
from ..shapes.known import SYMBOLIC, symbols_in

_SWITCHES = (torch._C._set_grad_enabled, _enter_autocast, _exit_autocast)
Compile = Callable[[fx.GraphModule, list], Callable[..., Sequence[Any]]]


def in_pieces(gm: fx.GraphModule, example_inputs: list, compile: Compile, cuts: Collection[fx.Node] = ()) -> Callable[..., Sequence[Any]]:
    """``compile(gm, example_inputs)``, piece by piece where nodes of ``gm`` are marked ``meta["depends_on_data"]``, and before each of ``cuts``."""
    if not cuts and not any(node.meta.get("depends_on_data") for node in gm.graph.nodes):
        return compile(gm, example_inputs)
    return Pieces(gm, compile, cuts)


class Modes(NamedTuple):
    """Under which modes a node runs: whether gradients are recorded, and the nodes that entered an autocast, the outermost first."""

    grad: bool
    autocasts: tuple[fx.Node, ...] = ()

    def after(self, node: fx.Node) -> "Modes":
        if node.target is torch._C._set_grad_enabled:
            return self._replace(grad=node.args[0])
        if node.target is _enter_autocast:
            return self._replace(autocasts=(*self.autocasts, node))
        if node.target is _exit_autocast:
            return self._replace(autocasts=tuple(n for n in self.autocasts if n is not node.args[0]))
        return self

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Within, these modes."""
        with torch.set_grad_enabled(self.grad):
            tokens = [_enter_autocast(*node.args) for node in self.autocasts]
            try:
                yield
            finally:
                for token in reversed(tokens):
                    _exit_autocast(token)


class Pieces:
    """What runs in turn: compiled pieces, and single nodes between them. Called like ``gm``."""

    def __init__(self, gm: fx.GraphModule, compile: Compile, cuts: Collection[fx.Node] = ()):
        self.gm, self.compile, self.cuts = gm, compile, cuts
        self.inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
        self.output = next(n for n in reversed(gm.graph.nodes) if n.op == "output")
        self.steps: list[_Alone | _Piece] = []
        self.outer = Modes(torch.is_grad_enabled())
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
        start = modes = self.outer
        alone = set()
        for node in self.gm.graph.nodes:
            if node.op in ("placeholder", "output", "get_attr"):
                continue
            if node in self.cuts:
                self._piece(nodes, start, modes)
                nodes, start = [], modes
            if node.meta.get("depends_on_data") or node.target is operator.getitem and node.args[0] in alone:
                alone.add(node)
                self._piece(nodes, start, modes)
                self.steps.append(_Alone(self.gm, node, modes))
                nodes, start = [], modes
            elif not isinstance(node.meta.get("val"), SYMBOLIC):  # such are computed where they are needed
                modes = modes.after(node)
                nodes.append(node)
        self._piece(nodes, start, modes)

    def _piece(self, nodes: list[fx.Node], start: Modes, end: Modes) -> None:
        if any(node.target not in _SWITCHES for node in nodes):
            self.steps.append(_Piece(self.gm, nodes, start, end, self.outer.grad))

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

    def __init__(self, gm: fx.GraphModule, node: fx.Node, modes: Modes):
        self.gm, self.node, self.modes = gm, node, modes
        self.needs = node.all_input_nodes
        self.shows = node.meta.get("shows", ())

    def __call__(self, values: dict, symbols: dict) -> None:
        args, kwargs = _filled((self.node.args, self.node.kwargs), {**values, **_attributes(self.gm, self.needs)}, symbols)
        try:
            with self.modes.on():
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
    """Nodes in a row as a graph of their own. Its nodes begin under modes ``start`` and leave ``end``; outside it, gradients are as ``outer`` says."""

    def __init__(self, gm: fx.GraphModule, nodes: list[fx.Node], start: Modes, end: Modes, outer: bool):
        self.gm, self.nodes, self.start, self.end, self.outer = gm, nodes, start, end, outer
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
        self._switch(graph, self.outer, self.start.grad)
        for node in self.start.autocasts:
            _copy(graph, node, copies)
        for node in self.nodes:
            _copy(graph, node, copies)
        for node in reversed(self.end.autocasts):
            graph.call_function(_exit_autocast, (copies[node],)).meta.update(val=None, stack=())
        self._switch(graph, self.end.grad, self.outer)
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
    return [n for n in nodes if n.target is not _enter_autocast and not isinstance(n.meta.get("val"), SYMBOLIC)]


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
