"""Record a function and its gradient as one graph of ATen operators, without running a number.

Autograd sits above ``__torch_dispatch__``: a mode that records every overload it sees therefore records what autograd
does, in the forward and, when ``torch.autograd.grad`` runs under it, in the backward. Operators that are compositions of
others arrive taken apart. All tensors are fake; a tensor object is known by its identity, and the recorder keeps every one
alive, so an identity is never used twice. What is recorded is what ran, in-place operators and views included:
``functionalize`` takes those out afterwards.

Upstream: ``torch.fx.experimental.proxy_tensor`` and ``torch._functorch._aot_autograd.graph_capture_wrappers``.
"""
from __future__ import annotations

import bisect
import operator
from typing import Any, Callable, Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_aggregate, map_arg
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import Unsupported
from ..exercise import exercise
from ..fake import FakeMode, FakeTensor, run
from ..prims.lazy import Graph, LazyGraphModule
from ..prims.meta import contiguous_strides, is_dense
from .checked import CHECKED
from .ops import ALIAS_ONLY, METADATA_OPS, STORAGE_OPS, aten, count_writes, info, origin_of, tensors_in
from .statistics import corrected
from .vendors import PLAIN

_DEVICE_QUERY = torch.ops.prim.device.default
# Autograd conjugates a number like a tensor, which few overloads take when they are called: what such a number is then.
_NUMBERS = {complex: torch.complex128, float: torch.float64, int: torch.int64}
_ASKING = (aten.size.default, aten.stride.default)  # C++ does, of tensors with symbolic sizes
_LIFTS = (aten.lift_fresh.default, aten.lift.default, aten.lift_fresh_copy.default)


def fake_mode_of(values: Sequence[Any]) -> FakeMode:
    """The mode of the first fake tensor among ``values``, or a new one."""
    for value in values:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeMode()


class Tracer(TorchDispatchMode):
    """Records the ATen overloads that run while it is active into ``graph``; see the module's docstring."""

    def __init__(self, fake_mode: FakeMode):
        super().__init__()
        self.fake_mode = fake_mode
        self.graph = Graph()
        self.root = torch.nn.Module()
        self.origin: dict[str, Any] = {"stack": ()}  # the user's lines, and which of their checkpoints they are in
        self._known: dict[int, Any] = {}  # id(tensor) -> node, or (node, index path) until somebody reads the element
        self._alive: list[torch.Tensor] = []
        self._constants: dict[int, torch.Tensor] = {}
        self._marks: list[int] = []  # autograd sequence numbers at which a new line of the user's program began
        self._mark_origins: list[dict[str, Any]] = []
        self._backward = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as in fake.FakeMode

    # -- naming tensors -------------------------------------------------------------------------------------------

    def name(self, tensor: torch.Tensor, node: Any) -> None:
        """From now on ``tensor`` (this very object) is the value of ``node``."""
        self._known[id(tensor)] = node
        self._alive.append(tensor)

    def node(self, tensor: torch.Tensor) -> fx.Node:
        """The node whose value ``tensor`` is; real tensors become constants of the graph."""
        node = self._known.get(id(tensor))
        if node is None:
            if isinstance(tensor, FakeTensor):
                raise Unsupported("MP501", "a fake tensor from outside the traced function entered the graph")
            node = self._constant(tensor)
        elif type(node) is tuple:
            source, path = node
            for index in path:
                source = self.graph.call_function(operator.getitem, (source, index))
                source.meta.update(origin_of(source.args[0].meta))
            source.meta["val"] = tensor
            node = self._known[id(tensor)] = source
        return node

    def _constant(self, tensor: torch.Tensor) -> fx.Node:
        name = f"_tensor_constant{len(self._constants)}"
        self._constants[id(tensor)] = tensor
        setattr(self.root, name, tensor.detach() if isinstance(tensor, torch.nn.Parameter) else tensor)
        node = self.graph.get_attr(name)
        node.meta["val"], node.meta["stack"] = self.fake_mode.from_tensor(tensor), self.origin["stack"]
        self.name(tensor, node)
        self.name(node.meta["val"], node)
        return node

    def placeholder(self, name: str, value: Any, **meta: Any) -> fx.Node:
        node = self.graph.placeholder(name)
        node.meta.update(meta, val=value, stack=())
        if isinstance(value, torch.Tensor):
            self.name(value, node)
        return node

    def fake(self, value: Any) -> Any:
        """``value`` with a real tensor replaced by the fake one that stands for it (a constant of the graph)."""
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
            return self.node(value).meta["val"]
        return value

    # -- recording ------------------------------------------------------------------------------------------------

    def at(self, meta: dict[str, Any]) -> None:
        """What runs next comes from a node with this ``meta``; so do the backward operators of what autograd records next."""
        origin = origin_of(meta)
        if origin != self.origin or not self._marks:
            self.origin = origin
            self._marks.append(torch.autograd._get_sequence_nr())
            self._mark_origins.append(origin)

    def _current_origin(self) -> dict[str, Any]:
        node = torch._C._current_autograd_node() if self._backward else None
        if node is None:
            return self.origin
        at = bisect.bisect_right(self._marks, node._sequence_nr()) - 1
        return self._mark_origins[at] if 0 <= at < len(self._marks) and node._sequence_nr() < 2**63 else {"stack": ()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is _DEVICE_QUERY and isinstance(args[0], FakeTensor):
            return args[0].fake_device
        kwargs = kwargs or {}
        if func in _ASKING:
            return func(*args)
        if not isinstance(func, OpOverload):
            raise Unsupported("MP501", f"the operator {func} takes functions as arguments and is not traced")
        if func._schema.name in STORAGE_OPS:
            raise Unsupported("MP501", f"{func} replaces a tensor's storage", "use an out-of-place operator")
        facts = info(func)
        if facts.composite and func not in ALIAS_ONLY:  # only in inference mode do these come whole
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if func is aten.detach_.default:
            return func(*args, **kwargs)
        if func in PLAIN:
            with self:
                return PLAIN[func](*args, **kwargs)
        if func in METADATA_OPS:
            return self._change_metadata(func, args, kwargs)
        if args and type(args[0]) in _NUMBERS and not tensors_in(args) and str(func._schema.arguments[0].type) == "Tensor":
            with self:
                args = (aten.scalar_tensor.default(args[0], dtype=_NUMBERS[type(args[0])]), *args[1:])
        node_args, node_kwargs = map_aggregate((args, kwargs), self._to_node)
        if func not in _LIFTS and any(not isinstance(a, FakeTensor) for a in tensors_in(args)):
            args, kwargs = map_aggregate((args, kwargs), self.fake)
        result = corrected(func, args, func(*args, **kwargs))
        if func._schema.is_mutable:
            count_writes(func, args, kwargs)
        self._record(func, node_args, dict(node_kwargs), result, args)
        return result

    def _to_node(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.node(value)
        if isinstance(value, torch.Generator):
            raise Unsupported("MP501", "an explicit torch.Generator inside a compiled function", "use torch.manual_seed")
        return value

    def _record(self, func: OpOverload, args: tuple, kwargs: dict, result: Any, given: tuple) -> None:
        if not isinstance(result, (torch.Tensor, tuple, list)) and not info(func).writes:
            if func._schema.returns or func is aten._assert_tensor_metadata.default:
                return  # a query, answered from metadata
        node = self.graph.create_node("call_function", func, args, kwargs)
        node.meta["val"] = result
        node.meta.update(self._current_origin())
        if info(func).view_of is not None and not torch.is_grad_enabled() and any(t.requires_grad for t in tensors_in(given)):
            node.meta["untracked"] = True
        self._name_results(result, node, ())

    def _name_results(self, result: Any, node: fx.Node, path: tuple[int, ...]) -> None:
        if isinstance(result, torch.Tensor):
            if id(result) not in self._known:  # an in-place operator returns its argument: that keeps its node
                self.name(result, (node, path) if path else node)
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                self._name_results(item, node, (*path, i))

    def _change_metadata(self, func: OpOverload, args: tuple, kwargs: dict) -> torch.Tensor:
        target, before = args[0], self.node(args[0])
        before.meta["val"] = target.detach()  # the object is about to look different; the node is not
        result = func(*args, **kwargs)
        node = self.graph.call_function(METADATA_OPS[func], (before, *args[1:]), kwargs)
        node.meta.update(self._current_origin(), val=target)
        self._known[id(target)] = node
        return result

    def run_graph(self, gm: fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Run a captured graph node by node, each under its own ``meta["stack"]``; autocast regions left open are closed."""
        values: dict[fx.Node, Any] = {}
        remaining, regions = iter(inputs), []
        try:
            for node in gm.graph.nodes:
                self.at({**node.meta, "captured": node.name})
                args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
                if node.op == "output":
                    return args[0]
                value = values[node] = self._run_node(gm, node, args, kwargs, remaining)
                if node.target is torch.amp.autocast_mode._enter_autocast:
                    regions.append(value)
                elif node.target is torch.amp.autocast_mode._exit_autocast:
                    regions.remove(args[0])
        finally:
            for region in reversed(regions):
                region.__exit__(None, None, None)

    def _run_node(self, gm: fx.GraphModule, node: fx.Node, args: tuple, kwargs: dict, inputs: Any) -> Any:
        if node.op == "placeholder":
            return next(inputs)
        if node.op == "get_attr":
            owner, _, name = node.target.rpartition(".")
            return self.fake(getattr(gm.get_submodule(owner), name))
        fn = CHECKED.get(node.target, node.target)
        if node.op == "call_method":
            fn = lambda x, *rest, **named: getattr(x, node.target)(*rest, **named)  # noqa: E731
        elif node.op == "call_module":
            fn = gm.get_submodule(node.target)
        last = next(iter(reversed(self.graph.nodes)), None)
        return run(fn, args, kwargs, lambda: self._forget_after(last))

    def _forget_after(self, last: fx.Node | None) -> None:
        """Take back what has been recorded since ``last``: elements of earlier results that were first read since then are unread again, weights
        that autocast has cast since then, and would hand out again, are forgotten."""
        torch.clear_autocast_cache()
        gone: dict[fx.Node, Any] = {}
        while (node := next(iter(reversed(self.graph.nodes)), None)) is not last:
            gone[node] = node.args if node.target is operator.getitem else None
            self.graph.erase_node(node)
        for key, node in self._known.items():
            if type(node) is fx.Node and gone.get(node):
                path: tuple[int, ...] = ()
                while gone.get(node):
                    node, index = gone[node]
                    path = (index, *path)
                self._known[key] = (node, path)

    # -- the whole function ---------------------------------------------------------------------------------------

    def inputs(self, primals: Sequence[Any], metas: Sequence[dict] | None = None) -> list[Any]:
        """Placeholders for ``primals``; returns the (fake) values to call the function with.

        Inputs that are not leaves enter as non-leaves, because only those may be written in place under grad mode.
        ``self.leaves`` holds what gradients are taken for.
        """
        self.leaves: list[Any] = []
        self.values = values = []
        for i, primal in enumerate(primals):
            value = leaf = primal
            if isinstance(primal, torch.Tensor):
                value, leaf = self._input(primal)
            values.append(value)
            self.leaves.append(leaf)
            self.placeholder(f"primals_{i + 1}", value, **(metas[i] if metas else {}))
        self._histories = [v.grad_fn if isinstance(v, torch.Tensor) else None for v in values]
        self._versions = [_version(v) for v in values]
        return list(values)

    def rewritten(self) -> list[int]:
        """The inputs whose autograd history has changed: those written in place under grad mode."""
        return [i for i, (value, before) in enumerate(zip(self.values, self._histories))
                if isinstance(value, torch.Tensor) and value.grad_fn is not before]

    def uncounted(self) -> list[int]:
        """The inputs whose version counters stand where they stood: a write that eager does not count (``x.data``, running statistics) is none
        that autograd complains of."""
        return [i for i, (value, before) in enumerate(zip(self.values, self._versions)) if before is not None and _version(value) == before]

    def _input(self, primal: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        value = primal if isinstance(primal, FakeTensor) else self.fake_mode.from_tensor(primal)
        if id(value) in self._known or value._is_view() or not value.is_leaf:
            value = value.detach().requires_grad_(primal.requires_grad)
        if primal.is_leaf or not primal.requires_grad:
            return value, value
        with torch.enable_grad():
            return _NoLeaf.apply(value), value

    @exercise("3.1")
    def backward(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """Run autograd from ``outputs`` with fresh placeholders as tangents; the gradient of each input or ``None``."""
        # >>> 3.1
        wanted = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        tangents = []
        for i, out in enumerate(outputs):
            with self.fake_mode, torch.no_grad():
                tangent = torch.empty_strided(out.shape, tangent_strides(out), dtype=out.dtype, device=out.device)
            tangents.append(tangent)
            self.placeholder(f"tangents_{i + 1}", tangent, tangent=True)
        self._backward = True
        anomaly = torch.autograd.set_detect_anomaly(False)  # fake gradients have no numbers to check
        try:
            with anomaly, self.active(), torch._C._DisableAutocast(), torch.autograd.set_multithreading_enabled(False):
                found = iter(torch.autograd.grad(outputs, wanted, tangents, allow_unused=True))
        finally:
            self._backward = False
        return [next(found) if isinstance(t, torch.Tensor) and t.requires_grad else None for t in self.leaves]
        # <<< 3.1

    def active(self) -> "_Active":
        """Context in which operators are made fake and recorded."""
        return _Active(self)

    def finish(self, outputs: Sequence[Any], grads: Sequence[Any]) -> fx.GraphModule:
        """Close the graph: it returns ``(outputs, grads)``; tangents move behind the primals."""
        self.graph.output((tuple(map(self._to_node, outputs)), tuple(map(self._to_node, grads))))
        last = None
        for node in [n for n in self.graph.nodes if n.op == "placeholder"]:
            if node.meta.get("tangent") and last is not None:
                last.append(node)
            last = node
        return LazyGraphModule(self.root, self.graph)


class _NoLeaf(torch.autograd.Function):
    """The same tensor as a result of something: strides and all, and no view (a clone has other strides where there are gaps)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.new_empty_strided(x.shape, x.stride())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


class _Active:
    def __init__(self, tracer: Tracer):
        self.modes = (tracer.fake_mode, tracer)

    def __enter__(self) -> None:
        for mode in self.modes:
            mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        for mode in reversed(self.modes):
            mode.__exit__(*error)


def _version(value: Any) -> int | None:
    return value._version if isinstance(value, torch.Tensor) and not value.is_inference() else None


def tangent_strides(out: torch.Tensor) -> tuple[int, ...]:
    """The strides a tangent of ``out`` is given: those of ``out`` itself when dense, else contiguous ones."""
    return tuple(out.stride()) if is_dense(out.shape, out.stride()) else contiguous_strides(out.shape)


def trace_joint(fn: Callable, primals: Sequence[Any], *, metas: Sequence[dict] | None = None,
                choose: Callable[[Tracer, list], list] | None = None) -> fx.GraphModule:
    """Trace ``fn(*primals)`` and the gradient of its outputs with respect to its inputs as one graph.

    fn: any function of tensors; a GraphModule runs node by node, its ``meta["stack"]`` copied to what each node records.
    primals: tensors (fake or real) and other values, which are baked in; those with ``requires_grad`` get gradients.
    metas: one dict per primal, copied into its placeholder's ``meta``.
    choose: given the tracer and the flat outputs, the list of tensors that the graph shall return.

    Returns a GraphModule: placeholders ``primals_i`` then ``tangents_j`` (one per distinct output that requires grad, with
    ``meta["tangent"]``), output ``(outputs, grads)`` where ``grads[i]`` belongs to ``primals[i]`` and is ``None`` where
    there is none. Not functional yet. Raises what ``fn`` raises, and ``Unsupported`` for what cannot be traced.
    """
    tracer = Tracer(fake_mode_of(primals))
    inputs = tracer.inputs(primals, metas)
    tracer.at({})
    run = (lambda *values: tracer.run_graph(fn, values)) if isinstance(fn, fx.GraphModule) else fn
    torch.clear_autocast_cache()  # it may hold casts that were made outside of this graph
    try:
        with tracer.active(), torch.set_grad_enabled(torch.is_grad_enabled()):  # fn may leave it changed
            outputs = [tracer.fake(o) for o in pytree.tree_leaves(run(*inputs))]
    finally:
        torch.clear_autocast_cache()
    for view in (o for o in outputs if isinstance(o, torch.Tensor) and o._is_view()):
        view.grad_fn  # raises where autograd forbids to use it: a view made under no_grad of what was then written; eager's tensor says so, ours could not
    if choose is not None:
        outputs = choose(tracer, outputs)
    unique = {id(o): o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad}
    grads = tracer.backward(list(unique.values())) if unique else [None] * len(primals)
    return tracer.finish(outputs, grads)
