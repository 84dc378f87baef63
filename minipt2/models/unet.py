"""A U-Net (Ronneberger et al., 2015) with group norm, SiLU and bilinear upsampling, as diffusion models use it."""
import torch
from torch import nn
from torch.nn import functional as F


class DoubleConv(nn.Module):
    def __init__(self, inside: int, outside: int):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU(),
                                    nn.Conv2d(outside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class UNet(nn.Module):
    def __init__(self, width: int, levels: int, classes: int = 3):
        super().__init__()
        widths = [width * 2**k for k in range(levels)]
        self.first = DoubleConv(3, width)
        self.down = nn.ModuleList(DoubleConv(a, b) for a, b in zip(widths, widths[1:]))
        self.up = nn.ModuleList(DoubleConv(a + b, a) for a, b in zip(widths, widths[1:]))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = [self.first(x)]
        for layer in self.down:
            skips.append(layer(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for layer, skip in zip(reversed(self.up), reversed(skips)):
            x = F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)
            x = layer(torch.cat([x, skip], dim=1))
        return self.last(x)


def build(size: str) -> nn.Module:
    return UNet(*{"small": (8, 2), "bench": (16, 4), "gpu": (64, 4)}[size])


def inputs(size: str) -> tuple:
    shape = {"small": (1, 3, 16, 16), "bench": (2, 3, 128, 128), "gpu": (8, 3, 256, 256)}[size]
    return (torch.randn(shape),)
