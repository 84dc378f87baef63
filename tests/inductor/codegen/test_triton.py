"""Triton kernels: what they mean (Triton's interpreter against eager), and that they compile for sm_80 and sm_90, without a GPU."""
import pytest
import torch

import minipt2
from minipt2 import models
from minipt2.config import config
from tests.compare import check_module

pytest.importorskip("triton")


@pytest.fixture
def interpreted(fresh):
    with config.patch(triton_interpret=True):
        yield


def test_pointwise_and_reductions(interpreted):
    def fn(x, b):
        return torch.softmax(torch.nn.functional.gelu(x + b) * 2, -1), (x * b).sum(0), x.t().contiguous() + 1

    x, b = torch.randn(100, 130), torch.randn(130)
    for found, expected in zip(minipt2.compile(fn)(x, b), fn(x, b)):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["gpt2"])
@pytest.mark.parametrize("phase", ["infer", "train"])
def test_model_matches_eager(name, phase, interpreted):
    module = models.build(name, "small").train(phase == "train")
    check_module(module, *models.inputs(name, "small"), grad=phase == "train", tolerance=2e-4)
    assert minipt2.counters()["kernels"] > 0
