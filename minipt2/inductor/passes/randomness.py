"""Random numbers on a GPU are made in the loops that use them.

Before::

    kept = bernoulli_number(x.shape, 0.9, bool)     # a kernel of eager's; the mask is written, read, and kept for the backward

After::

    seed = random_seed(device)                      # once a graph, from torch's generator: 8 bytes are kept for the backward
    kept = random_bits(seed, 0, x.shape) * 2**-24 < 0.9

Runs on joint graphs before they are cut: forward and backward each compute the mask from the seed, and agree. ``torch.manual_seed`` repeats
the numbers, every call advances the generator, a replayed CUDA graph draws another seed. The numbers are not eager's: ``eager_random``
in ``config`` keeps those, and on a CPU nothing changes. Upstream: ``torch._inductor.fx_passes.replace_random``.
"""
from __future__ import annotations

import math
from typing import Any, Callable

import torch
from torch import fx

from ...config import config
from ...prims import kind
from .graphs import is_prim, prim

MOST_RANGE = 1 << 20
"""Whole numbers from a range up to so wide: of 2**31 equally likely ones each stands for as many, but for 1 in 2000."""
HALF = {torch.float16: 11, torch.bfloat16: 8}
"""Bits of a fraction that the dtype holds exactly."""


def draws_in_loops(gm: fx.GraphModule) -> bool:
    """Whether ``gm``, of ATen operators or prims, draws random numbers that loops are to make."""
    return not config.eager_random and any(kind(n) == "random" and _on_gpu(n.meta.get("val")) for n in gm.graph.nodes if n.op == "call_function")


def _on_gpu(val: Any) -> bool:
    val = val[0] if isinstance(val, (tuple, list)) else val
    return config.triton_interpret or hasattr(val, "device") and val.device.type == "cuda"


def make_in_loops(gm: fx.GraphModule) -> int:
    """Rewrite ``gm``, of prims, in place; returns how many draws are made in loops."""
    found = [n for n in gm.graph.nodes if n.op == "call_function" and _ours(n)]
    seeds: dict[torch.device, fx.Node] = {}
    draws = 0
    for node in found:
        device = node.meta["val"].device
        with gm.graph.inserting_before(node):
            if device not in seeds:
                seeds[device] = prim(gm.graph, "random_seed", (device,), node)
            numbers = _Numbers(gm.graph, node, seeds[device], draws)
            node.replace_all_uses_with(MAKERS[node.target.name](numbers, *node.args))
        draws = numbers.draw
        gm.graph.erase_node(node)
    return len(found)


def _ours(node: fx.Node) -> bool:
    """Whether loops can make what ``node`` draws, on a device where that is wanted."""
    if not is_prim(node, *MAKERS):
        return False
    val = node.meta["val"]
    if not _on_gpu(val):
        return False
    if is_prim(node, "randint"):
        return 0 < node.args[1] - node.args[0] <= MOST_RANGE
    return val.dtype is not torch.float64  # 53 random bits are eager's


class _Numbers:
    """Makes the prims of one draw, before ``node``."""

    def __init__(self, graph: fx.Graph, node: fx.Node, seed: fx.Node, draw: int):
        self.graph, self.node, self.seed, self.draw = graph, node, seed, draw
        self.shape = tuple(node.meta["val"].shape)

    def prim(self, name: str, *args: Any) -> fx.Node:
        return prim(self.graph, name, args, self.node)

    def bits(self) -> fx.Node:
        """31 new random bits for every element."""
        self.draw += 1
        return self.prim("random_bits", self.seed, self.draw - 1, self.shape)

    def fraction(self, bits: int = 24) -> fx.Node:
        """float32 from 0 to 1 - 2**-bits, every multiple of 2**-bits as likely."""
        kept = self.prim("shift_right", self.bits(), 31 - bits)
        return self.prim("mul", self.prim("convert", kept, torch.float32), 2.0 ** -bits)


def _rand(n: _Numbers, shape: Any, dtype: torch.dtype, device: Any) -> fx.Node:
    return n.prim("convert", n.fraction(HALF.get(dtype, 24)), dtype)


def _randn(n: _Numbers, shape: Any, dtype: torch.dtype, device: Any) -> fx.Node:
    """Box and Muller, 1958: a radius and an angle."""
    above_zero = n.prim("add", n.prim("mul", n.prim("convert", n.bits(), torch.float32), 2.0 ** -31), 2.0 ** -32)
    radius = n.prim("sqrt", n.prim("mul", n.prim("log", above_zero), -2.0))
    return n.prim("convert", n.prim("mul", radius, n.prim("cos", n.prim("mul", n.fraction(), 2 * math.pi))), dtype)


def _randint(n: _Numbers, low: int, high: int, shape: Any, dtype: torch.dtype, device: Any) -> fx.Node:
    return n.prim("convert", n.prim("add", n.prim("remainder", n.bits(), high - low), low), dtype)


def _bernoulli(n: _Numbers, chance: fx.Node) -> fx.Node:
    dtype = chance.meta["val"].dtype
    return n.prim("convert", n.prim("lt", n.fraction(), n.prim("convert", chance, torch.float32)), dtype)


def _bernoulli_number(n: _Numbers, shape: Any, chance: float, dtype: torch.dtype, device: Any) -> fx.Node:
    return n.prim("convert", n.prim("lt", n.fraction(), float(chance)), dtype)


MAKERS: dict[str, Callable[..., fx.Node]] = {
    "rand": _rand, "randn": _randn, "randint": _randint, "bernoulli": _bernoulli, "bernoulli_number": _bernoulli_number,
}
