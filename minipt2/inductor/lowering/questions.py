"""What lowering asks of the nodes of a graph before and while it walks them: which are needed, which need memory, what is dear to repeat.

Upstream: ``torch._inductor.graph`` and ``ir.StorageBox.mark_reuse``.
"""
from __future__ import annotations

import math
from typing import Any, Callable

from torch import fx

from ..ops import DTYPES
from ..sizes import hint, number
from . import extern
from .registry import lowerings
from .symbols import SYMBOLIC
from .tensors import Cost

MAX_READS, MAX_OPS, REUSE_OPS = 12, 64, 10
"""A closure that reads more buffers or is longer than this is realised; from REUSE_OPS on, one that is read more than once."""
SPREAD, SPREAD_NUMEL = 16, 1 << 18
"""Repetitions by broadcasting, and elements they make, from which on a computed value is realised (a kernel of its own costs a call)."""
VIEWS = frozenset("reshape permute broadcast_in_dim slice flip".split())


def dear(cost: Cost, users: int) -> bool:
    """Reading ``r`` buffers ``users`` times moves more memory than reading them once, writing one and reading that."""
    r = len(cost.reads)
    return cost.heavy or cost.ops > REUSE_OPS or r * users > r + users


def spreads(node: fx.Node) -> bool:
    """Does it repeat a small tensor so often (a scale per channel, a mask per row) that computing it anew each time costs more than a buffer?"""
    if getattr(node.target, "name", None) != "broadcast_in_dim":
        return False
    small, large = (math.prod(map(_likely, n.meta["val"].shape)) for n in (node.args[0], node))
    return large >= max(SPREAD * small, SPREAD_NUMEL)


def _likely(n: Any) -> int:
    return n if isinstance(n, int) else hint(number(n.node.expr))


def reaching(graph: fx.Graph, test: Callable[[fx.Node], bool]) -> set[fx.Node]:
    """Nodes read by a node that passes ``test``, directly or through views."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if test(node) or node in found and getattr(node.target, "name", None) in VIEWS:
            found.update(node.all_input_nodes)
    return found


def live(graph: fx.Graph) -> set[fx.Node]:
    """Nodes that an output depends on, or that do something besides computing."""
    live: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in live or node.op == "call_function" and extern.is_effect(node):
            live.add(node)
            live.update(node.all_input_nodes)
    return live


def needs_memory(node: fx.Node) -> bool:
    """Outputs and extern calls: what they read will be realised whatever happens."""
    name = getattr(node.target, "name", None)
    return node.op == "output" or node.op == "call_function" and node.target not in extern.BUILTINS and (
        not isinstance(name, str) or name not in lowerings)


def nested(node: fx.Node) -> bool:
    return any(isinstance(a, (tuple, list)) and any(isinstance(b, fx.Node) for b in a) for a in (*node.args, *node.kwargs.values()))


def loopable(val: Any) -> bool:
    """Whether loops can compute ``val`` (or its parts) and read it."""
    vals = val if isinstance(val, (tuple, list)) else (val,)
    return all(v is None or isinstance(v, (bool, int, float, *SYMBOLIC)) or hasattr(v, "stride") and v.dtype in DTYPES for v in vals)
