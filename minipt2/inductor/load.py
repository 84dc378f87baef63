"""``load``: a compiled graph from its recipe, without the compiler: what a second process runs.

Upstream: ``torch._inductor.output_code`` (``CompiledFxGraph``) and ``torch._inductor.codecache`` (``PyCodeCache``).
"""
from __future__ import annotations

import functools
import itertools
import linecache
import operator
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
from torch import fx

from .. import trace
from . import cache
from .cudagraphs import Replayed
from .devices import Pieces, eager, runner
from .passes.freeze import Frozen

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
    lasting: list[int] | None = None
    """To be replayed as a CUDA graph: the wrapper's arguments that stay where they are; None: not to be replayed."""
    written: list[int] = field(default_factory=list)
    """With ``lasting``: the arguments that the graph writes into."""
    shown: int = 0
    """With ``lasting``: how many results are copied for the caller (``cudagraphs.Replayed``)."""
    triton: dict[str, Any] | None = None
    """On a GPU: the kernels and what the wrapper launches (``codegen.triton_wrapper``)."""
    pieces: Pieces | None = None
    """Of a graph on several devices, all there is: its pieces, each with a recipe or a graph for eager kernels."""


def load(recipe: Recipe, name: str = "graph") -> Compiled:
    """The function that an earlier ``compile_graph`` described; its C is compiled if the cache has lost it."""
    trace.count("fallbacks", recipe.fallbacks)
    return start(recipe, name)


def start(recipe: Recipe, name: str) -> Compiled:
    """``recipe`` as a function: its C compiled or found, its wrapper module executed."""
    if recipe.pieces is not None:
        return runner(recipe.pieces, [start(p.graph, f"{name}_{k}") if isinstance(p.graph, Recipe) else eager(p.graph)
                                      for k, p in enumerate(recipe.pieces.steps)])
    trace.count("kernels", recipe.kernels)
    trace.artifact("recipe", name, recipe)
    trace.artifact("code", f"{name}.c", lambda: _kernels_text(recipe))
    trace.artifact("code", f"{name}.py", recipe.python)
    if recipe.triton is not None:
        from . import triton_library
        with trace.span("Triton"):
            library = triton_library.library(recipe.triton)
    else:
        with trace.span("C compiler"):
            library = cache.compile_c(recipe.c)
    call = _load_module(name, recipe.python, library, recipe)
    if recipe.triton is not None:
        call = triton_library.on_device(call, recipe.triton)
    if recipe.lasting is not None:
        call = Replayed(call, recipe.lasting, recipe.written, recipe.shown, name, check=library.check)
    return call if recipe.prologue is None else _with_frozen(recipe.prologue, recipe.kept, call)


def _kernels_text(recipe: Recipe) -> str:
    return "\n".join(recipe.c if recipe.triton is None else [p["text"] for p in recipe.triton["programs"]])


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


@functools.cache
def sources_identity(rooms: tuple[str, ...] = ("inductor", "prims", "shapes")) -> str:
    """The source of these rooms of ours and torch's version: what other ones made is not reused."""
    root = Path(__file__).parent.parent
    files = [f for room in rooms for f in sorted((root / room).rglob("*.py"))]
    return cache.digest(torch.__version__, *[f.read_bytes() for f in files])


def _load_module(name: str, text: str, library: Any, recipe: Recipe) -> Compiled:
    file = f"<minipt2 {name} #{next(_modules)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"__name__": name, "library": library, "constants": recipe.constants,
                 "wide_library": lambda: cache.compile_c(["#define WIDE\n" + unit for unit in recipe.c])}
    exec(compile(text, file, "exec"), namespace)
    weakref.finalize(namespace["call"], linecache.cache.pop, file, None).atexit = False
    return namespace["call"]
