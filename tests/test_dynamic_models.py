"""Sample models over many sizes: two compilations at most, equal to eager at each; a decoder whose cache grows."""
import random

import pytest

from .varying import check_growing_cache, check_sizes, images, padded, tokens

PAIRS = [(random.Random(seed).randint(2, 6), random.Random(-seed).randint(2, 32)) for seed in range(1, 5)]
CASES = {
    "gpt2": ("gpt2", [tokens(*p) for p in PAIRS]), "bert": ("bert", [padded(*p) for p in PAIRS]),
    "resnet18 batches": ("resnet18", [images(n, 64) for n in (2, 3, 5, 8)]), "resnet18 images": ("resnet18", [images(2, n) for n in (64, 96, 72, 112)]),
    "vit batches": ("vit", [images(n, 32) for n in (2, 3, 5)]), "unet images": ("unet", [images(2, n) for n in (32, 48, 64)]),
    "mobilenetv2 images": ("mobilenetv2", [images(3, n) for n in (32, 48, 8)]),  # of the last, one pixel is left at the end
}  # fmt: skip


@pytest.mark.parametrize("name, phase, backend", [
    ("gpt2", "train", "aot_eager"), ("gpt2", "infer", "inductor"), ("bert", "train", "aot_eager"), ("resnet18 batches", "infer", "aot_eager"),
    ("resnet18 images", "train", "aot_eager"), ("vit batches", "infer", "aot_eager"), ("unet images", "infer", "aot_eager"), ("mobilenetv2 images", "train", "aot_eager"), ("mobilenetv2 images", "infer", "inductor"),
])  # fmt: skip
def test_two_compilations_serve_all_sizes(name, phase, backend, fresh):
    check_sizes(*CASES[name], phase, backend=backend)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_growing_cache_takes_three_compilations(backend, fresh):
    """A cache of eight rows is as long as a head is wide: sizes equal by chance."""
    check_growing_cache(20, backend=backend)
