"""A Vision Transformer (Dosovitskiy et al., 2020): patches by convolution, class token, pre-norm encoder."""
import torch
from torch import nn
from torch.nn import functional as F


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, c = x.shape
        q, k, v = self.qkv(self.ln1(x)).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c)
        x = x + self.proj(y)
        return x + self.mlp(self.ln2(x))


class ViT(nn.Module):
    def __init__(self, image: int, patch: int, layers: int, width: int, heads: int, classes: int = 1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width) * 0.02)
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)  # (n, patches, width)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.head(self.ln(x)[:, 0])


def build(size: str) -> nn.Module:
    return {"small": lambda: ViT(32, 8, 2, 32, 4, classes=10), "bench": lambda: ViT(128, 16, 4, 256, 4),
            "gpu": lambda: ViT(224, 16, 12, 768, 12)}[size]()


def inputs(size: str) -> tuple:
    shape = {"small": (2, 3, 32, 32), "bench": (4, 3, 128, 128), "gpu": (32, 3, 224, 224)}[size]
    return (torch.randn(shape),)
