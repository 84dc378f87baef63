"""Sample models over many sizes: two compilations at most, equal to eager at each; a decoder whose cache grows."""
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import minipt2
from minipt2 import models

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


class Block(nn.Module):
    """Pre-norm attention over a cache that it extends."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache):
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln(x)).split(c, 2))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        return x + self.proj(y.transpose(1, 2).reshape(n, t, c)), (k, v)


class Decoder(nn.Module):
    def __init__(self, layers: int = 2, width: int = 32, heads: int = 4, vocabulary: int = 50):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(64, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens, caches=None):
        past = 0 if caches is None else caches[0][0].shape[2]
        x = self.token(tokens) + self.position(torch.arange(past, past + tokens.shape[1]))
        grown = []
        for k, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[k])
            grown.append(cache)
        return self.head(x[:, -1]), grown


@torch.no_grad()
def generate(model, tokens, count: int) -> torch.Tensor:
    logits, caches = [], None
    for _ in range(count):
        last, caches = model(tokens, caches)
        logits.append(last)
        tokens = last.argmax(-1, keepdim=True)
    return torch.stack(logits)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_growing_cache_takes_three_compilations(backend, fresh):
    """The prompt, the first step, and every later one (a cache of eight rows is as long as a head is wide: sizes equal by chance)."""
    torch.manual_seed(0)
    model = Decoder().eval()
    start = torch.randint(0, 50, (2, 7))
    assert_same(generate(model, start, 20), generate(minipt2.compile(model, backend=backend), start, 20), tolerance=1e-4)
    assert minipt2.counters()["graphs"] <= 3 and not minipt2.counters()["breaks"]
