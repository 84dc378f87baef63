"""What ``aot_autograd`` and ``inductor`` made of a captured graph, kept on disk: a second process neither traces nor generates code.

One file per captured graph (its key: ``graph_key``, our sources, torch, the C toolchain) holds the plan of the run time, the recipe of the
forward or inference graph, and the backward graph; a second file, written when the backward first runs, holds the backward's recipe
(another one, that of a backward for losses which leave some outputs out).
A file that is missing, damaged, or of something that only this process knows is made again.
Upstream: ``torch._functorch._aot_autograd.autograd_cache`` (``AOTAutogradCache``).
"""
from __future__ import annotations

import functools
from typing import Any, Callable, Sequence

from torch import fx

from .. import inductor, prims, trace
from ..aot_autograd import Plan, compile_backward, make_plan
from ..config import config
from ..distributed.fsdp import gather_ahead
from ..inductor import cache
from ..inductor.load import sources_identity
from ..prims import portable
from ..shapes.known import SYMBOLIC
from .graph_key import environment, graph_key

Function = Callable[[list], Sequence[Any]]
_ROOMS = ("aot_autograd", "backends", "distributed", "fake", "inductor", "prims", "shapes")


def plan(gm: fx.GraphModule, examples: Sequence[Any], name: str) -> Plan:
    """The plan of ``gm`` through prims and inductor, from disk if it is there. ``name`` is for readers of the generated code."""
    return _Entry(_key(gm, examples), name).plan(gm, examples)


def _key(gm: fx.GraphModule, examples: Sequence[Any]) -> str | None:
    """None where nothing is kept: the disk is not to be used, somebody wants to see every stage, or rules are not all ours."""
    foreign = any(not rule.__module__.startswith("minipt2.") for rule in prims.decompositions.values())
    if not config.disk_cache or trace.listening("aot", "prims", "ir", "schedule", "scheduler", "codegen", "code", "fallback") or foreign:
        return None
    try:
        return cache.digest(*graph_key(gm, examples), sources_identity(_ROOMS), cache.toolchain_identity())
    except (portable.NotPortable, cache.CompilerNotFound):
        return None


class _Entry:
    """The two files under one key; with no key, compiles and keeps nothing."""

    def __init__(self, key: str | None, name: str):
        self.key, self.name = key, name
        self.symbols: dict[str, Any] = {}
        self.recipes: dict[str, inductor.Recipe] = {}

    def plan(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Plan:
        self.symbols = {str(e): e for e in examples if isinstance(e, SYMBOLIC)}
        return self.attempt("plan", self.read) or self.make(gm, examples)

    # -------------------------------------------------------------- made here
    def make(self, gm: fx.GraphModule, examples: Sequence[Any]) -> Plan:
        env = environment(examples)
        before = 0 if env is None else len(env.recorded)
        plan = make_plan(inductor.fuse_attention(gm), examples, fw_compiler=self.compiler("forward"), bw_compiler=self.compiler("backward"),
                         inference_compiler=self.compiler("inference", inference=True), decompose=_decompose)
        if self.recipes:
            (kind, recipe), = self.recipes.items()
            self.recipes.clear()
            facts = [] if env is None else [r.fact for r in env.recorded[before:]]
            data = self.write("plan", lambda: (plan, kind, recipe, portable.dumps(plan.backward_graph), list(map(portable.text, facts))))
            self.key = self.backward_key(data) if data else None
        return plan

    def compiler(self, kind: str, inference: bool = False) -> Callable[[fx.GraphModule, list], Function]:
        def compile_graph(gm: fx.GraphModule, inputs: list) -> Function:
            keep = functools.partial(self.keep, _part(kind, gm.meta.get("absent")))
            return inductor.compile_graph(gather_ahead(gm, config.gather_ahead), inputs, inference=inference, name=f"{self.name}_{kind}", keep=keep)
        return config.bind(compile_graph)

    def keep(self, part: str, recipe: inductor.Recipe) -> None:
        if part.startswith("backward"):
            self.write(part, lambda: recipe)
        elif self.key is not None:
            self.recipes[part] = recipe

    def write(self, part: str, content: Callable[[], Any]) -> bytes | None:
        """The bytes of the file, None where there is none."""
        if self.key is None:
            return None
        try:
            data = portable.dumps(content())
        except portable.NotPortable as error:
            trace.artifact("cache", f"{self.name}.{part}", error)
            return None
        cache.store_bytes(f"{self.key}.{part}", data)
        return data

    def backward_key(self, plan: bytes) -> str:
        """A backward belongs to one plan: two processes that compile at once may have saved different tensors."""
        return cache.digest(str(self.key), plan)

    # -------------------------------------------------------------- read back
    def attempt(self, part: str, read: Callable[[bytes], Any]) -> Any:
        """``read`` of a file's content; None when it is not there, or of no use (then it is made again)."""
        data = cache.load_bytes(f"{self.key}.{part}") if self.key is not None else None
        try:
            return None if data is None else read(data)
        except Exception as error:
            trace.artifact("cache", f"{self.name}.{part}", error)
            return None

    def read(self, data: bytes) -> Plan | None:
        plan, kind, recipe, backward_graph, facts = portable.loads(data, self.symbols)
        if not self.decided(facts):
            return None
        forward = inductor.load(recipe, f"{self.name}_{kind}")
        self.key = self.backward_key(data)
        trace.count("plans_reused")
        return plan.complete(forward, config.bind(functools.partial(self.backward, backward_graph)) if plan.tangents else None)

    def decided(self, facts: list[str]) -> bool:
        """Whether what was decided about symbols as the plan was made is true of the sizes at hand; then it is relied on here too."""
        hints = {name: symbol.node.hint for name, symbol in self.symbols.items()}
        return all(portable.number(fact, hints) for fact in facts) and all([bool(portable.number(fact, self.symbols)) for fact in facts])

    def backward(self, graph: bytes, absent: tuple[int, ...]) -> Function:
        """From a file of its own; from the graph where no process got that far."""
        found = self.attempt(_part("backward", absent), lambda data: inductor.load(portable.loads(data, self.symbols), f"{self.name}_backward"))
        return found or compile_backward(self.compiler("backward"), portable.loads(graph, self.symbols), absent)


def _part(kind: str, absent: tuple[int, ...] | None) -> str:
    """How the file of a recipe ends. ``absent``: the tangents that a backward does without."""
    return f"{kind}_{cache.digest(*map(str, absent))[:16]}" if absent else kind


def _decompose(gm: fx.GraphModule) -> fx.GraphModule:
    # layouts are chosen on the joint graph, so that forward and backward agree about saved tensors
    if not inductor.draws_in_loops(gm):
        return inductor.choose_layouts(prims.expand(gm))
    expanded = prims.expand(gm, prims.decompositions | prims.random_rules)
    inductor.make_in_loops(expanded)  # before it is cut: both halves make the same numbers from one seed
    return inductor.choose_layouts(expanded)
