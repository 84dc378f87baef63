"""The walk over an FX graph, and the decisions it takes: what is realised, in which memory order, and where outputs and mutations go.

Upstream: ``torch._inductor.graph.GraphLowering``.
"""
from __future__ import annotations

from typing import Any, Callable, Iterable, Sequence

import sympy
import torch
from torch import fx

from ...config import config
from ...prims import copy_strided, kind
from ..ir import (Buffer, Computed, Constant, Extern, Input, Layout, LoopBody, Output, Program, Recorder, TensorRef, loop_vars)
from ..ir.verify import verify
from ..ops import DTYPES, ops
from ..sizes import use
from . import extern
from .outputs import finish
from .order import dense, order_like, pick_order, same_strides
from .questions import MAX_OPS, MAX_READS, dear, live, loopable, needs_memory, nested, reaching, spreads
from .registry import lowerings
from .symbols import SYMBOLIC, Symbols
from .tensors import Cost, Expr, Index, Lazy, Place, Sizes, Stored, Target, Tensor, View, join


def lower(gm: fx.GraphModule, fake_inputs: Sequence[Any] | None = None, *, name: str = "graph") -> Program:
    """The loop program of ``gm``, a functional graph of prims and fallbacks whose nodes carry ``meta["val"]``.

    ``fake_inputs``, where given, override the placeholders' ``val``. ``gm.meta["mutated_inputs"]`` maps an output's index to the
    input it may be written into. Unknown targets become extern calls, never errors.
    """
    symbols = Symbols(gm.graph, fake_inputs)
    with use(symbols.hints):
        graph = GraphLowering(gm, fake_inputs, symbols)
        for node in gm.graph.nodes:
            graph.run(node)
    program = Program(graph.inputs, graph.constants, graph.buffers, graph.results, name, symbols.inputs, symbols.derived, symbols.hints)
    if config.verify_ir:
        verify(program)
    return program


def _into_nothing(node: fx.Node) -> bool:
    """Whether ``node`` picks from, or stores into, a tensor without elements. A loop would take element 0 for a wrong position and report it, but
    there is none; eager's kernel reports it, or finds that nothing is picked."""
    return kind(node) == "index" and isinstance(node.args[0], fx.Node) and any(isinstance(n, int) and n == 0 for n in node.args[0].meta["val"].shape)


class GraphLowering:
    """State of one lowering. Lowerings use ``sizes``/``dtype``/``device`` of the node at hand, ``lazy``, ``allocate``, ``loops``, ``realize``."""

    def __init__(self, gm: fx.GraphModule, fake_inputs: Sequence[Any] | None, symbols: Symbols):
        self.gm, self.fakes, self.symbols = gm, fake_inputs, symbols
        self.env: dict[fx.Node, Any] = {}
        self.inputs: list[Input] = []
        self.constants: list[Constant] = []
        self.buffers: list[Computed | Extern] = []
        self.results: list[Output] = []
        self.layouts: dict[str, Layout] = {}
        self.copies: dict[Any, Place] = {}
        self.node: fx.Node | None = None
        self.counter = self.placeholders = 0
        self.live = live(gm.graph)
        self.foreign = {node for node in gm.graph.nodes if not loopable(node.meta.get("val"))}
        self.in_memory = reaching(gm.graph, needs_memory)
        self.spread = reaching(gm.graph, spreads)
        self.returned = reaching(gm.graph, lambda node: node.op == "output")

    # The node at hand

    def run(self, node: fx.Node) -> None:
        self.node = node
        if node.op == "call_function":
            if node in self.live:
                self.env[node] = self.settle(node, self.call(node))
        elif node.op == "placeholder":
            self.env[node] = self.placeholder(node)
        elif node.op == "get_attr":
            self.env[node] = self.constant(node)
        elif node.op == "output":
            self.output(node)
        else:
            raise NotImplementedError(f"{node.op} node {node} in a functional graph")

    def call(self, node: fx.Node) -> Any:
        builtin = extern.BUILTINS.get(node.target)
        if builtin is not None:
            return builtin(self, node)
        name = getattr(node.target, "name", None)
        name = name if isinstance(name, str) else ""
        fn = lowerings.get(name)
        if fn is None or self.foreign and (node in self.foreign or not self.foreign.isdisjoint(node.all_input_nodes)) or _into_nothing(node):
            return extern.call(self, node, name)
        env = self.env
        if self.symbols.inputs:
            args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), lambda a: env[a] if isinstance(a, fx.Node) else self.symbols.number(a))
            return fn(self, *args, **kwargs)
        args, kwargs = fx.map_arg((node.args, node.kwargs), env.__getitem__) if nested(node) else (
            [env[a] if isinstance(a, fx.Node) else a for a in node.args],
            {k: env[a] if isinstance(a, fx.Node) else a for k, a in node.kwargs.items()})
        return fn(self, *args, **kwargs)

    def settle(self, node: fx.Node, made: Any) -> Any:
        """Note where a closure came from and the memory order it wants, and realise it when reading it anew costs more than memory."""
        if not isinstance(made, (Lazy, View)):
            return made
        if made.origin is None:
            made.origin = node
            if isinstance(made, Lazy) and made.strides is None:
                made.strides, made.exact = self.wanted_strides(node)
        if made.place() is None:
            cost, users = made.cost, len(node.users)
            if len(cost.reads) > MAX_READS or cost.ops > MAX_OPS or users > 1 and cost.reads and (
                    node in self.in_memory and cost.ops > 0 or dear(cost, users)) or (
                    node in self.spread and cost.reads and (cost.ops > 1 or len(cost.reads) > 1)):
                if not self.realize_narrower(node, made):
                    self.realize(made)
        return made

    def realize_narrower(self, node: fx.Node, made: Lazy | View) -> bool:
        """Of a value that only repeats a narrower one in more bits (bfloat16 as float32, a mask as numbers), put that one into memory instead."""
        source = self.env[node.args[0]] if getattr(node.target, "name", None) == "convert" and node not in self.in_memory else None
        if not isinstance(source, Lazy) or source.place() is not None or source.dtype.itemsize >= made.dtype.itemsize:
            return False
        self.realize(source)
        made.cheaper(join(source.cost))
        return True

    def wanted_strides(self, node: fx.Node) -> tuple[tuple[Expr, ...] | None, bool]:
        layout = node.meta.get("layout")
        if layout is not None:
            return self.symbols.sizes(layout), True
        val = node.meta["val"]
        if not hasattr(val, "stride"):
            return None, False
        return self.dense_like(val), False

    def dense_like(self, val: Any) -> tuple[Expr, ...]:
        """Strides without gaps in the memory order of ``val``."""
        return dense(self.symbols.sizes(val.shape), self.symbols.sizes(val.stride()))

    def operand(self, x: Any) -> Any:
        """An operand of elementwise work: numbers of the call as scalars of the kernel."""
        return self.symbols.scalar(x) if isinstance(x, sympy.Expr) else x

    @property
    def sizes(self) -> Sizes:
        return self.symbols.sizes(self.node.meta["val"].shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.node.meta["val"].dtype

    @property
    def outputs(self) -> list[tuple[Sizes, torch.dtype]]:
        """Sizes and dtype of every output of a multi-output node."""
        return [(self.symbols.sizes(v.shape), v.dtype) for v in self.node.meta["val"]]

    def used(self, n: int) -> list[bool]:
        """Which of the ``n`` outputs anybody reads."""
        read = {user.args[1] for user in self.node.users if user.target in extern.BUILTINS and user in self.live}
        whole = any(user.target not in extern.BUILTINS for user in self.node.users)
        return [whole or k in read for k in range(n)]

    # Making tensors

    def lazy(self, inner: Callable[[Index], Any], cost: Cost) -> Lazy:
        """A tensor with the metadata of the node at hand whose elements ``inner(index)`` computes."""
        val = self.node.meta["val"]
        return Lazy(self.sizes, val.dtype, val.device, inner, cost)

    def new_name(self) -> str:
        self.counter += 1
        return f"buf{self.counter - 1}"

    def allocate(self, sizes: Sizes, dtype: torch.dtype, order_of: Iterable[Tensor] = ()) -> Target:
        """Memory for a result of the node at hand, in the order the node asks for, or that of the placed tensors ``order_of``."""
        val = self.node.meta["val"]
        strides, exact = self.wanted_strides(self.node)
        first = val[0] if isinstance(val, (tuple, list)) else val
        if strides is None or len(strides) != len(sizes):
            strides = self.dense_like(first)
        if not exact:
            strides = order_like(sizes, strides, [x.place() and x.place().layout for x in order_of])
        name = self.new_name()
        layout = self.layouts[name] = Layout(sizes, strides, dtype, first.device)
        return Target(name, layout)

    def loops(self, out: Target, fn: Callable[..., None], rsizes: Sizes = ()) -> Stored:
        return self.loops_into([out], fn, rsizes)[0]

    def loops_into(self, outs: list[Target], fn: Callable[..., None], rsizes: Sizes = ()) -> list[Stored]:
        """A loop nest over the (equal) sizes of ``outs`` that fills them all; it goes by the name of the first."""
        for other in outs[1:]:
            self.emit_allocation(other)
        first = outs[0]
        if sympy.S.Zero in first.layout.sizes:
            self.emit_allocation(first)
        else:
            self.emit_loops(first.name, first.layout, first.layout.sizes, rsizes, fn)
        return [out.stored() for out in outs]

    def emit_allocation(self, out: Target) -> None:
        self.emit(Extern(out.name, out.layout, target="alloc"))

    def emit_loops(self, name: str, layout: Layout, sizes: Sizes, rsizes: Sizes, fn: Callable[..., None],
                   origin: fx.Node | None = None) -> None:
        """Record ``fn(index)`` (or ``fn(index, rindex)``) over ``sizes`` and emit it; nothing where there is nothing to run over."""
        if sympy.S.Zero in sizes:
            return
        kept = [d for d, n in enumerate(sizes) if n != 1]
        vars, rvars = loop_vars("p", len(kept)), loop_vars("r", len(rsizes))
        loop_sizes = tuple([sizes[d] for d in kept])
        index: list[Expr] = [sympy.S.Zero] * len(sizes)
        for d, v in zip(kept, vars):
            index[d] = v
        recorder = Recorder(lambda n: self.layouts[n].dtype, dict(zip(vars + rvars, loop_sizes + rsizes)))
        origin = origin or self.node
        with ops.use(recorder):
            fn(index, rvars) if rsizes else fn(index)
        notes = {n.name: None for n in recorder.notes if n is not None}
        notes[origin.name] = None
        body = LoopBody(vars, loop_sizes, rvars, tuple(rsizes), recorder.instrs)
        self.layouts.setdefault(name, layout)
        self.buffers.append(Computed(name, layout, body, origin.meta.get("stack", ()), tuple(notes)))

    def emit(self, buffer: Extern) -> None:
        self.declare(buffer)
        self.buffers.append(buffer)

    def declare(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            self.layouts[buffer.name] = buffer.layout

    # Memory

    def realize(self, t: Tensor) -> Place:
        """Where ``t`` lies in memory, put there now if it was not."""
        place = t.place()
        if place is not None:
            return place
        if isinstance(t, View) and (t.kind != "slice" or t.source.place() is not None):  # of a closure, a slice computes its part only
            if t.kind == "reshape":
                self._realize_for_reshape(t)
            else:
                self.realize(t.source)
            place = t.place()
            if place is not None:
                return place
        return self.store(t)

    def _realize_for_reshape(self, t: View) -> None:
        """Merging dimensions wants them adjacent: the source is written, or copied, row-major in its own shape, free of divisions."""
        source = t.source
        place = source.place()
        if place is None and isinstance(source, Lazy):
            wanted = source.strides or dense(source.sizes, None)
            if t.relayout(Layout(source.sizes, wanted, t.dtype, t.device)) is None:
                source.strides, source.exact = dense(source.sizes, None), True
            self.realize(source)
        elif place is None and isinstance(source, View) and source.kind == "permute" or place is not None:
            copy = self._copied(source, place or source, dense(source.sizes, None))
            layout = t.relayout(copy.layout)
            t.realised(Place(copy.name, layout))
        else:
            self.realize(source)

    def copy_of(self, t: Tensor, strides: tuple[Expr, ...]) -> Lazy:
        copy = Lazy(t.sizes, t.dtype, t.device, t.load, t.cost)
        copy.strides, copy.exact, copy.origin = strides, True, getattr(t, "origin", None) or self.node
        return copy

    def store(self, t: Lazy | View) -> Place:
        """Write ``t`` into a buffer of its own."""
        name, sizes = self.new_name(), t.sizes
        exact = isinstance(t, Lazy) and t.exact
        hint = t.strides if t.strides is not None else dense(sizes, None)
        layout = self.layouts[name] = Layout(sizes, hint, t.dtype, t.device)
        if sympy.S.Zero in sizes:
            self.emit(Extern(name, layout, target="alloc"))
        else:
            def body(index: Index) -> None:
                nonlocal layout
                value = t.load(index)
                if not exact:
                    layout = Layout(sizes, pick_order([e for _, e in ops.handler.reads], index, sizes, hint), t.dtype, t.device)
                Target(name, layout).store(index, value)

            self.emit_loops(name, layout, sizes, (), body, t.origin)
            self.buffers[-1].layout = self.layouts[name] = layout
        place = Place(name, layout)
        t.realised(place)
        return place

    def place_as(self, t: Tensor, strides: tuple[Expr, ...]) -> Place:
        """``t`` in memory with exactly these strides: where it lies, or a copy."""
        place = None
        if isinstance(t, Lazy) and t.place() is None:
            place = t.copy_of.place() if t.copy_of is not None else None
            if place is None or not same_strides(t.sizes, place.layout.strides, strides):
                t.strides, t.exact, place = strides, True, None
        place = place or self.realize(t)
        layout = place.layout
        if not same_strides(t.sizes, layout.strides, strides):
            return self._copied(t, place, strides)
        if layout.strides == strides:
            return place
        return Place(place.name, Layout(layout.sizes, strides, layout.dtype, layout.device, layout.offset))

    def _copied(self, t: Tensor, key: Any, strides: tuple[Expr, ...]) -> Place:
        """A copy of ``t`` with these strides, made once."""
        if (key, strides) not in self.copies:
            self.copies[key, strides] = self.store_copy(t, strides)
        return self.copies[key, strides]

    def store_copy(self, t: Tensor, strides: tuple[Expr, ...]) -> Place:
        """A copy of ``t`` with these strides; by torch's own kernel where loops cannot hold its elements."""
        if t.dtype in DTYPES:
            return self.store(self.copy_of(t, strides))
        layout = Layout(t.sizes, strides, t.dtype, t.device)
        copy = Extern(self.new_name(), layout, target=copy_strided, args=(self.reference(t), strides), stack=self.node.meta.get("stack", ()))
        self.emit(copy)
        return Place(copy.name, layout)

    def reference(self, t: Tensor, strides: tuple[Expr, ...] | None = None) -> TensorRef:
        """An argument of an extern call, in memory (with these strides)."""
        return self.ref(self.realize(t) if strides is None else self.place_as(t, strides))

    def ref(self, place: Place) -> TensorRef:
        return TensorRef(place.name, None if place.layout == self.layouts[place.name] else place.layout)

    def realize_readers(self, name: str) -> None:
        """Before ``name`` is overwritten: closures that would read it later are stored now."""
        for t in list(self.env.values()):
            if isinstance(t, (Lazy, View)) and t.place() is None and name in t.cost.reads:
                self.realize(t)

    # Leaves and outputs

    def placeholder(self, node: fx.Node) -> Any:
        position, self.placeholders = self.placeholders, self.placeholders + 1
        val = self.fakes[position] if self.fakes is not None else node.meta["val"]
        if isinstance(val, SYMBOLIC):
            return self.symbols.number(val)
        if not hasattr(val, "stride"):
            return val
        layout = Layout(self.symbols.sizes(val.shape), self.symbols.sizes(val.stride()), val.dtype, val.device)
        made = Input(f"in{position}", layout, position, bool(node.meta.get("static")))
        self.inputs.append(made)
        self.declare(made)
        return Stored(made.name, layout)

    def constant(self, node: fx.Node) -> Any:
        value: Any = self.gm
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, torch.Tensor):
            return value
        if value.numel() == 1 and value.device.type == "cpu" and value.dtype in DTYPES and value.layout == torch.strided:
            number, dtype, device = value.item(), value.dtype, value.device
            return Lazy(self.symbols.sizes(value.shape), dtype, device, lambda index: ops.constant(number, dtype), Cost())
        layout = Layout(self.symbols.sizes(value.shape), self.symbols.sizes(value.stride()), value.dtype, value.device)
        made = Constant(f"const{len(self.constants)}", layout, value)
        self.constants.append(made)
        self.declare(made)
        return Stored(made.name, layout)

    def output(self, node: fx.Node) -> None:
        leaves = node.args[0] if isinstance(node.args[0], (tuple, list)) else (node.args[0],)
        self.results = finish(self, list(leaves), self.gm.meta.get("mutated_inputs") or {})
