"""The end of a program: outputs with the strides callers expect, and mutated inputs written in place.

Upstream: ``GraphLowering.output`` and ``MutationLayoutSHOULDREMOVE``.
"""
from __future__ import annotations

from typing import Any

import sympy
from torch import fx

from ..ir import Input, Output, Recorder, TensorRef, loop_vars
from ..ops import DTYPES, ops
from .tensors import NUMBERS, Lazy, Place, Stored, Target, Tensor, View


def finish(g: Any, leaves: list[Any], mutated: dict[int, int]) -> list[Output]:
    """Realise every output; writes to inputs come last, after everything that reads their old values."""
    by_position = {i.position: i for i in g.inputs}
    in_place = {k: by_position[j] for k, j in mutated.items() if _writable(g, leaves[k], by_position.get(j))}
    overwritten = {i.name for i in in_place.values()}
    results = {k: _output(g, leaf, overwritten) for k, leaf in enumerate(leaves) if k not in in_place}
    values = {k: _detached(g, g.env[leaves[k]], target, overwritten) for k, target in in_place.items()}
    for k, target in in_place.items():
        _write(g, values[k], leaves[k], target)
        results[k] = Output(TensorRef(target.name))
    return [results[k] for k in range(len(leaves))]


def _writable(g: Any, leaf: Any, target: Any) -> bool:
    """In place only where the input has the output's elements, each at a place of its own."""
    if target is None or not isinstance(leaf, fx.Node) or isinstance(g.env[leaf], (*NUMBERS, type(None))):
        return False
    value, layout = g.env[leaf], target.layout
    return value.sizes == layout.sizes and value.dtype == layout.dtype and value.dtype in DTYPES and all(
        s != 0 or n == 1 for n, s in zip(layout.sizes, layout.strides))


def _output(g: Any, leaf: Any, overwritten: set[str]) -> Output:
    value = g.env[leaf] if isinstance(leaf, fx.Node) else g.symbols.number(leaf)
    if value is None or isinstance(value, NUMBERS):
        return Output(None, value)
    val = leaf.meta["val"]
    strides = g.symbols.sizes(val.stride())
    _want_source(g, value, strides)
    fresh = isinstance(value, Lazy) and value.copy_of is not None and value.place() is None
    place = _stored(g, value, strides) if fresh else g.place_as(value, strides)
    if place.name in overwritten or place.name.startswith("const"):
        place = g.store_copy(value, strides)
    return Output(g.ref(place))


def _stored(g: Any, value: Lazy, strides: tuple[Any, ...]) -> Place:
    value.strides, value.exact = strides, True
    return g.store(value)


def _want_source(g: Any, value: Tensor, strides: tuple[Any, ...]) -> None:
    """A slice that eager returns as a view of something larger: compute the whole, so that its strides are eager's."""
    while isinstance(value, View) and value.place() is None:
        if value.kind == "slice" and isinstance(value.source, Lazy):
            g.realize(value.source)
        value = value.source


def _detached(g: Any, value: Tensor, target: Input, overwritten: set[str]) -> Tensor:
    """``value``, or a copy of it if it reads an overwritten input anywhere but at the element it will be stored to."""
    layout, place = target.layout, value.place()
    if place is not None and (place.name not in overwritten or place == Place(target.name, layout)):
        return value
    index = [sympy.S.Zero if n == 1 else v for n, v in zip(layout.sizes, loop_vars("p", len(layout.sizes)))]
    recorder = Recorder(lambda name: g.layouts[name].dtype, dict(zip(index, layout.sizes)))
    with ops.use(recorder):
        value.load(index)
    own = target.name, layout.index(index)
    if all(read == own or read[0] not in overwritten for read in recorder.reads):
        return value
    return Stored(*g.store_copy(value, layout.strides))


def _write(g: Any, value: Tensor, leaf: fx.Node, target: Input) -> None:
    """Store ``value`` into the input's own memory."""
    if value.place() == Place(target.name, target.layout):
        return
    out = Target(target.name, target.layout)
    g.emit_loops(g.new_name(), target.layout, target.layout.sizes, (), lambda index: out.store(index, value.load(index)), leaf)
