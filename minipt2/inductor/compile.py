"""``compile_graph``: from a functional graph of prims to a callable. The order of all stages is in this file.

Upstream: ``torch._inductor.compile_fx`` and ``torch._inductor.codecache`` (``FxGraphCache``).
"""
from __future__ import annotations

import functools
import itertools
import linecache
import operator
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from .. import trace
from ..config import config
from ..errors import CompilerNotFound, warn
from . import cache
from .codegen import wrapper
from .fingerprint import graph_text
from .passes import INFERENCE_PASSES, TRAINING_PASSES, Frozen, split_static

Compiled = Callable[[list], list]
_modules = itertools.count()


@dataclass
class Recipe:
    """All that it takes to load a compiled graph, here or in another process (where ``prims.portable`` can write it)."""

    python: str
    c: list[str]
    kernels: int
    fallbacks: int
    constants: dict[str, Any]
    """Tensors and other objects that the wrapper module names."""
    prologue: fx.GraphModule | None = None
    """Computes what depends on parameters alone (``passes/freeze.py``), from its ``meta["positions"]`` of the arguments."""
    kept: list[int] | None = None
    """With a prologue: the arguments that the wrapper takes, before the prologue's results."""


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
        return _eager(gm)
    for device in _devices(gm) - {"cpu"}:
        if device != "meta":  # no values, nothing to be fast at
            _warn_once(f"there are none for {device} tensors")
        return _eager(gm)
    with trace.span("passes"):
        for run_pass in INFERENCE_PASSES if inference else TRAINING_PASSES:
            run_pass(gm)
        parts = split_static(gm) if inference and config.freeze else None
    trace.artifact("prims", name, gm)
    prologue, main = parts or (None, gm)
    recipe = _recipe(main, name)
    if prologue is not None:
        recipe.prologue, recipe.kept = prologue, main.meta["positions"]
    call = _load(recipe, name)
    if keep is not None:
        keep(recipe)
    return call


def load(recipe: Recipe, name: str = "graph") -> Compiled:
    """The function that an earlier ``compile_graph`` described; its C is compiled if the cache has lost it."""
    trace.count("fallbacks", recipe.fallbacks)
    return _load(recipe, name)


def _load(recipe: Recipe, name: str) -> Compiled:
    trace.count("kernels", recipe.kernels)
    trace.artifact("recipe", name, recipe)
    trace.artifact("code", f"{name}.c", lambda: "\n".join(recipe.c))
    trace.artifact("code", f"{name}.py", recipe.python)
    with trace.span("C compiler"):
        library = cache.compile_c(recipe.c)
    call = _load_module(name, recipe.python, library, recipe.constants)
    return call if recipe.prologue is None else _with_frozen(recipe.prologue, recipe.kept, call)


def _with_frozen(prologue: fx.GraphModule, kept_positions: Sequence[int], call: Compiled) -> Compiled:
    """Feed ``call`` its arguments and the prologue's results."""
    statics, kept = _picker(prologue.meta["positions"]), _picker(kept_positions)
    frozen = Frozen(lambda tensors: list(prologue(*tensors)))

    def run(args: list) -> list:
        inputs = [*kept(args), *frozen(statics(args))]
        args.clear()
        return call(inputs)
    return run


def _picker(positions: Sequence[int]) -> Callable[[list], tuple]:
    """Reads those places of a list, fast."""
    if len(positions) == 1:
        return lambda args, i=positions[0]: (args[i],)
    return operator.itemgetter(*positions) if positions else lambda args: ()


def _devices(gm: fx.GraphModule) -> set[str]:
    """Types of device on which the tensors of ``gm`` are."""
    vals = tree_leaves([n.meta.get("val") for n in gm.graph.nodes])
    return {v.device.type for v in vals if hasattr(v, "device")}


def _eager(gm: fx.GraphModule) -> Compiled:
    """Every kernel through eager: prims have references that run on tensors."""
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


@functools.cache
def sources_identity(rooms: tuple[str, ...] = ("inductor", "prims", "shapes")) -> str:
    """The source of these rooms of ours and torch's version: what other ones made is not reused."""
    root = Path(__file__).parent.parent
    files = [f for room in rooms for f in sorted((root / room).rglob("*.py"))]
    return cache.digest(torch.__version__, *[f.read_bytes() for f in files])


def _load_module(name: str, text: str, library: Any, objects: dict[str, Any]) -> Compiled:
    file = f"<minipt2 {name} #{next(_modules)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"__name__": name, "library": library, "constants": objects}
    exec(compile(text, file, "exec"), namespace)
    weakref.finalize(namespace["call"], linecache.cache.pop, file, None).atexit = False
    return namespace["call"]
