"""Optimiser steps as graphs: parameters and state written under no_grad, single tensors, foreach and fused."""
import pytest
import torch

from minipt2.aot_autograd import aot_eager
from minipt2.config import config

from .lifting import copies, graph_of


def adamw(p, g, m, v, step):
    with torch.no_grad():
        step.add_(1)
        p.mul_(1 - 1e-3 * 0.01)
        m.lerp_(g, 0.1)
        v.mul_(0.999).addcmul_(g, g, value=1e-3)
        denominator = (v.sqrt() / (1 - 0.999 ** step).sqrt()).add_(1e-8)
        p.addcdiv_(m / (1 - 0.9 ** step), denominator, value=-1e-3)
    return (step * 1,)


def foreach(p, g, m, v, q):
    with torch.no_grad():
        torch._foreach_mul_([p, q], 0.9)
        torch._foreach_lerp_([m, v], [g, g], 0.1)
        torch._foreach_addcdiv_([p, q], [g, g.mean()], torch._foreach_add([m, q], 3.0), -0.1)
    return (p,)


def fused(p, g, m, v, step):
    with torch.no_grad():
        torch._fused_adamw_([p], [g], [m], [v], [], [step], lr=1e-3, beta1=0.9, beta2=0.99, weight_decay=0.01, eps=1e-8,
                            amsgrad=False, maximize=False)
    return (p,)


@pytest.mark.parametrize("step", [adamw, foreach, fused])
def test_optimizer_step(step):
    inputs = [torch.randn(4, requires_grad=True), torch.randn(4), torch.zeros(4), torch.zeros(4), torch.tensor(1.0)]
    with config.patch(raise_internal_errors=True):
        run = aot_eager(graph_of(step, 5), copies(inputs))
    eager, ours = copies(inputs), copies(inputs)
    for _ in range(2):
        expected, found = step(*eager), run(*ours)
    torch.testing.assert_close([*ours, *found], [*eager, *expected])
    assert ours[0].requires_grad and ours[0].is_leaf and ours[0]._version > 0
