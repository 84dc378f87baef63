"""The operator of attention draws its dropout itself: it runs once, and its backward gets the state it drew from.

Of tensors without data: there is no GPU here, and a CPU's operator drops nothing.
"""
from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import minipt2
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.prims.kinds import draws

aten = torch.ops.aten
KERNELS = {
    "efficient": (aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_efficient_attention_backward.default, (None, True, 0.25)),
    "flash": (aten._scaled_dot_product_flash_attention.default, aten._scaled_dot_product_flash_attention_backward.default, (0.25,)),
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("how", ["default", "least memory", "checkpoint"])
def test_is_run_once(kernel, how):
    forward, backward, more = KERNELS[kernel]
    graphs = []

    def attend(q, k, v):
        return forward(q * 2, k, v, *more)[0].relu()

    def compiler(gm, inputs):
        graphs.append(gm.graph)
        return run_eagerly(gm, inputs)

    def backend(gm, inputs):
        return aot_compile(gm, inputs, fw_compiler=compiler)
    fn = attend if how != "checkpoint" else lambda q, k, v: checkpoint(attend, q, k, v, use_reentrant=False)
    q, k, v = (torch.empty(2, 3, 32, 16, device="meta", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    minipt2.reset()
    with minipt2.config.patch(memory_budget=0.0 if how == "least memory" else 1.0, raise_internal_errors=True):
        minipt2.compile(fn, backend=backend)(q, k, v).sum().backward()
    calls = [[n for n in g.nodes if n.target in (forward, backward)] for g in graphs]
    assert [[n.target for n in found] for found in calls] == [[forward], [backward]]
    assert draws(calls[0][0]) and all(a.op == "placeholder" for a in calls[1][0].all_input_nodes if a.meta["val"].ndim == 0)


def test_only_with_a_dropout_does_it_draw():
    def found(p):
        graph = torch.fx.Graph()
        node = graph.call_function(aten._scaled_dot_product_flash_attention.default, (None, None, None, p) if p is not None else (None, None, None))
        return draws(node)
    assert [found(p) for p in (None, 0.0, 0.1)] == [False, False, True]
