"""The graph of one frame while it grows: nodes run once on fake tensors, inputs lifted by identity, guards gathered.

In: operations from the translator. Out: an ``fx.GraphModule`` whose placeholders are the tensors it was given (parameters
and buffers too) and whose output is a flat tuple of tensors. Upstream: ``torch/_dynamo/output_graph.py``.
"""
from __future__ import annotations

import operator
from types import CodeType
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch import fx

from .. import shapes, trace
from ..assume import ASSUME
from ..errors import Unsupported
from ..fake import DataDependent, DynamicShape, FakeMode, FakeTensor, Unfakeable, run, steps_vary
from ..prims.lazy import Graph
from ..shapes.known import shown_by
from .assumptions import version_of
from .dynamic import Dynamism
from .frame_symbols import FrameSymbols, line_of
from .guard_kinds import Distinct, Product
from .modes import GlobalState
from .side_effects import SideEffects
from .variables.base import Variable, unsupported
from .variables.numbers import NumberVariable
from .variables.tensor import TensorVariable, wrap_output

if TYPE_CHECKING:
    from .source import Source
    from .translator import Translator
    from .variables.functions import CellVariable

_graph_count = 0
QUANTIZING = frozenset(
    "quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel _empty_affine_quantized _empty_per_channel_affine_quantized "
    "empty_quantized _make_per_tensor_quantized_tensor _make_per_channel_quantized_tensor".split()
)
"""Functions and operators that make quantized tensors of others."""


class OutputGraph(FrameSymbols):
    """Everything one attempt at a frame produces. ``backend`` and the frame's facts come from ``eval_frame``."""

    def __init__(self, code: CodeType, f_globals: dict, f_builtins: dict, closure: tuple, dynamism: Dynamism | None = None):
        self.code, self.f_globals, self.f_builtins, self.dynamism = code, f_globals, f_builtins, dynamism or Dynamism(False)
        self.graph = Graph()
        self.attributes: dict[str, Any] = {}
        self.guards: dict[Any, None] = {}
        self.side_effects = SideEffects()
        self.fake_mode = FakeMode()
        self.fake_mode.environment = self._environment_of_data
        self.state = GlobalState()
        self.inputs: list[TensorVariable | NumberVariable] = []
        self.checkpoint: int | None = None  # the region of the user's checkpoint that is traced now
        self.assumes = False  # whether the graph checks what it assumes of data
        self.step = 0  # instructions of the outermost frame so far: names the place of a break in a second attempt
        self.globals_seen: dict[tuple[int, str], Variable] = {}
        self.tx: "Translator" = None  # type: ignore[assignment]  # the innermost translator, for stacks
        self._lifted: dict[int, TensorVariable] = {}
        self._alive: list[Any] = []
        self._scratch: dict[str, dict] = {}
        self._by_value: dict[int, TensorVariable] = {}
        self._cells: dict[int, "CellVariable"] = {}
        self._last_placeholder: fx.Node | None = None
        for name, cell in zip(code.co_freevars, closure):
            self._frame_cell(name, cell)

    def scratch(self, name: str) -> dict:
        """A dict that lives as long as this trace, for caches of the variables."""
        return self._scratch.setdefault(name, {})

    # -- guards ----------------------------------------------------------------------------------------------------
    def guard(self, source: "Source | None", kind: str, value: Any = None, hint: str = "") -> None:
        """What was assumed about ``source``; nothing to guard for values made while tracing."""
        if source is None:
            return
        from .guards import Guard

        guard = Guard(source, kind, value, hint)
        try:
            self.guards[guard] = None
        except TypeError:  # an unhashable expected value
            self.guards[_Unhashable(guard)] = None

    def guard_list(self) -> list[Any]:
        """All guards. A graph without gradients does not care which parameters ask for them."""
        from .guards import Guard
        from .source import is_from_module_state

        guards = [g.guard if isinstance(g, _Unhashable) else g for g in self.guards]
        if self._env is not None:
            self._tell_fixed()
            guards += [Guard(None, "SHAPE", guard, line_of(guard.frames)) for guard in self._env.guards()]
        guards += [Guard(None, "DISTINCT", distinct) for distinct in self._distinct()]
        if self.state.grad or any(node.target is torch._C._set_grad_enabled for node in self.graph.nodes):
            return guards
        return [g for g in guards if g.kind != "REQUIRES_GRAD" or not is_from_module_state(g.source)]

    def keep_distinct(self, value: Any, source: "Source | None") -> None:
        """Code was traced that would do something else if ``value`` and another such object of its class were one and the same."""
        if source is not None:
            self.scratch("distinct").setdefault(type(value), {}).setdefault(id(value), source)

    def _distinct(self) -> list[Distinct]:
        for cls in self.scratch("written modules"):
            for var in self.side_effects.existing_of(cls):
                self.keep_distinct(var.real, var.source)
        return [Distinct(tuple(found.values())) for found in self.scratch("distinct").values() if len(found) > 1]

    # -- cells -----------------------------------------------------------------------------------------------------
    def _frame_cell(self, name: str, cell: Any) -> None:
        from .source import LocalSource
        from .variables.functions import CellVariable

        self._cells[id(cell)] = CellVariable(None, name, cell, LocalSource(name, cell=True))

    def existing_cell(self, tx: "Translator", cell: Any, source: "Source | None") -> "CellVariable":
        """The variable of a real closure cell (one per cell); contents are wrapped when they are read."""
        from .variables.functions import CellVariable

        var = self._cells.get(id(cell))
        if var is None:
            var = self._cells[id(cell)] = CellVariable(None, None, cell, source)
            self._alive.append(cell)
        return var

    # -- inputs ----------------------------------------------------------------------------------------------------
    def lift_tensor(self, value: torch.Tensor, source: "Source", static: bool = False) -> TensorVariable:
        """``value`` as an input of the graph. The same object reached by two paths is one input, guarded to stay so."""
        known = self._lifted.get(id(value))
        if known is not None:
            if known.source != source:
                self.guard(source, "TENSOR_ALIAS", known.source)
            return known
        from .guard_kinds import symbolic_guards, tensor_guards

        shape, strides = self._sizes(value, source, static)
        static = static and shape is None
        var = TensorVariable(self._placeholder(value, source, static, shape, strides), source, value)
        for guard in tensor_guards(value, source) if shape is None else symbolic_guards(value, source, shape, strides):
            self.guards[guard] = None
        self._lifted[id(value)] = var
        self._alive.append(value)
        self.inputs.append(var)
        self.side_effects.track_existing(var, value)
        return self.remember(var)

    def _placeholder(self, value: torch.Tensor, source: "Source", static: bool, shape: Any = None, strides: Any = None) -> fx.Node:
        try:
            if shape is not None:
                strides = [s.of(shape) if isinstance(s, Product) else s for s in strides]
            fake = self.fakeify(value, shape, strides)
        except Unsupported:
            raise
        except (Unfakeable, RuntimeError) as error:  # a view that in-place changes made unusable, for one
            unsupported("MP310", f"a tensor of a kind that graphs can't hold: {error}")
        anchor = self._last_placeholder
        at = self.graph.inserting_after(anchor) if anchor is not None else self.graph.inserting_before(_first(self.graph))
        with at:
            node = self.graph.placeholder(_node_name(source.name()))
        self._last_placeholder = node
        node.meta.update(val=fake, version=version_of(fake), static=static, source=source.name(), stack=self.tx.frames() if self.tx else ())
        return node

    def fakeify(self, value: torch.Tensor, shape: Any = None, strides: Any = None) -> torch.Tensor:
        """The fake tensor of a real one, or of one of symbolic ``shape`` and ``strides`` in its place."""
        if isinstance(value, FakeTensor):
            unsupported("MP310", "a fake tensor as an input")
        if value.layout is not torch.strided or value.is_nested:
            unsupported("MP310", f"a {_kind_of(value)} tensor as an input", _DENSE)
        if value.is_conj() or value.is_neg():
            unsupported("MP310", "a tensor with a pending conjugation or negation, computed before this graph",
                        "call resolve_conj() or resolve_neg() on it where it is made")
        return self.fake_mode.from_tensor(value, shape, strides)

    def literal_tensor(self, value: torch.Tensor, name: str | None = None) -> TensorVariable:
        """A small tensor made while tracing, kept in the graph module as ``_tensor_constant<N>``."""
        name = name or f"_tensor_constant{len(self.attributes)}"
        self.attributes[name] = value
        node = self.graph.get_attr(name)
        node.meta.update(val=self.fakeify(value), stack=self.tx.frames())
        return self.remember(TensorVariable(node))

    # -- nodes -----------------------------------------------------------------------------------------------------
    def remember(self, var: TensorVariable) -> TensorVariable:
        self._by_value[id(var.value)] = var
        return var

    def variable_of(self, fake: torch.Tensor) -> TensorVariable | None:
        """The variable whose fake tensor is this very object (an in-place operation returns its operand)."""
        return self._by_value.get(id(fake))

    def call(self, tx: "Translator", target: Any, args: list[Variable], kwargs: dict[str, Variable],
             op: str = "call_function") -> Variable:
        """Put an operation on variables into the graph; returns variables for its result."""
        node_args = tuple([a.as_proxy() for a in args])
        node_kwargs = {k: v.as_proxy() for k, v in kwargs.items()}
        return wrap_output(tx, self.create_node(op, target, node_args, node_kwargs))

    def create_node(self, op: str, target: Any, args: tuple = (), kwargs: dict | None = None, name: str | None = None) -> fx.Node:
        """A node with ``meta["val"]`` (its fake result, computed once) and ``meta["stack"]`` (the user's lines)."""
        kwargs = kwargs or {}
        unknown = self._unknowns()
        value = self._run_fake(op, target, args, kwargs)
        for part in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(part, torch.Tensor) and (part.layout is not torch.strided or part.is_nested):
                unsupported("MP310", f"{_target_name(target)} makes a {_kind_of(part)} tensor", _DENSE)
        self._check_sizes(value)
        node = self.graph.create_node(op, target, args, kwargs, name)
        node.meta["val"] = value
        node.meta["stack"] = self.tx.frames()
        if self._unknowns() != unknown:
            node.meta.update(depends_on_data=True, shows=shown_by(value))
        elif op == "call_function" and steps_vary(target, fx.map_arg(args, lambda n: n.meta["val"])):
            node.meta["depends_on_data"] = True  # run on its own, between compiled pieces
        if self.checkpoint is not None:
            node.meta["checkpoint"] = self.checkpoint
        if value is None or _is_inplace(op, target, kwargs):  # what returns nothing is called for what it does
            node.meta["impure"] = True
            self.side_effects.touch()
        return node

    def _run_fake(self, op: str, target: Any, args: tuple, kwargs: dict) -> Any:
        if _target_name(target).split(".")[0] in QUANTIZING:  # their fake results are not quantized
            unsupported("MP304", f"{_target_name(target)} makes a quantized tensor, which graphs can't hold", "quantize outside the compiled code")
        values, keywords = fx.map_arg((args, kwargs), lambda n: n.meta["val"])
        try:
            with self.fake_mode:
                function, rest = (target, values) if op == "call_function" else (getattr(values[0], target), values[1:])
                if self._env is None:
                    return function(*rest, **keywords)
                return run(function, rest, keywords)
        except DataDependent as error:
            unsupported("MP102", f"{_target_name(target)} needs the tensor's data ({error})")
        except DynamicShape as error:
            unsupported("MP103", f"the size of {_target_name(target)}'s result depends on the tensor's data ({error})",
                        "use operations whose result has a known size (torch.where with three arguments, masks)")
        except Unfakeable as error:
            unsupported("MP310", f"{_target_name(target)}: {error}")
        except Unsupported:
            raise
        except Exception as error:  # the user's own mistake, most likely: run there, eager raises it with the user's line
            if "data is not allocated yet" in str(error):  # what a meta tensor says when C++ reads it
                unsupported("MP102", f"{_target_name(target)} needs the tensor's data")
            raise Unsupported("MP308", f"{_target_name(target)} failed while tracing: {type(error).__name__}: {error}") from error

    def assume(self, condition: TensorVariable, truth: bool) -> None:
        """Go on as if ``condition``, a tensor of one element, were ``truth``; the graph checks it."""
        self.assumes = True
        self.create_node("call_function", ASSUME, (condition.as_proxy(), truth))

    def getitem(self, node: fx.Node, index: int) -> fx.Node:
        """Item ``index`` of a node with several results."""
        item = self.graph.call_function(operator.getitem, (node, index))
        item.meta.update(val=node.meta["val"][index], stack=node.meta["stack"])
        return item

    def drop(self, node: fx.Node) -> None:
        """Remove a node whose result is a constant (keep it if it does something)."""
        if not node.meta.get("impure") and not node.meta.get("depends_on_data") and not node.users and node.op in ("call_function", "call_method"):
            self.graph.erase_node(node)

    # -- global modes ----------------------------------------------------------------------------------------------
    def set_grad(self, enabled: bool) -> None:
        """Switch grad mode in the graph and for the tracer itself."""
        self.side_effects.touch()
        self._state_node(torch._C._set_grad_enabled, (bool(enabled),))

    def enter_autocast(self, device: str, dtype: Any, enabled: bool, cache_enabled: bool | None) -> fx.Node:
        """Enter autocast in the graph and for the tracer; the node is the token for ``exit_autocast``."""
        self.side_effects.touch()
        args = (device, dtype, enabled, cache_enabled)
        node = self._state_node(torch.amp.autocast_mode._enter_autocast, args)
        self.state.autocasts.append(node)
        return node

    def exit_autocast(self, token: fx.Node) -> None:
        self.side_effects.touch()
        self.state.autocasts.remove(token)
        torch.amp.autocast_mode._exit_autocast(token.meta["val"])
        self._bare_node(torch.amp.autocast_mode._exit_autocast, (token,), None)

    def _state_node(self, target: Callable, args: tuple) -> fx.Node:
        return self._bare_node(target, args, target(*args))

    def _bare_node(self, target: Callable, args: tuple, value: Any) -> fx.Node:
        node = self.graph.call_function(target, args)
        node.meta.update(val=value, stack=self.tx.frames() if self.tx else (), impure=True)
        return node

    def guard_global_state(self) -> None:
        """The modes under which everything here is traced."""
        from .guards import global_state_guard

        self.guards[global_state_guard()] = None

    def state_changed(self) -> bool:
        return torch.is_grad_enabled() != self.state.grad or bool(self.state.autocasts)

    def restore_state(self) -> None:
        """End the graph with the modes it began with: what follows a graph is run, and left, by the emitted code."""
        for token in reversed(list(self.state.autocasts)):
            self.exit_autocast(token)
        if torch.is_grad_enabled() != self.state.grad:
            self.set_grad(self.state.grad)

    # -- undoing and finishing -------------------------------------------------------------------------------------
    def mark(self) -> fx.Node:
        """The last node now, for ``rollback``."""
        return self.graph._root.prev

    def rollback(self, mark: fx.Node) -> None:
        """Erase the nodes added after ``mark`` (placeholders stay: they may be known by identity)."""
        node = self.graph._root.prev
        while node is not mark and node.op != "root":
            before = node.prev
            if node.op != "placeholder":
                self._by_value.pop(id(node.meta.get("val")), None)
                self.graph.erase_node(node)
            node = before

    def is_empty(self) -> bool:
        """Nothing worth a graph: no operation at all."""
        return all(node.op in ("placeholder", "get_attr", "output") for node in self.graph.nodes)

    def finish(self, outputs: list[fx.Node]) -> fx.GraphModule:
        """The graph with its output tuple, unused inputs removed; ``self.inputs`` matches its placeholders."""
        global _graph_count
        self.graph.output(tuple(outputs)).meta["stack"] = ()
        used = []
        for var in self.inputs:
            if var.node.users:
                used.append(var)
            else:
                self.graph.erase_node(var.node)
        order = {node: i for i, node in enumerate(n for n in self.graph.nodes if n.op == "placeholder")}
        self.inputs = [*self._symbol_inputs(), *sorted(used, key=lambda var: order[var.node])]
        name = f"graph_{_graph_count}"
        _graph_count += 1
        gm = fx.GraphModule(self.attributes, self.graph, class_name=f"Captured_{name}")
        gm.meta["name"] = name
        if self._env is not None:
            try:
                shapes.materialize(gm)
            except KeyError as error:
                unsupported("MP103", f"a number that depends on a tensor's data and that no result shows: {error}")
        trace.count("graphs")
        trace.artifact("graph", name, gm)
        return gm


class _Unhashable:
    """Wraps a guard whose expected value has no hash."""

    def __init__(self, guard: Any):
        self.guard = guard


_DENSE = "keep tensors dense inside the compiled code, and convert them outside"


def _kind_of(tensor: torch.Tensor) -> str:
    return "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")


def _first(graph: fx.Graph) -> fx.Node:
    return graph._root.next


def _node_name(source_name: str) -> str:
    return "l_" + "_".join(part for part in "".join(c if c.isalnum() else " " for c in source_name).split())


def _target_name(target: Any) -> str:
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def _is_inplace(op: str, target: Any, kwargs: dict) -> bool:
    name = _target_name(target)
    if "out" in kwargs or name in ("__setitem__", "__delitem__", "setitem", "delitem"):
        return True
    if kwargs.get("inplace") is True:
        return True
    if op == "call_function" and getattr(target, "__module__", "") in ("_operator", "operator"):
        return name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift", "imatmul")
    return name.endswith("_") and not name.endswith("__")


