"""What a training step keeps for its backward, beside eager: ``pytest -rP`` shows the bytes of each sample model."""
import pytest

import minipt2
from minipt2 import models
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.backends.stored import _decompose
from minipt2.report.measure import saved_for_backward

BARS = {**dict.fromkeys(models.CNNS, 0.85), **dict.fromkeys(("gpt2", "bert", "vit"), 0.75)}


def without_kernels(gm, examples):
    """The inductor backend's plan, each prim run by its reference."""
    return aot_compile(gm, examples, fw_compiler=run_eagerly, decompose=_decompose)


@pytest.mark.parametrize("name", BARS)
def test_saved_bytes_of_sample_models(name):
    model, inputs = models.build(name, "small").train(), models.inputs(name, "small")
    compiled = minipt2.compile(model, backend=without_kernels)
    state = [*model.parameters(), *model.buffers()]
    eager, ours = (saved_for_backward(lambda call=call: models.loss(call(*inputs)), state)[0] for call in (model, compiled))
    print(f"{name}: {ours} bytes, eager {eager}, ratio {ours / eager:.3f}")
    assert ours <= BARS[name] * eager
