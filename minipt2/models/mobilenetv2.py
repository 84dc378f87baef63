"""MobileNetV2 (Sandler et al., 2018): inverted residuals around depthwise convolutions, ReLU6."""
import torch
from torch import nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""(expansion, channels, blocks, stride) of each stage, table 2 of the paper."""


def conv_bn(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    return [nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(outside)]


class InvertedResidual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, expansion: int):
        super().__init__()
        hidden = inside * expansion
        layers = [] if expansion == 1 else [*conv_bn(inside, hidden, 1), nn.ReLU6(inplace=True)]
        layers += [*conv_bn(hidden, hidden, 3, stride, groups=hidden), nn.ReLU6(inplace=True), *conv_bn(hidden, outside, 1)]
        self.layers = nn.Sequential(*layers)
        self.residual = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.residual else self.layers(x)


class MobileNetV2(nn.Module):
    def __init__(self, stages=STAGES, classes: int = 1000, last: int = 1280):
        super().__init__()
        layers, inside = [*conv_bn(3, 32, 3, 2), nn.ReLU6(inplace=True)], 32
        for expansion, outside, blocks, stride in stages:
            for k in range(blocks):
                layers.append(InvertedResidual(inside, outside, stride if k == 0 else 1, expansion))
                inside = outside
        layers += [*conv_bn(inside, last, 1), nn.ReLU6(inplace=True)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean(dim=(2, 3)))


def build(size: str) -> nn.Module:
    return MobileNetV2(STAGES[:3], classes=10, last=64) if size == "small" else MobileNetV2()


def inputs(size: str) -> tuple:
    shape = {"small": (2, 3, 32, 32), "bench": (4, 3, 128, 128), "gpu": (64, 3, 224, 224)}[size]
    return (torch.randn(shape),)
