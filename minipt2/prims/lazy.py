"""Graphs as stages hand them on: symbolic numbers among arguments, and Python code that is written only when a graph is called or shown."""
from __future__ import annotations

from typing import Any

from torch import fx


class Graph(fx.Graph):
    """As ``fx.Graph``, which in some versions of torch searches the arguments of every new node for symbolic numbers, and warns of them.

    They are replaced by nodes before Python runs the graph (``shapes.materialize``).
    """

    def create_node(self, op: str, target: Any, args: tuple | None = None, kwargs: dict[str, Any] | None = None, name: str | None = None,
                    type_expr: Any | None = None) -> fx.Node:
        if op not in ("call_function", "call_method"):
            return super().create_node(op, target, args, kwargs, name, type_expr)
        node = super().create_node(op, target, (), {}, name, type_expr)
        if args:
            node.args = args
        if kwargs:
            node.kwargs = kwargs
        return node


class LazyGraphModule(fx.GraphModule):
    """As ``fx.GraphModule``; generating and compiling source text costs about as much as expanding the graph.

    Upstream: ``torch.fx._lazy_graph_module``.
    """

    def recompile(self) -> None:
        """Note that the graph changed."""
        type(self).forward = LazyGraphModule.forward

    def forward(self, *args: Any) -> Any:
        self.real_recompile()
        return self(*args)

    def real_recompile(self) -> None:
        """Generate ``forward`` from the graph now."""
        super().recompile()

    @property
    def code(self) -> str:
        if type(self).forward is LazyGraphModule.forward:
            self.real_recompile()
        return super().code
