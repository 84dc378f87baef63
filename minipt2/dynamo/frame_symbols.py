"""The symbols of one frame: which inputs have them, what the graph is given for them, and what must turn out true of those that depend on data.

In: inputs as they are lifted. Out: symbolic sizes and strides, numbers, placeholders. ``OutputGraph`` is made of this and of nodes.
Upstream: ``torch/_dynamo/output_graph.py`` (``shape_env``) and ``variables/builder.py``.
"""
from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from .. import shapes
from .. import errors
from ..errors import AssumptionFailed, FixedSize
from ..shapes.known import symbols_in
from .dynamic import Dynamism, size_source, stride_source
from .variables.numbers import SYMBOLIC, NumberVariable

if TYPE_CHECKING:
    from .source import Source


class FrameSymbols:
    """``dynamism`` says what varies; a frame without symbols has no environment."""

    graph: fx.Graph
    dynamism: Dynamism
    _env: "shapes.ShapeEnv | None" = None
    assumes: bool

    @property
    def env(self) -> shapes.ShapeEnv:
        """The symbols of this frame; a frame without any has no environment."""
        if self._env is None:
            self._env = shapes.ShapeEnv(lambda: tx.frames() if (tx := vars(self).get("tx")) else ())
        return self._env

    def _environment_of_data(self) -> shapes.ShapeEnv | None:
        """Where sizes that depend on data get their symbols; None where there shall be none."""
        return None if self.dynamism.dynamic is False else self.env

    def _sizes(self, value: torch.Tensor, source: "Source", static: bool) -> tuple[list | None, list | None]:
        """Sizes and strides of an input some of which are symbols; (None, None) if none is. A stride may be a ``Product`` of sizes."""
        dims = self.dynamism.dims(value, source, static)
        if self.dynamism.dynamic is not False and not isinstance(value, torch.nn.Parameter):
            self.guard(source, "MARKS", tuple(dims))
        if not dims:
            return None, None
        shape: list[Any] = list(value.shape)
        for dim, marked in dims.items():
            given = {"apart": [n for n in shape if isinstance(n, SYMBOLIC)]} if marked is None else {
                "marked": True, "min": marked[0], "max": marked[1]}
            shape[dim] = self.env.symbol(shape[dim], size_source(source, dim), **given)
        symbolic = {dim for dim in dims if isinstance(shape[dim], SYMBOLIC)}
        if not symbolic:
            return None, None
        strides = self.dynamism.strides(value, source, symbolic)
        return shape, [self.env.stride(value.stride(k), stride_source(source, k)) if s is None else s for k, s in enumerate(strides)]

    def number(self, value: int | float, source: "Source") -> NumberVariable | None:
        """A Python number that is to be a symbol; None for one that stays as it is."""
        numbers = self.scratch("numbers")
        if source not in numbers:
            symbol = self.env.number(value, source) if self.dynamism.varies(value, source) else None
            numbers[source] = NumberVariable(symbol, source) if isinstance(symbol, SYMBOLIC) else None
        if numbers[source] is not None:
            self.guard(source, "TYPE", type(value))
        return numbers[source]

    def symbols_of(self, *values: Any) -> list[NumberVariable]:
        """The symbols that occur in numbers, as what a graph or generated code is given for them."""
        given = [s for s in symbols_in(values) if self.env.sources[s.node.expr]]
        return [NumberVariable(s, self.env.sources[s.node.expr][0]) for s in given]

    def _symbol_inputs(self) -> list[NumberVariable]:
        """The symbols of the graph, with a placeholder for each in front of it."""
        if self._env is None:
            return []
        met: list[Any] = []

        def note(value: Any) -> None:
            if isinstance(value, torch.Tensor):
                met.extend(n for n in (*value.shape, *value.stride(), value.storage_offset()) if isinstance(n, SYMBOLIC))
            elif isinstance(value, SYMBOLIC):
                met.append(value)

        for node in self.graph.nodes:
            fx.node.map_aggregate((node.args, node.kwargs, node.meta.get("val")), note)
        symbols = self.symbols_of(*met)
        with self.graph.inserting_before(self.graph._root.next):
            for var in symbols:
                node = self.graph.placeholder(str(var.value))
                node.meta.update(val=var.value, static=False, source=var.source.name(), stack=())
        return symbols

    def _tell_fixed(self) -> None:
        """Say which symbols the code has made numbers, and where. Raises ``FixedSize`` for one that the user has marked dynamic."""
        env = self.env
        for symbol, places in env.sources.items():
            size = env.replace(symbol)
            if not places or not size.is_number:
                continue
            frames = next(r.frames for r in reversed(env.recorded) if symbol in r.fact.free_symbols)
            if symbol in env.marked:
                raise FixedSize("MP217", f"{places[0].name()} was marked dynamic, but this line can only run for size {size}", frames=frames)
            self.dynamism.news.append(f"{places[0].name()} stays {size}, which this line needs: {line_of(frames)}")

    # -- numbers that depend on data ------------------------------------------------------------------------------
    def _unknowns(self) -> int:
        """How many sizes and numbers depend on data so far."""
        return 0 if self._env is None else self._env.count("u")

    def _check_sizes(self, value: Any) -> None:
        """No size may turn out negative, and whatever else the operation took for true of numbers that depend on data has to be."""
        if not self._unknowns():
            return
        for leaf in torch.utils._pytree.tree_leaves(value):
            for n in leaf.shape if isinstance(leaf, torch.Tensor) else ():
                if isinstance(n, torch.SymInt) and n.node.hint is None and isinstance(fact := n >= 0, torch.SymBool):
                    fact.node.expect_true()
        self._write_checks(RuntimeError, None)

    def check(self, fact: torch.SymBool, error: type[Exception], message: str | None) -> None:
        """``fact``, about numbers that depend on data, is taken for true, and checked by the graph."""
        fact.node.expect_true()
        self._write_checks(error, message)

    def assume_fact(self, fact: torch.SymBool) -> None:
        """The same for a fact without which the frame runs as plain Python."""
        self.assumes = True
        self.check(fact, AssumptionFailed, None)

    def _write_checks(self, error: type[Exception], message: str | None) -> None:
        from ..shapes.symint import AsWritten

        written = self.scratch("checks")
        for expected in self.env.asserted[len(written):]:
            written[len(written)] = expected
            self.side_effects.touch()
            fact = torch.SymBool(AsWritten(expected.fact, self.env, bool, None))
            text = message or f"Expected {fact}, which depends on a tensor's data"
            self._bare_node(checked, (fact, error.__name__, text), None).meta["depends_on_data"] = True


def checked(fact: bool, error: str, message: str) -> None:
    """A check that captured code makes when it runs."""
    if not fact:
        raise (getattr(builtins, error, None) or getattr(errors, error))(message)


def line_of(frames: tuple) -> str:
    """Where a size was relied on: the user's innermost line."""
    return f"{frames[-1].file}:{frames[-1].line}: {frames[-1].text}" if frames else ""
