"""``compile_graph``: from a functional graph of prims to a callable. The order of all stages is in this file.

Upstream: ``torch._inductor.compile_fx`` and ``torch._inductor.codecache`` (``FxGraphCache``).
"""
from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Sequence

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from .. import trace
from ..config import config
from ..errors import CompilerNotFound, warn
from ..prims import kind
from . import cache
from .codegen import wrapper
from .fingerprint import graph_text
from .load import Compiled, Recipe, sources_identity, start
from .passes import INFERENCE_PASSES, TRAINING_PASSES, split_static


def compile_graph(gm: fx.GraphModule, fake_inputs: Sequence[Any], *, inference: bool, name: str = "graph",
                  keep: Callable[[Recipe], Any] | None = None) -> Compiled:
    """Compile ``gm``: placeholders first, every call a prim or an explicit fallback, one output tuple.

    Returns ``fn(args: list) -> list``, which owns ``args`` and clears it. With ``inference``, what depends on parameters alone is computed once
    (``passes/freeze.py``). Without a C compiler, or where a tensor is not on the CPU, the graph runs on eager kernels, with one warning. ``gm`` may be changed.
    Call it under ``no_grad`` (out-variants of eager kernels refuse tensors that require gradients).
    ``keep(recipe)`` is told what ``load`` needs to give the same function again.
    """
    try:
        cache.find_compiler()
    except CompilerNotFound as error:
        _warn_once(str(error))
        return _eager(gm, "no C compiler")
    for device in _devices(gm) - {"cpu"}:
        if device != "meta":  # no values, nothing to be fast at
            _warn_once(f"there are none for {device} tensors")
        return _eager(gm, f"no kernels for {device} tensors")
    with trace.span("passes"):
        for run_pass in INFERENCE_PASSES if inference else TRAINING_PASSES:
            run_pass(gm)
        parts = split_static(gm) if inference and config.freeze else None
    trace.artifact("prims", name, gm)
    prologue, main = parts or (None, gm)
    recipe = _recipe(main, name)
    if prologue is not None:
        recipe.prologue, recipe.kept = prologue, main.meta["positions"]
    if config.cuda_graphs and "cuda" in _devices(gm):
        inputs = [n for n in main.graph.nodes if n.op == "placeholder"]
        recipe.lasting = [i for i, n in enumerate(inputs) if n.meta.get("static")]
        recipe.shown = _shown(main)
    call = start(recipe, name)
    if keep is not None:
        keep(recipe)
    return call


def _shown(gm: fx.GraphModule) -> int:
    """How many results are the user's, where others, saved for the backward, follow them; else 0."""
    results = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0]
    outputs = gm.meta.get("outputs", len(results))
    return outputs if outputs < len(results) else 0


def _devices(gm: fx.GraphModule) -> set[str]:
    """Types of device on which the tensors of ``gm`` are."""
    vals = tree_leaves([n.meta.get("val") for n in gm.graph.nodes])
    return {v.device.type for v in vals if hasattr(v, "device")}


def _eager(gm: fx.GraphModule, why: str) -> Compiled:
    """Every kernel through eager: prims have references that run on tensors. Each is a fallback."""
    for node in gm.graph.nodes:
        if node.op == "call_function" and kind(node) not in ("view", "contraction"):  # those are eager's anyway
            trace.count("fallbacks")
            trace.artifact("fallback", str(node.target), why)
    gm.recompile()
    outputs = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0]
    strides = [tuple(v.stride()) if hasattr(v := getattr(n, "meta", {}).get("val"), "stride") else None for n in outputs]

    def run(args: list) -> list:
        inputs = tuple(args)
        args.clear()
        results = gm(*inputs)
        return [r if s is None or r.stride() == s else torch.empty_strided(r.shape, s, dtype=r.dtype, device=r.device).copy_(r)
                for r, s in zip(results, strides)]
    return run


@functools.cache
def _warn_once(message: str) -> None:
    warn(f"minipt2 runs without compiled kernels: {message}")


# ------------------------------------------------------------------ one graph to code
def _recipe(gm: fx.GraphModule, name: str) -> Recipe:
    key = cache.digest(graph_text(gm), sources_identity(), cache.toolchain_identity(), config.identity())
    entry = None if trace.listening("ir", "schedule", "scheduler", "codegen", "fallback") else cache.load_entry(key)
    objects: dict[str, Any] = {}
    if entry is None:
        entry, objects = _generate(gm, name)
        if not objects:
            cache.store_entry(key, entry)
    else:
        trace.count("fallbacks", entry["fallbacks"])
    objects.update({label: operator.attrgetter(attribute)(gm) for label, attribute in entry["attributes"].items()})
    return Recipe(entry["python"], entry["c"], entry["kernels"], entry["fallbacks"], objects)


def _generate(gm: fx.GraphModule, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the disk cache keeps, objects that only this process has)."""
    from .codegen import c_openmp
    from .codegen.units import units
    from .lowering import lower
    from .scheduler import schedule
    inputs = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    before = trace.counters()["fallbacks"]
    with trace.span("lowering"):
        program = lower(gm, inputs)
    fallbacks = trace.counters()["fallbacks"] - before
    program.name = name
    trace.artifact("ir", name, lambda: "\n\n".join(map(str, program.buffers)))
    with trace.span("scheduling"):
        plan = schedule(program)
    trace.artifact("schedule", name, plan)
    with trace.span("code generation"):
        source = c_openmp.generate(plan)
        written = wrapper.generate(plan, source.kernels, name)
    attributes, objects = _constants(gm, program.constants)
    objects.update(written.objects)
    entry = dict(c=units(source.functions, written.c), python=written.python, kernels=len(source.kernels), attributes=attributes,
                 fallbacks=fallbacks)
    return entry, objects


def _constants(gm: fx.GraphModule, constants: Sequence[Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """Constants as attributes of ``gm`` (found again in another process), and others by value."""
    known = {id(operator.attrgetter(n.target)(gm)): n.target for n in gm.graph.nodes if n.op == "get_attr"}
    attributes, objects = {}, {}
    for constant in constants:
        if id(constant.value) in known:
            attributes[constant.name] = known[id(constant.value)]
        else:
            objects[constant.name] = constant.value
    return attributes, objects
