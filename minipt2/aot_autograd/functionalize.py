"""Make a recorded graph functional: no operator writes into a tensor that another one may read.

A tensor is either the root of a storage or a view with a parent; both are read off the recorded view operators. An
in-place operator becomes its functional twin, and its result the new value of the root: directly, or through the view
chain, each view undone by the operator that writes into it (``select`` by ``select_scatter``). A root counts its writes;
whoever reads a view made before the last one gets that view taken anew from the current value. Values keep the strides
that the tensor had in eager, so every view that was legal stays legal.

Before ``a = x + 1; v = a[0]; v.mul_(2); return a``; after ``a = x + 1; v = a[0]; m = v * 2; b = select_scatter(a, m, 0, 0)``
and ``b`` returned.

Upstream: ``aten/src/ATen/FunctionalTensorWrapper.cpp`` and ``FunctionalInverses.cpp``, which do this while tracing.
"""
from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.fx.node import map_arg

from ..errors import Unsupported
from ..exercise import exercise
from ..fake import FakeTensor
from ..prims.meta import dims_by_stride, is_dense, same_layout, strides_in_order
from ..shapes.known import same, same_all
from .draws import Emit, defaults, drawn, to_draw
from .ops import argument, aten, functional_variant, info, is_view, origin_of, view_parent, writes_now
from .unview import INVERSES, through_strides

_BATCH_NORMS = {"aten::native_batch_norm"}


@dataclass(frozen=True)
class Mutation:
    """``input`` (a placeholder) must hold ``value`` when the graph has run."""

    input: fx.Node
    value: fx.Node


@dataclass(frozen=True)
class Functional:
    """The functional twin of a mutable operator that has none: clones what is written, runs it, returns the clones too."""

    op: OpOverload
    writes: tuple[int, ...]

    @property
    def __name__(self) -> str:
        return f"functional_{self.op.name().replace('::', '_').replace('.', '_')}"

    def __call__(self, *args: Any, **kwargs: Any) -> tuple:
        schema = self.op._schema.arguments
        bound = [argument(args, kwargs, self.op, i) for i in range(len(schema))]
        for i in self.writes:
            bound[i] = [t.clone() for t in bound[i]] if isinstance(bound[i], (list, tuple)) else bound[i].clone()
        positional = [b for a, b in zip(schema, bound) if not a.kwarg_only]
        result = self.op(*positional, **{a.name: b for a, b in zip(schema, bound) if a.kwarg_only})
        results = result if isinstance(result, tuple) else (result,)
        return (*(results[i] for i in info(self.op).fresh_returns), *(bound[i] for i in self.writes))


def dense_strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a gapless tensor of ``shape`` whose dimensions lie in the order of ``strides``."""
    return strides_in_order(shape, dims_by_stride(strides))


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices may name the same element of memory."""
    if is_dense(shape, strides):
        return False
    reach = 0
    for stride, size in [(strides[d], shape[d]) for d in dims_by_stride(strides)]:
        if size > 1:
            if stride <= reach:
                return True
            reach += stride * (size - 1)
    return False


def _meaning(x: torch.Tensor) -> tuple:
    return x.dtype, x.is_conj(), x.is_neg()


def _holds(base: torch.Tensor, val: torch.Tensor) -> bool:
    """Whether all memory that ``val`` shows is that of ``base``, which has no gaps."""
    start = val.storage_offset() - base.storage_offset()
    end = start + sum((n - 1) * s for n, s in zip(val.shape, val.stride()))
    dense = same_layout(base.shape, base.stride(), dense_strides(base.shape, base.stride()))
    return dense and start >= 0 and (end < base.numel() or not val.numel())


class _Functionalizer:
    def __init__(self, graph: fx.Graph):
        self.graph = graph
        self.fake_mode = next((v.fake_mode for n in graph.nodes if isinstance(v := n.meta.get("val"), FakeTensor)), None)
        self.parent: dict[fx.Node, fx.Node] = {}
        self.root: dict[fx.Node, fx.Node] = {}
        for node in graph.nodes:
            if is_view(node):
                self.parent[node] = view_parent(node)
                self.root[node] = self.root.get(self.parent[node], self.parent[node])
        self.writes_to: dict[fx.Node, int] = {}  # root -> writes so far
        self.current: dict[fx.Node, fx.Node] = {}  # node -> functional node that holds its value ...
        self.as_of: dict[fx.Node, int] = {}  # ... after so many writes to its root
        self.outside: dict[fx.Node, Unsupported] = {}  # views of memory that their root is not known to own: what a write says
        self.named: dict[fx.Node, tuple] = {}  # as_strided of a place in an input's storage -> size, stride, place in the input
        self.origin: dict[str, Any] = {}  # of the node that is being rewritten: whose line it is, and in which checkpoint

    def run(self) -> list[Mutation]:
        for node in list(self.graph.nodes):
            if node.op == "call_function":
                self.origin = origin_of(node.meta)
                self.visit(node)
        output = next(iter(reversed(self.graph.nodes)))
        with self.graph.inserting_before(output):
            output.args = map_arg(output.args, self.read)
            mutations = [Mutation(root, self.read(root)) for root in self.writes_to
                         if root.op == "placeholder" and not root.meta.get("tangent")]
        for root in (self.root[node] for node in self.named if self.writes_to.get(self.root[node])):
            root.meta["offset"] = root.meta["val"].storage_offset()
        for node in self.graph.find_nodes(op="call_function", target=aten.as_strided.default):
            if len(node.args) > 3 and node.args[3] is not None:
                self.shift(node)
        return mutations

    def visit(self, node: fx.Node) -> None:
        original_args, original_kwargs, following = node.args, node.kwargs, node.next
        if self.writes_to:
            with self.graph.inserting_before(node):
                node.args, node.kwargs = map_arg(node.args, self.read), map_arg(node.kwargs, self.read)
        if node in self.parent:
            if node.target is aten.as_strided.default:
                self.view_root(node)
            self.as_of[node] = self.writes_to.get(self.root[node], 0)
        elif isinstance(node.target, OpOverload):
            positions = writes_now(node.target, node.args, node.kwargs)
            if positions:
                targets = [argument(original_args, original_kwargs, node.target, i) for i in positions]
                self.check_apart(node.target, original_args, targets)
                with self.graph.inserting_before(following):
                    self.replace(node, targets, positions)

    def view_root(self, node: fx.Node) -> None:
        """Make the ``as_strided`` ``node`` one of all that ``span`` finds: it looks at the storage, whatever part its argument shows.

        A place named in the storage of an input stays what the user said while nothing is written: a call may bring another storage.
        """
        root, val = self.root[node], node.meta["val"]
        named = root.op != "call_function" and argument(node.args, node.kwargs, node.target, 3) is not None
        written, size, stride = self.writes_to.get(root), list(val.shape), list(val.stride())
        try:
            whole, start = self.span(node)
        except Unsupported as reason:
            if written or not isinstance(root.meta["val"], torch.Tensor) or _meaning(root.meta["val"]) != _meaning(val):
                raise
            self.outside[node] = reason
            if named or root.op == "call_function":
                node.args, node.kwargs = (root, size, stride, val.storage_offset()), {}
            return
        if not _holds(self.parent[node].meta["val"], val):  # made anew after a write, autograd takes it of the root, and other memory has gradients
            self.outside[node] = Unsupported("MP502", "a write under as_strided of a view that shows more than the view", "clone() it first")
        if named:
            self.named[node] = (size, stride, start)
            if whole is root and not written:
                node.args, node.kwargs, self.parent[node] = (root, size, stride, val.storage_offset()), {}, root
                return
            root.meta["offset"] = root.meta["val"].storage_offset()
        with self.graph.inserting_before(node):
            base = self.read(whole)
            if base.op != "call_function" and not same(start, 0):
                base = self.emit(aten.alias.default, (base,))
            node.args = (base, size, stride, *([start] if not same(start, 0) or root.op == "call_function" else []))
        node.kwargs, self.parent[node] = {}, whole

    def span(self, node: fx.Node) -> tuple[fx.Node, int]:
        """The outermost tensor around the view ``node`` that gives memory the same meaning, and where in it ``node`` begins.

        Counted from the first element, since a functional value lies elsewhere in a storage. Raises ``Unsupported`` where ``node`` shows
        memory that is not the tensor's.
        """
        whole, val = node, node.meta["val"]
        while whole in self.parent:
            if whole in self.outside:
                raise self.outside[whole]
            parent = self.parent[whole]
            while isinstance(parent.meta["val"], (tuple, list)):
                parent = self.parent[parent]
            if _meaning(parent.meta["val"]) != _meaning(val):
                break
            whole = parent
        base = (whole if whole is not node else parent).meta["val"]
        if whole is node or not _holds(base, val):
            raise Unsupported("MP502", f"a write to a storage of which {node.target} shows another part", "clone() it first")
        return whole, val.storage_offset() - base.storage_offset()

    def shift(self, node: fx.Node) -> None:
        """``as_strided`` of a value the graph makes, from its first element on: the offset becomes a slice of flat memory.

        An offset counts from the start of a storage, and no storage is known before memory is planned.
        """
        base, size, stride, offset = node.args
        whole = base.meta["val"]
        if base.op != "call_function" or not same_layout(whole.shape, whole.stride(), dense_strides(whole.shape, whole.stride())):
            return
        self.origin = origin_of(node.meta)
        with self.graph.inserting_before(node):
            order = dims_by_stride(whole.stride())[::-1]
            flat = self.emit(aten.reshape.default, (self.emit(aten.permute.default, (base, order)), [-1]))
            node.args = (self.emit(aten.slice.Tensor, (flat, 0, offset)) if not same(offset, 0) else flat, size, stride)

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, node: fx.Node) -> fx.Node:
        """The functional node that holds the present value of ``node``; views are taken anew where they are stale."""
        writes = self.writes_to.get(self.root.get(node, node), 0)
        if self.as_of.get(node, 0) == writes:
            return self.current.get(node, node)
        if node in self.outside:
            raise self.outside[node]
        base = self.read(self.parent[node])
        if node.target is operator.getitem:
            value = self.emit(operator.getitem, (base, node.args[1]))
        else:
            args = [None, *self.named[node]] if node in self.named else list(node.args)
            args[info(node.target).view_of] = base
            value = self.emit(node.target, tuple(args), node.kwargs)
        self.current[node], self.as_of[node] = value, writes
        return value

    def emit(self, target: Any, args: tuple, kwargs: dict | None = None) -> fx.Node:
        """A new node at the insertion point, with its fake value."""
        node = self.graph.create_node("call_function", target, args, kwargs or {})
        try:
            self.evaluate(node)
        except RuntimeError:
            self.graph.erase_node(node)
            raise
        node.meta.update(self.origin)
        return node

    def evaluate(self, node: fx.Node) -> None:
        args, kwargs = map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        with self.fake_mode, torch.no_grad():
            if node.target is aten.as_strided_scatter.default:  # refuses what requires grad and has gaps, whatever the mode
                args = (args[0].detach(), *args[1:])
            node.meta["val"] = node.target(*args, **kwargs)

    # -- writing ----------------------------------------------------------------------------------------------------

    @exercise("3.2")
    def write(self, node: fx.Node, value: fx.Node) -> None:
        """``node``'s storage now holds ``value`` where ``node`` looks."""
        # >>> 3.2
        root = self.root.get(node, node)
        if node is root:
            value = self.restride(value, node.meta["val"])  # never a placeholder, of whose storage it may be a part: see shift
            self.current[node] = value if value.op == "call_function" else self.emit(aten.alias.default, (value,))
        else:
            if node.target not in INVERSES or self.overlapping_above(node):
                whole, start = self.span(node)
                self.write(whole, through_strides(self.emit, node, self.read(whole), value, start))
            else:
                parent = self.parent[node]
                if isinstance(parent.meta["val"], (tuple, list)):
                    parent = self.parent[parent]  # an element of split, unbind ...: write into what was split
                self.write(parent, INVERSES[node.target](self.emit, node, self.read(parent), value))
            val, wanted = value.meta["val"], node.meta["val"]
            if not same_layout(val.shape, val.stride(), wanted.stride()):
                return
            self.current[node] = value
            self.as_of[node] = self.writes_to[root]
            return
        self.writes_to[root] = self.as_of[root] = self.writes_to.get(root, 0) + 1
        # <<< 3.2

    def overlapping_above(self, node: fx.Node) -> bool:
        """Whether one element of memory stands more than once in some view around ``node`` (``expand``, ``unfold``)."""
        while (node := self.parent.get(node)) in self.parent:
            val = node.meta["val"]
            if not isinstance(val, (tuple, list)) and overlaps(val.shape, val.stride()):
                return True
        return False

    def fit(self, value: fx.Node, target: fx.Node) -> fx.Node:
        """``value`` in the dtype, device and shape of ``target``, as writing into it would store it."""
        val, wanted = value.meta["val"], target.meta["val"]
        if val.dtype != wanted.dtype or val.device != wanted.device:
            device = {"device": wanted.device} if val.device != wanted.device else {}
            value = self.emit(aten._to_copy.default, (value,), {"dtype": wanted.dtype, **device})
        if not same_all(val.shape, wanted.shape):
            value = self.emit(aten.expand.default, (value, list(wanted.shape)))
        return value

    def restride(self, value: fx.Node, wanted: torch.Tensor) -> fx.Node:
        """``value`` with the strides of ``wanted`` (dense ones in the same order where that has gaps)."""
        val = value.meta["val"]
        shape = tuple(wanted.shape)
        strides = dense_strides(shape, wanted.stride())
        if same_layout(shape, val.stride(), strides):
            return value
        order = dims_by_stride(strides)[::-1]
        inverse = sorted(range(len(shape)), key=lambda d: order[d])
        value = self.emit(aten.permute.default, (value, order))
        value = self.emit(aten.clone.default, (value,), {"memory_format": torch.contiguous_format})
        return self.emit(aten.permute.default, (value, inverse))

    def replace(self, node: fx.Node, targets: list, positions: tuple[int, ...]) -> None:
        """Turn the in-place ``node`` into functional ones and write their results to ``targets``."""
        for val in (t.meta["val"] for t in targets if isinstance(t, fx.Node)):
            if overlaps(tuple(val.shape), val.stride()):
                raise Unsupported("MP502", f"{node.target} writes into a tensor in which elements share memory", "clone() it first")
        simple = _DIRECT.get(node.target)
        if to_draw(node, targets[0]):
            simple = drawn
        if simple is not None:
            self.write(targets[0], self.fit(simple(self.emit, node, targets[0]), targets[0]))
            self.graph.erase_node(node)
            return
        returns, before = node.target._schema.returns, node.meta["val"]
        fresh, packed = self.make_functional(node, positions)
        if packed and fresh and len(returns) == 1:  # what was the result is now the first of several
            first = self.emit(operator.getitem, (node, 0))
            result = self.restride(first, before)  # rrelu_with_noise and its twin lay theirs out differently
            node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not first)
        for i, target in enumerate(targets):
            value = self.emit(operator.getitem, (node, fresh + i)) if packed else node
            if isinstance(target, fx.Node):
                self.write(target, self.fit(value, target))
                continue
            for j, element in enumerate(target):
                self.write(element, self.fit(self.emit(operator.getitem, (value, j)), element))

    def check_apart(self, op: OpOverload, args: tuple, targets: list) -> None:
        """A write to a list goes element by element: none may be read, or written, by one that comes after it."""
        root = lambda n: self.root.get(n, n)  # noqa: E731
        for written in (t for t in targets if isinstance(t, (list, tuple))):
            for i, element in enumerate(map(root, written)):
                later = [n for a in args if isinstance(a, (list, tuple)) for n in a[i + 1:]]
                if any(isinstance(n, fx.Node) and root(n) is element for n in (*later, *written[i + 1:])):
                    raise Unsupported("MP502", f"{op} writes into tensors that share storage", "write into one after the other")

    def make_functional(self, node: fx.Node, positions: tuple[int, ...]) -> tuple[int, bool]:
        """Exchange ``node``'s target; how many of its results come before the written values, and whether it returns a tuple."""
        op = node.target
        if op._schema.name in _BATCH_NORMS:
            node.target = aten._native_batch_norm_legit_functional.default
            statistics = tuple(argument(node.args, node.kwargs, op, i).meta["val"] for i in positions)
            node.meta["val"] = (*node.meta["val"], *statistics)
            return 3, True
        twin = functional_variant(op)
        if twin is None and info(op).is_out:
            raise Unsupported("MP501", f"{op} has no form that returns its result", "call it without out=")
        if twin is None:
            node.target = Functional(op, positions)
        else:
            outs = {a.name for a in op._schema.arguments if a.is_out}
            node.target = twin
            node.kwargs = {k: v for k, v in node.kwargs.items() if k not in outs}
            node.args += defaults(op, node)
        self.evaluate(node)
        return len(info(op).fresh_returns), twin is None or len(twin._schema.returns) > 1


def _filled(emit: Emit, node: fx.Node, target: fx.Node) -> fx.Node:
    val, number = target.meta["val"], node.args[1] if len(node.args) > 1 else 0  # zero_ names no number
    return emit(aten.full.default, (list(val.shape), number), {"dtype": val.dtype, "device": val.device})


# In-place operators whose result does not depend on what was there before.
_DIRECT = {
    aten.copy_.default: lambda emit, node, target: node.args[1],
    aten.fill_.Tensor: lambda emit, node, target: node.args[1],
    aten.fill_.Scalar: _filled,
    aten.zero_.default: _filled,
}


def functionalize(graph: fx.Graph) -> list[Mutation]:
    """Replace every in-place operator of ``graph`` (in place); what its inputs must hold afterwards, in order of first write.

    Nodes carry ``meta["val"]`` (fake tensors). The output then refers to the final values. Raises ``Unsupported`` for a
    write through a view that has no inverse.
    """
    return _Functionalizer(graph).run()
