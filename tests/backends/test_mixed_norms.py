"""Normalisation of bfloat16 with float32 parameters, as autocast makes it: compiled, not left to eager, and right."""
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minipt2
from ..compare import check_module

NORMS = {
    "layer": nn.LayerNorm(16), "group": nn.GroupNorm(2, 4), "batch": nn.BatchNorm1d(4), "plain batch": nn.BatchNorm1d(4, affine=False),
    "instance": nn.InstanceNorm1d(4, affine=True), "plain layer": nn.LayerNorm(16, elementwise_affine=False),
}


class Mixed(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.linear, self.norm = nn.Linear(16, 16), norm

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.gelu(self.norm(F.gelu(self.linear(x)))).float()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", NORMS)
def test_mixed_precision(name, training):
    torch.manual_seed(0)
    minipt2.reset()
    check_module(Mixed(NORMS[name]).train(training), torch.randn(8, 4, 16), grad=True, tolerance=3e-2)
    assert minipt2.counters()["fallbacks"] == 0
