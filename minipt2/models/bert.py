"""A BERT-shaped encoder (Devlin et al., 2018) with a padding mask and attention written out."""
import math

import torch
from torch import nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        return x.view(n, t, self.heads, c // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + bias  # (n, heads, t, t)
        y = torch.matmul(F.softmax(scores, dim=-1), v)
        return self.out(y.permute(0, 2, 1, 3).contiguous().view(x.shape))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        x = self.ln1(x + self.dropout(self.attention(x, bias)))
        return self.ln2(x + self.dropout(self.down(F.gelu(self.up(x)))))


class BERT(nn.Module):
    def __init__(self, vocabulary: int, length: int, layers: int, width: int, heads: int, dropout: float = 0.0):
        super().__init__()
        self.token, self.position, self.kind = nn.Embedding(vocabulary, width), nn.Embedding(length, width), nn.Embedding(2, width)
        self.ln = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(layers))
        self.transform, self.ln_head = nn.Linear(width, width), nn.LayerNorm(width, eps=1e-12)
        self.decoder = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """``mask`` is 1 on real tokens and 0 on padding, (n, t)."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.ln(self.token(tokens) + self.position(positions) + self.kind(torch.zeros_like(tokens)))
        bias = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, bias)
        return self.decoder(self.ln_head(F.gelu(self.transform(x))))


def build(size: str) -> nn.Module:
    return {"small": lambda: BERT(100, 32, 2, 32, 4), "bench": lambda: BERT(5000, 256, 6, 128, 8),
            "gpu": lambda: BERT(30522, 512, 12, 768, 12)}[size]()


def inputs(size: str) -> tuple:
    n, t, vocabulary = {"small": (2, 16, 100), "bench": (4, 256, 5000), "gpu": (16, 512, 30522)}[size]
    mask = torch.ones(n, t, dtype=torch.int64)
    mask[0, t // 2:] = 0
    return torch.randint(0, vocabulary, (n, t)), mask
