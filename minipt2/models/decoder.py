"""A decoder that writes one token at a time over a cache of keys and values, which grows: every call meets another size.

Pre-norm blocks as in GPT-2 (Radford et al., 2019). Not among ``models.NAMES``, whose models take a step at a time: ``bench.dynamic`` and
tests of symbolic sizes run it.
"""
from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """Attention over a cache that it extends, then a feed-forward layer."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.ln2, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, cache: tuple | None) -> tuple[torch.Tensor, tuple]:
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(self.ln1(x)).split(c, 2))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))  # (n, t, c)
        return x + self.down(F.gelu(self.up(self.ln2(x)))), (k, v)


class Decoder(nn.Module):
    def __init__(self, vocabulary: int, positions: int, layers: int, width: int, heads: int):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor, caches: list | None = None) -> tuple[torch.Tensor, list]:
        """Logits of what follows the last of ``tokens`` (n, t), and the caches with these tokens in them."""
        past = 0 if caches is None else caches[0][0].shape[2]
        x = self.token(tokens) + self.position(torch.arange(past, past + tokens.shape[1], device=tokens.device))
        grown = []
        for k, block in enumerate(self.blocks):
            x, cache = block(x, None if caches is None else caches[k])
            grown.append(cache)
        return self.head(self.ln(x[:, -1])), grown


def build(size: str) -> nn.Module:
    return Decoder(*{"small": (50, 64, 2, 32, 4), "bench": (5000, 320, 6, 128, 8), "gpu": (50257, 1024, 12, 768, 12)}[size])


def inputs(size: str) -> tuple:
    n, t, vocabulary = {"small": (2, 7, 50), "bench": (1, 17, 5000), "gpu": (8, 64, 50257)}[size]
    return (torch.randint(0, vocabulary, (n, t)),)


@torch.no_grad()
def generate(model, tokens: torch.Tensor, count: int) -> torch.Tensor:
    """The logits (count, n, vocabulary) of ``count`` tokens written after ``tokens`` (n, t), always the likeliest one."""
    logits, caches = [], None
    for _ in range(count):
        last, caches = model(tokens, caches)
        logits.append(last)
        tokens = last.argmax(-1, keepdim=True)
    return torch.stack(logits)
