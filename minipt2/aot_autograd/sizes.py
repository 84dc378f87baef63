"""Numbers that only a call knows: sizes in a plan as formulas over the ints and floats that the call is given.

Before ``View(aten.view, ([s0 * s1, 16],))``; after ``View(aten.view, ([Formula("n[0] * n[1]"), 16],))``, where ``n`` are the graph's
symbols in the order of its placeholders. Data, so that it can be written to disk. Upstream: ``SubclassCreationMeta`` and
``SymIntEqByExpr`` of ``torch._functorch._aot_autograd.schemas`` keep symbols instead.
"""
from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, Callable, Sequence

from torch import fx

from ..prims.core import TensorMeta
from ..shapes.known import SYMBOLIC


@dataclass(frozen=True)
class Formula:
    """``text``: Python over ``n``, the call's symbols, and ``math``."""

    text: str

    def __call__(self, numbers: Sequence[int | float]) -> int | float:
        return _compiled(self.text)(numbers)


@functools.lru_cache(4096)
def _compiled(text: str) -> Callable[[Sequence[int | float]], int | float]:
    return eval(f"lambda n: {text}", {"math": math})


def symbol_inputs(graph: fx.Graph) -> list[fx.Node]:
    """The placeholders that are symbols, in order."""
    return [n for n in graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), SYMBOLIC)]


class Formulas:
    """Turns symbolic numbers into formulas; ``symbols``: the graph's inputs that are symbols, in order."""

    def __init__(self, symbols: Sequence[fx.Node]):
        self.names = {s.meta["val"].node.expr: f"n[{k}]" for k, s in enumerate(symbols)}

    def of(self, value: Any) -> Any:
        """``value`` (a number, or data that holds some) with a formula for each symbolic number. Raises KeyError for a symbol of elsewhere."""
        if isinstance(value, SYMBOLIC):
            from ..shapes import python

            return Formula(python(value.node.expr, self.names.__getitem__))
        if isinstance(value, (list, tuple)):
            return (list if isinstance(value, list) else tuple)(map(self.of, value))
        if isinstance(value, dict):
            return {k: self.of(v) for k, v in value.items()}
        if isinstance(value, TensorMeta):
            return TensorMeta(self.of(value.shape), value.dtype, value.device, self.of(value.strides))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **{f.name: self.of(getattr(value, f.name)) for f in dataclasses.fields(value)})
        return value


def evaluated(value: Any, numbers: Sequence[int | float]) -> Any:
    """``value`` with every formula computed."""
    if isinstance(value, Formula):
        return value(numbers)
    if isinstance(value, (list, tuple)):
        return type(value)([evaluated(v, numbers) for v in value])
    if isinstance(value, dict):
        return {k: evaluated(v, numbers) for k, v in value.items()}
    if isinstance(value, TensorMeta):
        return TensorMeta(evaluated(value.shape, numbers), value.dtype, value.device, evaluated(value.strides, numbers))
    return value


def layouts(gm: fx.GraphModule) -> Callable[[list], Callable[[fx.Node], Any]]:
    """For backends that run a graph node by node: given the arguments of a call, the metadata of each node's value.

    Sizes that vary, and numbers made of them, become nodes of ``gm`` that compute them.
    """
    symbols = symbol_inputs(gm.graph)
    if not symbols:
        return lambda args: lambda node: node.meta["val"]
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    places, formulas = list(map(inputs.index, symbols)), Formulas(symbols)
    recorded = {n: formulas.of(n.meta["val"]) for n in gm.graph.nodes if n.op != "output" and isinstance(n.meta["val"], TensorMeta)}
    from ..shapes import materialize

    materialize(gm)

    def look(args: list) -> Callable[[fx.Node], Any]:
        numbers = [args[i] for i in places]
        return lambda node: evaluated(recorded[node], numbers) if node in recorded else node.meta["val"]
    return look
