"""Guards of convolutions and pooling over images of any size: exactly as strong as needed, for layers drawn at random."""
import random

import pytest
import torch
from torch import nn

import minipt2
from minipt2.trace import subscribe
from tests.compare import assert_same

pytestmark = pytest.mark.usefixtures("fresh")


def _layer(rng: random.Random) -> nn.Module:
    taps, stride, padding = rng.randint(1, 3), rng.randint(1, 3), rng.randint(0, 1)
    return rng.choice([
        lambda: nn.Conv2d(4, 4, taps, stride, padding, dilation=rng.randint(1, 2)), lambda: nn.Conv2d(4, 4, (taps, 1), (1, stride), (padding, 0), groups=4),
        lambda: nn.MaxPool2d(2, stride, ceil_mode=rng.random() < 0.5), lambda: nn.AvgPool2d(taps + 1, stride, padding),
        lambda: nn.AdaptiveAvgPool2d(taps), lambda: nn.AdaptiveAvgPool2d((None, 2)), lambda: nn.ConvTranspose2d(4, 4, taps + 1, stride),
        lambda: nn.Upsample(scale_factor=2, mode="nearest"), lambda: nn.Upsample(scale_factor=2, mode="bilinear"), lambda: nn.ReflectionPad2d(padding),
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(inplace=True)), lambda: nn.GroupNorm(2, 4),
    ])()


def _outcome(call, x):
    """The result, or the kind of error."""
    try:
        return call(x)
    except RuntimeError:
        return RuntimeError


@pytest.mark.filterwarnings("ignore:.*recompile_limit")  # by sizes that raise
@pytest.mark.parametrize("seed, backend", [(seed, "eager") for seed in range(24)] + [(seed, "inductor") for seed in (4, 5, 8, 12)])
def test_one_version_serves_the_images_that_eager_takes(seed, backend):
    """All of them: and what is too small for a window raises as in eager, and spoils nothing for others."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    module = nn.Sequential(*[_layer(rng) for _ in range(rng.randint(2, 4))]).eval()
    compiled = minipt2.compile(module, backend=backend, dynamic=True)
    versions = []
    images = [torch.randn(2, 4, *size) for size in [(17, 22)] + [(rng.randint(2, 24), rng.randint(2, 24)) for _ in range(40)]]
    stop = subscribe(lambda stage, name, payload: versions.append(name), "guards")
    try:
        with torch.no_grad():
            expected = [(x, _outcome(module, x)) for x in images]
            taken = [(x, y) for x, y in expected if isinstance(y, torch.Tensor)]
            for x, y in taken:
                assert_same(y, compiled(x), tolerance=1e-5)
            assert len(versions) == 1, module
            assert all(_outcome(compiled, x) is y for x, y in expected if y is RuntimeError)
            for x, y in taken[:5]:
                assert_same(y, compiled(x), tolerance=1e-5)
    finally:
        stop()
