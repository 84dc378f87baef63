"""A GPT-2-shaped decoder (Radford et al., 2019) with attention, mask and softmax written out."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalSelfAttention(nn.Module):
    def __init__(self, width: int, heads: int, length: int, dropout: float):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("mask", torch.tril(torch.ones(length, length, dtype=torch.bool)), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = (part.view(n, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        scores = (q @ k.transpose(-2, -1)) / math.sqrt(c // self.heads)  # (n, heads, t, t)
        scores = scores.masked_fill(~self.mask[:t, :t], float("-inf"))
        y = self.dropout(torch.softmax(scores, dim=-1)) @ v
        return self.proj(y.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, length: int, dropout: float):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CausalSelfAttention(width, heads, length, dropout)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.ln1(x)))
        return x + self.dropout(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")))


class GPT(nn.Module):
    def __init__(self, vocabulary: int, length: int, layers: int, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length, dropout) for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight  # tied, as in GPT-2

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)  # (n, t, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


def build(size: str) -> nn.Module:
    return {"small": lambda: GPT(100, 32, 2, 32, 4), "bench": lambda: GPT(5000, 256, 6, 128, 8),
            "gpu": lambda: GPT(50257, 512, 12, 768, 12)}[size]()


def inputs(size: str) -> tuple:
    n, t, vocabulary = {"small": (2, 16, 100), "bench": (4, 256, 5000), "gpu": (8, 512, 50257)}[size]
    return (torch.randint(0, vocabulary, (n, t)),)
