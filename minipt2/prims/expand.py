"""``expand``: one linear pass from an ATen graph to a graph of prims and explicit fallbacks.

Rules call prims, prims record nodes, and recording simplifies and shares on the way; rules may call other rules, so one pass reaches the
fixpoint. Upstream: ``make_fx(..., decomposition_table=...)``, which re-dispatches every operator through FakeTensor instead.
"""
from __future__ import annotations

import operator
from typing import Any, Callable, Mapping

import torch
from torch import fx

from ..config import config
from ..exercise import exercise
from ..shapes.known import equal_all, same, same_all
from . import ops as p
from .core import Prim, Recorder, TensorMeta, Value
from .decompositions import NoRule, decompositions
from .kinds import drop_dead, kind
from .lazy import LazyGraphModule
from .meta import contiguous_strides, is_apart, is_dense, same_layout

_KEPT_BY_NODE = ("val", "fallback")
_REASONS = {"random": "draws random numbers as eager does", "contraction": "a library kernel, kept whole", "effect": "checks values as eager does"}


def expand(gm: fx.GraphModule, table: Mapping[Any, Callable[..., Any]] | None = None) -> fx.GraphModule:
    """A new module that computes what ``gm`` does with prims; nodes without a rule stay, with the reason in ``meta["fallback"]``.

    ``gm`` is functional, ``call_function`` on ATen overloads (prims are allowed), every node with ``meta["val"]``. Placeholders, outputs,
    the outputs' strides, ``meta["stack"]`` and ``gm.meta`` are kept. ``table`` maps overloads to rules; default: all of them.
    """
    expansion = _Expansion(decompositions if table is None else table)
    with expansion.recorder:
        for node in gm.graph.nodes:
            expansion.visit(node)
    drop_dead(expansion.recorder.graph)
    result = LazyGraphModule(gm, expansion.recorder.graph)
    result.meta.update(gm.meta)
    return result


class _Expansion:
    """State of one ``expand``: what each node of the old graph became (a Value, a tuple of them, a number, or an opaque new node)."""

    def __init__(self, table: Mapping[Any, Callable[..., Any]]):
        self.table, self.recorder = table, Recorder()
        self.env: dict[fx.Node, Any] = {}
        self.opaque = False

    def visit(self, node: fx.Node) -> None:
        if node.op == "call_function":
            self.recorder.origin = {k: v for k, v in node.meta.items() if k not in _KEPT_BY_NODE}
            self.env[node] = self.call(node)
        elif node.op == "output":
            self.output(node)
        else:
            self.env[node] = self.leaf(node)

    def leaf(self, node: fx.Node) -> Any:
        """Placeholders and constants keep name and metadata."""
        new = self.recorder.graph.create_node(node.op, node.target, (), {}, node.name)
        new.meta.update(node.meta)
        val = node.meta.get("val")
        value = Value(TensorMeta.of(val), new) if _is_strided(val) else new
        self.recorder.values[new] = value
        return value

    @exercise("4.4")
    def call(self, node: fx.Node) -> Any:
        """What a node becomes: a prim's or a rule's result, or the same call again with the reason."""
        # >>> 4.4
        self.opaque = False
        args = tuple([self.resolve(a) for a in node.args])
        kwargs = {k: self.resolve(v) for k, v in node.kwargs.items()}
        target = node.target
        if target is operator.getitem and not isinstance(args[0], fx.Node):
            return args[0][args[1]]
        if isinstance(target, Prim):
            return self.checked(node, target(*args))
        rule = self.table.get(target)
        if rule is None:
            return self.fallback(node, args, kwargs, _REASONS.get(kind(node), "no decomposition"))
        if self.opaque:
            return self.fallback(node, args, kwargs, "an operand is complex, sparse or not a tensor")
        if kind(node) == "random":
            args = tuple([self.as_recorded(old, new) for old, new in zip(node.args, args)])
        try:
            return self.checked(node, rule(*args, **kwargs))
        except NoRule as reason:
            return self.fallback(node, args, kwargs, str(reason))
        except Exception as error:  # a faulty rule costs speed, not the user's program
            if config.raise_internal_errors:
                raise
            return self.fallback(node, args, kwargs, f"its rule failed with {type(error).__name__}: {error}")
        # <<< 4.4

    def as_recorded(self, old: Any, new: Any) -> Any:
        """An operand of random numbers in the memory order it had: eager draws in that order."""
        if not isinstance(new, Value):
            return new
        strides = tuple(old.meta["val"].stride())
        return new if same_layout(new.shape, new.strides, strides) or not is_dense(new.shape, strides) else p.copy_strided(new, strides)

    @exercise("4.4")
    def resolve(self, arg: Any) -> Any:
        """Arguments in terms of the new graph; notes operands that no rule can compute with."""
        # >>> 4.4
        if isinstance(arg, fx.Node):
            arg = self.env[arg]
            if isinstance(arg, fx.Node) or (isinstance(arg, Value) and arg.dtype.is_complex):
                self.opaque = True
            return arg
        if isinstance(arg, (tuple, list)):
            return [self.resolve(a) for a in arg]
        if isinstance(arg, complex) or (isinstance(arg, torch.dtype) and arg.is_complex):
            self.opaque = True
        return arg
        # <<< 4.4

    def fallback(self, node: fx.Node, args: Any, kwargs: Any, why: str) -> Any:
        """The same call in the new graph."""
        val = node.meta.get("val")
        self.recorder.origin = {**self.recorder.origin, "fallback": why}
        if isinstance(val, (tuple, list)):
            val = tuple([TensorMeta.of(v) if _is_strided(v) else v for v in val])
        elif _is_strided(val):
            val = TensorMeta.of(val)
        return self.recorder.emit(node.target, args, kwargs, val)

    def checked(self, node: fx.Node, result: Any) -> Any:
        """Contractions take the recorded layout; raises ``AssertionError`` unless shapes and dtypes are the recorded ones."""
        val = node.meta.get("val")
        pairs = zip(result, val) if isinstance(result, (tuple, list)) else ((result, val),)
        for value, recorded in pairs:
            if not isinstance(value, Value) or recorded is None:
                continue
            if value.dtype is not recorded.dtype or not equal_all(value.shape, recorded.shape):
                raise AssertionError(f"{node.format_node()}: expanded to {value}, recorded {TensorMeta.of(recorded)}")
            made_by = value.node.args[0].target if value.node.target is operator.getitem else value.node.target
            if isinstance(made_by, Prim) and made_by.kind == "contraction" and _is_strided(recorded):
                value.strides = value.node.meta["val"].strides = tuple(recorded.stride())
        return result

    def output(self, node: fx.Node) -> None:
        """Outputs keep their strides, and stay tensors of their own where they were."""
        self.recorder.origin = {}
        taken: dict[fx.Node, fx.Node] = {}
        settled: dict[fx.Node, fx.Node] = {}

        def restore(arg: Any) -> Any:
            if isinstance(arg, (tuple, list)):
                return type(arg)([restore(a) for a in arg])
            new = self.env[arg] if isinstance(arg, fx.Node) else arg
            if not isinstance(new, Value):
                return new
            if arg not in settled:
                settled[arg] = self.settle(arg, new, taken).node
            return settled[arg]

        created = self.recorder.graph.create_node("output", "output", (restore(node.args[0]),))
        created.meta.update(node.meta)

    def settle(self, old: fx.Node, value: Value, taken: dict[fx.Node, fx.Node]) -> Value:
        recorded = old.meta.get("val")
        self.recorder.origin = {k: v for k, v in old.meta.items() if k not in _KEPT_BY_NODE}
        strides = tuple(recorded.stride()) if _is_strided(recorded) else value.strides
        base, old_base = _base(value.node), _base(old)
        aliases = base.op in ("placeholder", "get_attr") and old_base.op not in ("placeholder", "get_attr")
        shared = not aliases and taken.setdefault(base, old_base) is not old_base
        empty = any(same(n, 0) for n in value.shape)
        kept = is_dense(value.shape, strides) or _can_have(value, strides)  # else elements that share memory get places of their own
        alike = same_layout(value.shape, value.strides, strides)
        if aliases or shared or not (alike or empty) and kept:
            args = (value, strides if kept and not empty else contiguous_strides(value.shape))
            return self.recorder.emit(p.copy_strided, args, {}, p.copy_strided.meta(*args))  # not shared: two outputs, two tensors
        if alike and not same_all(value.strides, strides) and value.node.op == "call_function":  # only where there is one element along a dimension
            value.strides = value.node.meta["val"].strides = strides
        return value


def _can_have(value: Value, strides: tuple[Any, ...]) -> bool:
    """Whether ``copy_strided`` can make these: apart, or 0 where ``value`` repeats itself."""
    shown = [(n, s) for n, s, t in zip(value.shape, strides, value.strides) if not (same(s, 0) and same(t, 0))]
    return is_apart([n for n, _ in shown], [s for _, s in shown])


def _is_strided(val: Any) -> bool:
    return isinstance(val, TensorMeta) or (isinstance(val, torch.Tensor) and val.layout is torch.strided and not val.is_quantized)


def _base(node: fx.Node) -> fx.Node:
    """The node whose memory ``node`` shows: views are followed to their operand."""
    while node.op == "call_function" and kind(node) == "view" and isinstance(node.args[0], fx.Node):
        if node.target is operator.getitem and kind(node.args[0]) != "view":
            break
        node = node.args[0]
    return node
