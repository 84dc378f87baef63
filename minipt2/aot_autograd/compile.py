"""``aot_compile`` (``make_plan``, then ``bind``): all steps of this room in order.

Upstream: ``torch._functorch._aot_autograd.graph_compile`` and ``torch._dynamo.backends.debugging.aot_eager``.
"""
from __future__ import annotations

import contextlib
from typing import Any, Callable, Sequence

from torch import fx

from .. import trace as events
from ..config import config
from ..prims.core import TensorMeta
from ..prims.kinds import kind as prims_kind
from ..prims.lazy import Graph, LazyGraphModule
from .joint import Joint, capture
from .partition import Kind, partition, storage_root
from .runtime import Compiler, Plan, bind, report_fallback
from .simplify import drop_dead, output_node
from .sizes import Formulas, symbol_inputs
from .twice import Again, draws_random_numbers
from .unused import leave_out


def aot_compile(gm: fx.GraphModule, example_inputs: Sequence[Any], **how: Any) -> Callable[..., tuple]:
    """Compile ``gm`` ahead of time, with its backward when grad mode is on and some input requires grad: ``make_plan``, bound.

    gm: returns a flat tuple; parameters and buffers are placeholders. example_inputs: one per placeholder, fake or real. how: the compilers
    and the rest of what ``make_plan`` takes.
    """
    return compiled(gm, lambda: make_plan(gm, example_inputs, **how))


def compiled(gm: fx.GraphModule, make: Callable[[], Plan]) -> Callable[..., tuple]:
    """``gm`` as ``make()`` says.

    What cannot be expressed or compiled runs eagerly, with a warning and counted as ``aot_fallbacks``: a failure here is no failure of
    the user's program (``config.raise_internal_errors``: it is raised). Of a backward that fails, only the backward runs eagerly.
    """
    try:
        plan = make()
    except Exception as error:
        _fall_back("graph", error)
        return lambda *args: tuple(gm.forward(*args))
    if plan.repeatable:
        plan.again = Again(gm.forward)
    return bind(plan, gm.forward)


def make_plan(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    fw_compiler: Compiler,
    bw_compiler: Compiler | None = None,
    inference_compiler: Compiler | None = None,
    decompose: Callable[[fx.GraphModule], fx.GraphModule] | None = None,
    partitioner: Callable[..., tuple[fx.GraphModule, fx.GraphModule]] | None = None,
    kind: Kind = prims_kind,
) -> Plan:
    """Trace, cut and compile ``gm``.

    fw_compiler, bw_compiler, inference_compiler: ``compiler(graph, fake_inputs) -> fn``, where ``fn(args: list) -> list`` may clear
    ``args``. The two latter default to the first; the backward is compiled when it first runs. ``graph.meta["mutated_inputs"]``
    maps an output to the input it may be written into instead (returning that input object); what fails after that began is raised
    as ``errors.PartlyWritten`` from the fault, anything else is run again on eager kernels.
    decompose: rewrites the joint graph (output ``(outputs, grads)``) before it is cut. kind: classifies its nodes.
    partitioner: ``partitioner(joint, kind) -> (forward, backward)``; default: minimum cut.
    Raises Unsupported where eager's meaning could not be kept, and whatever the compilers raise.
    """
    with events.span("ahead-of-time trace"):
        joint = capture(gm, example_inputs)
    random = draws_random_numbers(joint.graph)
    events.artifact("aot", "joint", joint.graph)
    if decompose is not None:
        with events.span("decomposition"):
            joint.graph = decompose(joint.graph)
        events.artifact("aot", "decomposed", joint.graph)
    if joint.tangents:
        plan = _plan_training(joint, fw_compiler, bw_compiler or fw_compiler, partitioner or partition, kind)
    else:
        plan = _plan_inference(joint, inference_compiler or fw_compiler, kind)
    plan.repeatable = bool(plan.tangents) and plan.straight and not plan.updates and not random
    return plan


def _fall_back(what: str, error: Exception) -> None:
    """Tell of a failure and go on, or raise it where a test wants to see it."""
    if config.raise_internal_errors:
        raise error
    report_fallback(f"compile a {what}", error)


def _inputs(gm: fx.GraphModule) -> list[fx.Node]:
    return [n for n in gm.graph.nodes if n.op == "placeholder"]


def _compile(compiler: Compiler, gm: fx.GraphModule, name: str) -> Callable[[list], Sequence[Any]]:
    events.artifact("aot", name, gm)
    return compiler(gm, [n.meta["val"] for n in _inputs(gm)])


def _base_plan(joint: Joint) -> Plan:
    may_alias = [i for i, n in enumerate(_inputs(joint.graph)) if n.meta.get("mutated") and not n.meta.get("static")]
    offsets = {i: n.meta["offset"] for i, n in enumerate(_inputs(joint.graph)) if "offset" in n.meta}
    symbols = symbol_inputs(joint.graph.graph)
    outputs, offsets = Formulas(symbols).of((joint.outputs, offsets)) if symbols else (joint.outputs, offsets)
    return Plan(None, outputs, joint.updates, joint.histories, joint.count, may_alias=may_alias, offsets=offsets, uncounted=joint.uncounted,
                numbers=[_inputs(joint.graph).index(s) for s in symbols])


def _allow_in_place(gm: fx.GraphModule, updates: list[int], kind: Kind) -> None:
    """Tell the compiler which outputs it may write straight into inputs: those that nothing else returned shares."""
    results = output_node(gm.graph).args[0]
    roots = [storage_root(r, kind) for r in results]
    inputs = _inputs(gm)
    gm.meta["mutated_inputs"] = {
        o: i for o, i in enumerate(updates)
        if roots.count(roots[o]) == 1 and roots[o].op == "call_function" and inputs[i] not in roots}


def _plan_inference(joint: Joint, compiler: Compiler, kind: Kind) -> Plan:
    gm, plan = joint.graph, _base_plan(joint)
    output = output_node(gm.graph)
    output.args = (tuple(output.args[0][0]),)
    drop_dead(gm.graph)
    gm.recompile()
    gm.meta["outputs"] = len(output.args[0])
    _allow_in_place(gm, joint.updates, kind)
    plan.forward = _compile(compiler, gm, "inference")
    return plan


def _plan_training(joint: Joint, fw_compiler: Compiler, bw_compiler: Compiler, partitioner: Callable, kind: Kind) -> Plan:
    plan, updates = _base_plan(joint), len(joint.updates)
    symbols = symbol_inputs(joint.graph.graph)
    tangents = [TensorMeta.of(n.meta["val"]) for n in _inputs(joint.graph) if n.meta.get("tangent")]
    tangents = Formulas(symbols).of(tangents) if symbols else tangents
    with events.span("partition"):
        forward, backward = partitioner(joint.graph, kind)
    results = output_node(forward.graph).args[0]
    inputs = _inputs(forward)
    returned, saved = results[updates:updates + joint.count], results[updates + joint.count:]
    plan.saved = [(True, inputs.index(s)) if s.op == "placeholder"
                  else (False, results.index(s, updates) - updates) for s in saved]
    kept = {storage_root(s, kind) for s in saved}
    plan.witnesses = [i for i, r in enumerate(returned) if r not in saved and storage_root(r, kind) in kept]
    plan.tangents = list(zip(joint.tangents, tangents))
    plan.reach = joint.reach
    plan.frozen = [i for i in range(joint.count) if i not in joint.tangents]
    _allow_in_place(forward, joint.updates, kind)
    plan.forward = _compile(fw_compiler, forward, "forward")
    plan.backward_graph = backward
    plan.compile_backward = lambda absent: compile_backward(bw_compiler, backward, absent)
    return plan


def compile_backward(compiler: Compiler, gm: fx.GraphModule, absent: tuple[int, ...] = ()) -> Callable[[list], Sequence[Any]]:
    """A copy of ``gm`` compiled, without its ``absent`` inputs (``unused.leave_out``).

    The forward has run already, so a backward that cannot be compiled runs as the graph it was.
    """
    def copy() -> fx.GraphModule:
        graph = Graph()
        graph.output(graph.graph_copy(gm.graph, {}))
        module = LazyGraphModule(gm, graph)
        module.meta = {**gm.meta, "absent": absent}
        if absent:
            leave_out(module, absent)
        return module

    try:
        with _guards_settled(gm):
            return _compile(compiler, copy(), "backward")
    except Exception as error:
        _fall_back("backward graph", error)
        return run_eagerly(copy())


def _guards_settled(gm: fx.GraphModule) -> Any:
    """By now the guards of the captured code have been compiled: nothing more may be decided about its sizes."""
    symbols = symbol_inputs(gm.graph)
    return symbols[0].meta["val"].node.env.frozen() if symbols else contextlib.nullcontext()


def run_eagerly(gm: fx.GraphModule, fake_inputs: Sequence[Any] = ()) -> Callable[[list], Sequence[Any]]:
    """The compiler that compiles nothing: runs the graph's own Python, each operator by its eager kernel."""
    if symbol_inputs(gm.graph):
        from ..shapes import materialize

        materialize(gm)
    getattr(gm, "real_recompile", gm.recompile)()
    forward = gm.forward

    def run(args: list) -> Sequence[Any]:
        inputs = tuple(args)
        args.clear()
        return forward(*inputs)
    return run


def aot_eager(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., tuple]:
    """A backend: everything this room does, the graphs then run eagerly."""
    return aot_compile(gm, example_inputs, fw_compiler=run_eagerly)
