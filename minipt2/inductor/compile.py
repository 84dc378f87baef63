"""``compile_graph``: from a functional graph of prims to a callable. The order of all stages is in this file.

Upstream: ``torch._inductor.compile_fx`` and ``torch._inductor.codecache`` (``FxGraphCache``).
"""
from __future__ import annotations

import functools
import operator
from typing import Any, Callable, Sequence

import torch
from torch import fx

from .. import trace
from ..config import config
from ..errors import CompilerNotFound, warn
from ..prims import kind
from . import cache
from .codegen import wrapper
from .devices import devices_of, is_literal, split
from .fingerprint import graph_text
from .hardware import TINY, Hw, hardware
from .load import Compiled, Recipe, sources_identity, start
from .passes.freeze import split_static
from .passes.order import INFERENCE_PASSES, TRAINING_PASSES
from .precision import precisions
from .triton_pool import triton_version


def compile_graph(gm: fx.GraphModule, fake_inputs: Sequence[Any], *, inference: bool, name: str = "graph",
                  keep: Callable[[Recipe], Any] | None = None) -> Compiled:
    """Compile ``gm``: placeholders first, every call a prim or an explicit fallback, one output tuple.

    Returns ``fn(args: list) -> list``, which owns ``args`` and clears it. With ``inference``, what depends on parameters alone is computed once
    (``passes/freeze.py``). Tensors on a GPU go through Triton, those on several devices piece by piece (``devices``). Without a C compiler, or
    where there is no code for a device, the graph runs on eager kernels, with one warning. ``gm`` may be changed.
    Call it under ``no_grad`` (out-variants of eager kernels refuse tensors that require gradients).
    ``keep(recipe)`` is told what ``load`` needs to give the same function again.
    """
    try:
        cache.find_compiler()
    except CompilerNotFound as error:
        _warn_once(str(error))
        return _eager(gm, "no C compiler")
    device = _device(gm)
    if isinstance(device, str):
        return _eager(gm, device)
    recipe = _compiled(gm, device, inference, name) if device is not None else _on_several(gm, inference, name)
    call = start(recipe, name)
    if keep is not None:
        keep(recipe)
    return call


def _on_several(gm: fx.GraphModule, inference: bool, name: str) -> Recipe:
    """Each piece on its device; what has no code for it stays a graph for eager kernels."""
    pieces = split(gm)
    for k, piece in enumerate(pieces.steps):
        device = _device(piece.graph) if piece.device is not None else None
        if isinstance(device, torch.device):
            piece.graph = _compiled(piece.graph, device, inference, f"{name}_{k}")
    return Recipe("", [], 0, 0, {}, pieces=pieces)


def _compiled(gm: fx.GraphModule, device: torch.device, inference: bool, name: str) -> Recipe:
    """``gm``, whose tensors are on one device, through passes and code generation."""
    on_cpu = not _on_triton(device)
    with trace.span("passes"), config.patch(onednn=config.onednn and on_cpu, packed_products=config.packed_products and on_cpu):
        for run_pass in INFERENCE_PASSES if inference else TRAINING_PASSES:
            run_pass(gm)
        parts = split_static(gm) if inference and config.freeze else None
    trace.artifact("prims", name, gm)
    prologue, main = parts or (None, gm)
    recipe = _recipe(main, name, device)
    if prologue is not None:
        recipe.prologue, recipe.kept = prologue, main.meta["positions"]
    if config.cuda_graphs and device.type == "cuda":
        inputs = [n for n in main.graph.nodes if n.op == "placeholder"]
        recipe.lasting = [i for i, n in enumerate(inputs) if n.meta.get("static")]
        recipe.written = sorted(main.meta.get("mutated_inputs", {}).values())
        recipe.shown = _shown(main)
    return recipe


def _shown(gm: fx.GraphModule) -> int:
    """How many results are the user's, where others, saved for the backward, follow them; else 0."""
    results = next(n for n in reversed(gm.graph.nodes) if n.op == "output").args[0]
    outputs = gm.meta.get("outputs", len(results))
    return outputs if outputs < len(results) else 0


def _device(gm: fx.GraphModule) -> torch.device | str | None:
    """Where the tensors of ``gm`` are; None: on several devices; or why there are no kernels for them."""
    devices = devices_of([n.meta.get("val") for n in gm.graph.nodes if not is_literal(n)])
    kinds = {d.type for d in devices}
    if kinds - {"cpu", "cuda"}:
        why = f"no kernels for {', '.join(sorted(kinds - {'cpu', 'cuda'}))} tensors"
    elif len(devices) > 1:
        return None
    elif kinds == {"cuda"} and triton_version() is None:
        why = "Triton is not installed (pip install triton)"
    else:
        return devices.pop() if devices else torch.device("cpu")
    if kinds != {"meta"}:  # no values, nothing to be fast at
        _warn_once(why)
    return why


def _on_triton(device: torch.device) -> bool:
    return _is_for_triton({device.type})


def _is_for_triton(kinds: set[str]) -> bool:
    return kinds == {"cuda"} or config.triton_interpret


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
def _recipe(gm: fx.GraphModule, name: str, device: torch.device) -> Recipe:
    key = cache.digest(graph_text(gm), sources_identity(), cache.toolchain_identity(), config.identity(), hardware(device).identity(), repr(precisions()))
    entry = None if trace.listening("ir", "schedule", "scheduler", "codegen", "fallback") else cache.load_entry(key)
    objects: dict[str, Any] = {}
    if entry is None:
        entry, objects = _generate(gm, name, device)
        if not objects:
            cache.store_entry(key, entry)
    else:
        trace.count("fallbacks", entry["fallbacks"])
    objects.update({label: operator.attrgetter(attribute)(gm) for label, attribute in entry["attributes"].items()})
    return Recipe(entry["python"], entry["c"], entry["kernels"], entry["fallbacks"], objects, triton=entry["triton"])


def _generate(gm: fx.GraphModule, name: str, device: torch.device) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the disk cache keeps, objects that only this process has)."""
    from .lowering import lower
    from .scheduler import CPU, GPU, schedule
    inputs = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    before = trace.counters()["fallbacks"]
    with trace.span("lowering"):
        program = lower(gm, inputs)
    fallbacks = trace.counters()["fallbacks"] - before
    program.name = name
    trace.artifact("ir", name, lambda: "\n\n".join(map(str, program.buffers)))
    with trace.span("scheduling"):
        plan = schedule(program, GPU if _on_triton(device) else CPU, None if program.symbols else _chooser(device))
    trace.artifact("schedule", name, plan)
    with trace.span("code generation"):
        written, code = (_triton if _on_triton(device) else _c)(plan, name, device)
    attributes, objects = _constants(gm, program.constants)
    objects.update(written.objects)
    return dict(code, python=written.python, attributes=attributes, fallbacks=fallbacks), objects


def _c(plan: Any, name: str, device: torch.device) -> tuple[wrapper.WrapperSource, dict[str, Any]]:
    from .codegen import c_openmp
    from .codegen.units import units
    source = c_openmp.generate(plan)
    written = wrapper.generate(plan, source.kernels, name, source.products)
    return written, dict(c=units(source.functions, written.c), kernels=len(source.kernels) + len(source.products), triton=None)


def _triton(plan: Any, name: str, device: torch.device) -> tuple[wrapper.WrapperSource, dict[str, Any]]:
    from .codegen import triton, triton_sized, triton_wrapper
    hw = hardware(device) if device.type == "cuda" else TINY
    source = triton_sized.generate(plan, hw) if plan.program.symbols else triton.generate(plan, hw, _tuner(hw, device))
    written, table = triton_wrapper.generate(plan, source, name, str(device))
    return written, dict(c=[], kernels=len(source.launches), triton=table)


def _tuner(hw: Hw, device: torch.device) -> Callable[..., Any] | None:
    """What finds block sizes by measuring, where that is wanted and there is something to measure on."""
    if not _measures(device):
        return None
    from .autotune import tuned
    return lambda plans, schedule: tuned(plans, schedule, hw, device)


def _chooser(device: torch.device) -> Callable[..., Any] | None:
    """What finds the contractions that are faster as templates, likewise."""
    if not _measures(device):
        return None
    from .autotune import choose
    return lambda candidates, schedule: choose(candidates, schedule, hardware(device), device)


def _measures(device: torch.device) -> bool:
    return config.max_autotune and device.type == "cuda" and torch.cuda.is_available()


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
