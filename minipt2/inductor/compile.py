"""``compile_graph``: from a functional graph of prims to a callable. The order of all stages is in this file.

Upstream: ``torch._inductor.compile_fx`` and ``torch._inductor.codecache`` (``FxGraphCache``).
"""
from __future__ import annotations

import functools
import itertools
import linecache
import operator
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
from torch import fx

from .. import trace
from ..config import config
from ..errors import CompilerNotFound
from . import cache
from .codegen import wrapper
from .fingerprint import graph_text
from .passes import INFERENCE_PASSES, TRAINING_PASSES, Frozen, split_static

Compiled = Callable[[list], list]
_modules = itertools.count()


def compile_graph(gm: fx.GraphModule, fake_inputs: Sequence[Any], *, inference: bool, name: str = "graph") -> Compiled:
    """Compile ``gm``: placeholders first, every call a prim or an explicit fallback, one output tuple.

    Returns ``fn(args: list) -> list``, which owns ``args`` and clears it. With ``inference``, what depends on parameters alone is computed once
    (``passes/freeze.py``). Without a C compiler the graph runs on eager kernels, with one warning. ``gm`` may be changed.
    Call it under ``no_grad`` (out-variants of eager kernels refuse tensors that require gradients).
    """
    try:
        cache.find_compiler()
    except CompilerNotFound as error:
        _warn_once(str(error))
        return _eager(gm)
    for run_pass in INFERENCE_PASSES if inference else TRAINING_PASSES:
        run_pass(gm)
    parts = split_static(gm) if inference and config.freeze else None
    trace.artifact("prims", name, gm)
    if parts is None:
        return _compile(gm, name)
    prologue, main = parts
    return _with_frozen(prologue, main, _compile(main, name))


def _with_frozen(prologue: fx.GraphModule, main: fx.GraphModule, call: Compiled) -> Compiled:
    """Feed ``call`` its arguments and the prologue's results."""
    statics, kept = _picker(prologue.meta["positions"]), _picker(main.meta["positions"])
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
    warnings.warn(f"minipt2 runs without compiled kernels: {message}", stacklevel=4)


# ------------------------------------------------------------------ one graph to code
def _compile(gm: fx.GraphModule, name: str) -> Compiled:
    key = cache.digest(graph_text(gm), _version(), cache.toolchain_identity(), repr(sorted(asdict(config).items())))
    entry = cache.load_entry(key)
    objects: dict[str, Any] = {}
    if entry is None:
        entry, objects = _generate(gm, name)
        if not objects:
            cache.store_entry(key, entry)
    trace.count("kernels", entry["kernels"])
    trace.artifact("code", f"{name}.c", lambda: "\n".join(entry["c"]))
    trace.artifact("code", f"{name}.py", entry["python"])
    objects.update({label: operator.attrgetter(attribute)(gm) for label, attribute in entry["attributes"].items()})
    return _load_module(name, entry["python"], cache.compile_c(entry["c"]), objects)


def _generate(gm: fx.GraphModule, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the disk cache keeps, objects that only this process has)."""
    from .codegen import c_openmp
    from .codegen.units import units
    from .lowering import lower
    from .scheduler import schedule
    inputs = [n.meta.get("val") for n in gm.graph.nodes if n.op == "placeholder"]
    program = lower(gm, inputs)
    program.name = name
    trace.artifact("ir", name, lambda: "\n\n".join(map(str, program.buffers)))
    plan = schedule(program)
    trace.artifact("schedule", name, plan)
    source = c_openmp.generate(plan)
    written = wrapper.generate(plan, source.kernels, name)
    attributes, objects = _constants(gm, program.constants)
    objects.update(written.objects)
    entry = dict(c=units(source.functions, written.c), python=written.python, kernels=len(source.kernels), attributes=attributes)
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
def _version() -> str:
    """Our own source and torch's version: code made by other ones is not reused."""
    root = Path(__file__).parent.parent
    files = [f for room in ("inductor", "prims", "shapes") for f in sorted((root / room).rglob("*.py"))]
    return cache.digest(torch.__version__, *[f.read_bytes() for f in files])


def _load_module(name: str, text: str, library: Any, objects: dict[str, Any]) -> Compiled:
    file = f"<minipt2 {name} #{next(_modules)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"__name__": name, "library": library, "constants": objects}
    exec(compile(text, file, "exec"), namespace)
    return namespace["call"]
