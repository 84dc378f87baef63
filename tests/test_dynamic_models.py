"""Sample models over many sizes: two compilations at most, equal to eager at each; a decoder whose cache grows."""
import random

import pytest
import torch

import minipt2
from minipt2 import models
from minipt2.models import decoder

from .compare import assert_same

PAIRS = [(random.Random(seed).randint(2, 6), random.Random(-seed).randint(2, 32)) for seed in range(1, 5)]


def tokens(batch: int, length: int) -> tuple:
    return (torch.randint(0, 100, (batch, length)),)


def padded(batch: int, length: int) -> tuple:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[0, length // 2:] = 0
    return (*tokens(batch, length), mask)


def images(batch: int, size: int) -> tuple:
    return (torch.randn(batch, 3, size, size),)


CASES = {
    "gpt2": ("gpt2", [tokens(*p) for p in PAIRS]), "bert": ("bert", [padded(*p) for p in PAIRS]),
    "resnet18 batches": ("resnet18", [images(n, 64) for n in (2, 3, 5, 8)]), "resnet18 images": ("resnet18", [images(2, n) for n in (64, 96, 72, 112)]),
    "vit batches": ("vit", [images(n, 32) for n in (2, 3, 5)]), "unet images": ("unet", [images(2, n) for n in (32, 48, 64)]),
}  # fmt: skip


@pytest.mark.parametrize("name, phase, backend", [
    ("gpt2", "train", "aot_eager"), ("gpt2", "infer", "inductor"), ("bert", "train", "aot_eager"), ("resnet18 batches", "infer", "aot_eager"),
    ("resnet18 images", "train", "aot_eager"), ("vit batches", "infer", "aot_eager"), ("unet images", "infer", "aot_eager"),
])  # fmt: skip
def test_two_compilations_serve_all_sizes(name, phase, backend, fresh):
    model, calls = CASES[name]
    compiled, eager = (models.build(model, "small").train(phase == "train") for _ in range(2))
    call = minipt2.compile(compiled, backend=backend)
    for args in calls:
        with torch.set_grad_enabled(phase == "train"):
            found, expected = call(*args), eager(*args)
        assert_same(expected, found, tolerance=2e-4)
        if phase == "train":
            for module, output in ((compiled, found), (eager, expected)):
                module.zero_grad()
                models.loss(output).backward()
            assert_same([p.grad for p in eager.parameters()], [p.grad for p in compiled.parameters()], tolerance=1e-3)
    counted = minipt2.counters()
    assert counted["graphs"] <= 2 and not counted["breaks"] and not counted.get("aot_fallbacks"), counted


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_growing_cache_takes_three_compilations(backend, fresh):
    """The prompt, the first step, and every later one (a cache of eight rows is as long as a head is wide: sizes equal by chance)."""
    torch.manual_seed(0)
    model = decoder.build("small").eval()
    (start,) = decoder.inputs("small")
    expected = decoder.generate(model, start, 20)
    assert_same(expected, decoder.generate(minipt2.compile(model, backend=backend), start, 20), tolerance=1e-4)
    assert minipt2.counters()["graphs"] <= 3 and not minipt2.counters()["breaks"]
