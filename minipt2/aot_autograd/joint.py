"""From a captured graph to a functional joint graph and the record of what the runtime must put back.

Decides for each output of the user's graph where it comes from at run time: a value that the compiled graph returns, an
input, or a view to be taken of either, so that what was aliased in eager is aliased again. Views of inputs are not computed
by the graph at all; outputs that share storage are views of one returned base.

Upstream: ``torch._functorch._aot_autograd.collect_metadata_analysis`` (which runs the function once more for this).
"""
from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Sequence

import torch
from torch import fx

from ..errors import Unsupported
from .batch_norm import use_native_batch_norm
from .functionalize import functionalize, overlaps
from .ops import ALIAS_ONLY, aten, storage_root, view_parent
from .simplify import output_node, simplify
from .sizes import evaluated
from .trace import Tracer, trace_joint


@dataclass(frozen=True)
class View:
    """One view to be taken: data, so that it can be written to disk."""

    op: Callable[..., Any]
    rest: tuple[Any, ...]
    kwargs: dict[str, Any]
    untracked: bool = False
    """Taken of what requires grad, under ``no_grad``: then it requires grad and has no history, as eager makes it."""

    def __call__(self, base: Any, numbers: Sequence[int | float]) -> torch.Tensor:
        """``numbers``: what formulas among the arguments compute with."""
        rest, kwargs = evaluated((self.rest, self.kwargs), numbers) if numbers else (self.rest, self.kwargs)
        if not self.untracked:
            return self.op(base, *rest, **kwargs)
        with torch.no_grad():
            return self.op(base, *rest, **kwargs)


@dataclass(frozen=True)
class Output:
    """Where one output of the user's graph comes from."""

    origin: str
    """``value`` (returned by the graph), ``input``, ``output`` (the same tensor as an earlier one), or ``constant`` (known at compile time, or
    a number that follows from the call's: a ``Formula``)."""
    index: Any
    """Which value, input or output; the constant itself."""
    views: tuple[View, ...] = ()
    """To be applied in turn, under autograd, to what ``origin`` and ``index`` name."""
    detach: bool = False
    """Whether what is named is detached before the views are taken."""


@dataclass
class Joint:
    """``graph`` returns ``((*updates, *values), grads)``: new contents of written inputs first."""

    graph: fx.GraphModule
    outputs: list[Output]
    updates: list[int] = field(default_factory=list)
    """Inputs whose new contents lead the outputs; copied back without autograd noticing."""
    uncounted: tuple[int, ...] = ()
    """Positions in ``updates`` of inputs whose version counters stay where they are."""
    histories: dict[int, int] = field(default_factory=dict)
    """Input -> value: written under grad mode, copied back under autograd."""
    tangents: list[int] = field(default_factory=list)
    """The values that have a tangent, in the order of the tangent placeholders."""
    count: int = 0
    """How many values there are."""
    reach: list[int] = field(default_factory=list)
    """For each input, the tangents that its gradient depends on, as bits: without any of them it has none, as in eager."""


def _view_steps(node: fx.Node, root: fx.Node, exact: bool = False) -> tuple[View, ...]:
    """The recorded views from ``root`` to ``node``, as functions; ``detach`` and ``alias`` left out unless ``exact``."""
    steps: list[View] = []
    while node is not root:
        parent = view_parent(node)
        if not isinstance(node.target, torch._ops.OpOverload):  # getitem
            steps.append(View(operator.getitem, (node.args[1],), {}))
        elif node.target not in ALIAS_ONLY or exact and node.target in _RENAMING:
            steps.append(View(node.target, tuple(node.args[1:]), dict(node.kwargs), node.meta.get("untracked", False)))
        node = parent
    return tuple(reversed(steps))


def _nearest(node: fx.Node, wanted: fx.Node, root: fx.Node) -> fx.Node:
    """``wanted`` where ``node`` is a view of it, else ``root``."""
    while node is not wanted and node is not root:
        node = view_parent(node)
    return node


def _without_history(view: torch.Tensor) -> bool:
    """Whether ``view`` was taken under ``no_grad`` of what requires grad: only taking it anew gives another such tensor."""
    return view._is_view() and view.requires_grad and view.grad_fn is None


_RENAMING = (aten.detach.default, aten.alias.default)


class _Chooser:
    """Called between forward and backward: sorts the outputs by origin, names the tensors that the graph must return."""

    def __init__(self) -> None:
        self.outputs: list[Output] = []
        self.histories: dict[int, int] = {}
        self.uncounted: list[int] = []
        self.returned: list[torch.Tensor] = []
        self.position: dict[int, int] = {}

    def value(self, tensor: torch.Tensor) -> int:
        """The position of ``tensor`` among the returned ones, where it is put if it was not there."""
        if id(tensor) not in self.position:
            self.position[id(tensor)] = len(self.returned)
            self.returned.append(tensor)
        return self.position[id(tensor)]

    def __call__(self, tracer: Tracer, outputs: Sequence[Any]) -> list[torch.Tensor]:
        places = {}
        for i, value in enumerate(tracer.values):
            if isinstance(value, torch.Tensor):
                node = tracer.node(value)
                if node.op != "placeholder":
                    raise Unsupported("MP502", "the shape or strides of an input are changed in place")
                places[node] = i
        self.uncounted = tracer.uncounted()
        self.histories = {i: self.value(tracer.values[i]) for i in tracer.rewritten()}
        roots = [storage_root(tracer.node(o)) if isinstance(o, torch.Tensor) else None for o in outputs]
        bases = self.bases(tracer, outputs, roots)
        first = {id(out): i for i, out in reversed(list(enumerate(outputs)))}
        for i, (out, root) in enumerate(zip(outputs, roots)):
            again = root is not None and first[id(out)] < i
            self.outputs.append(Output("output", first[id(out)]) if again else self.place(tracer, out, root, places, bases))
        return self.returned

    def bases(self, tracer: Tracer, outputs: Sequence[Any], roots: list) -> dict[fx.Node, torch.Tensor]:
        """For each storage that more than one output looks into: the tensor to return, of which all are views."""
        members: dict[fx.Node, dict[int, torch.Tensor]] = {}
        for out, root in zip(outputs, roots):
            if root is not None and root.op == "call_function":
                members.setdefault(root, {})[id(out)] = out
        found = {}
        for root, tensors in members.items():
            if len(tensors) == 1 and not _without_history(*tensors.values()):
                continue
            tracked = any(t.requires_grad for t in tensors.values())
            whole = [root.meta["val"]] + [t for t in tensors.values() if not _view_steps(tracer.node(t), root)]
            whole = [t for t in whole if not _without_history(t)]
            whole += [n.meta["val"] for n in tracer.graph.nodes
                      if n.op == "call_function" and n.target in ALIAS_ONLY and storage_root(n) is root and not _view_steps(n, root)]
            found[root] = next((t for t in whole if t.requires_grad == tracked), None)
            if found[root] is None:
                raise Unsupported("MP502", "outputs share storage with a tensor that autograd lost sight of")
        return found

    def place(self, tracer: Tracer, out: Any, root: fx.Node | None, places: dict, bases: dict) -> Output:
        if root is None:
            return Output("constant", out)
        node = tracer.node(out)
        base = tracer.values[places[root]] if root in places else bases.get(root)
        if root not in places and (base is None or base is out):
            return Output("value", self.value(out))
        origin = ("input", places[root]) if root in places else ("value", self.value(base))
        steps = _view_steps(node, _nearest(node, tracer.node(base), root), exact=True)
        detached = any(s.op is aten.detach.default for s in steps)
        if detached and out.requires_grad:
            raise Unsupported("MP502", "an output is a detached view into which something that requires grad was written")
        return Output(*origin, steps, base.requires_grad and not out.requires_grad and not detached)


def _check_apart(examples: Sequence[Any], written: set[int]) -> None:
    """Two inputs in one storage, one of them written: the functional graph could not see that the other changes."""
    owners: dict[int, list[int]] = {}
    for i, example in enumerate(examples):
        if isinstance(example, torch.Tensor):
            owners.setdefault(example.untyped_storage()._cdata, []).append(i)
    for i in written:
        if overlaps(tuple(examples[i].shape), examples[i].stride()):
            raise Unsupported("MP502", "an input is written in place in which elements share memory", "clone() it first")
    for shared in owners.values():
        if len(shared) > 1 and written.intersection(shared):
            raise Unsupported("MP502", "an input that is written in place shares its storage with another input")


def _check_strided(outputs: Sequence[Output], written: set[int]) -> None:
    """Of a view whose base was written since, autograd takes ``as_strided`` of the base: memory outside of its argument, which had
    no gradient before the write, then has one.
    """
    for out in outputs:
        if out.origin == "input" and out.index in written and any(v.op is aten.as_strided.default for v in out.views[1:]):
            raise Unsupported("MP502", "an output is as_strided of a view of an input that is written in place", "clone() it first")


def _reach(graph: fx.Graph) -> list[int]:
    """For each gradient, bit ``k`` set where it depends on tangent ``k``."""
    bits: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.meta.get("tangent"):
            bits[node] = 1 << len(bits)
    for node in graph.nodes:
        if node.op == "call_function":
            found = 0
            for a in node.all_input_nodes:
                found |= bits.get(a, 0)
            bits[node] = found
    return [bits.get(g, 0) for g in output_node(graph).args[0][1]]


def capture(gm: fx.GraphModule, examples: Sequence[Any]) -> Joint:
    """Trace, functionalise and tidy ``gm``; ``Joint.tangents`` is empty when nothing needs a gradient.

    gm: a graph that returns a flat tuple; its placeholders' ``static`` and ``source`` metadata are kept.
    examples: one per placeholder, fake or real; ``requires_grad`` decides what gets a gradient.
    Raises ``Unsupported`` where the meaning of eager could not be kept.
    """
    chooser = _Chooser()
    metas = [{k: v for k, v in n.meta.items() if k in ("static", "source")} for n in gm.graph.nodes if n.op == "placeholder"]
    joint = trace_joint(gm, examples, metas=metas, choose=chooser)
    graph = joint.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder" and not n.meta.get("tangent")]
    use_native_batch_norm(graph)
    mutations = {placeholders.index(m.input): m.value for m in functionalize(graph)}
    _check_apart(examples, set(mutations))
    _check_strided(chooser.outputs, set(mutations))
    for i in mutations:
        placeholders[i].meta["mutated"] = True
    updates = [i for i in mutations if i not in chooser.histories]
    output = output_node(graph)
    values, grads = output.args[0]
    output.args = (((*(mutations[i] for i in updates), *values), grads),)
    tangents = [i for i, t in enumerate(chooser.returned) if t.requires_grad]
    reach = _reach(graph)
    simplify(graph, len(updates))
    joint.recompile()
    uncounted = tuple([k for k, i in enumerate(updates) if i in chooser.uncounted])
    return Joint(joint, chooser.outputs, updates, uncounted, chooser.histories, tangents, len(chooser.returned), reach)

