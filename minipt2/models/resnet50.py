"""ResNet-50 (He et al., 2015): bottleneck blocks of 1x1, 3x3 and 1x1 convolutions."""
import torch
from torch import nn

from .resnet18 import ResNet


class Bottleneck(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1):
        super().__init__()
        middle = outside // 4
        self.conv1 = nn.Conv2d(inside, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, outside, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + identity)


def build(size: str) -> nn.Module:
    if size == "small":
        return ResNet(Bottleneck, (1, 1, 1, 1), expansion=4, classes=10, width=8)
    return ResNet(Bottleneck, (3, 4, 6, 3), expansion=4)


def inputs(size: str) -> tuple:
    shape = {"small": (4, 3, 64, 64), "bench": (1, 3, 224, 224), "gpu": (64, 3, 224, 224)}[size]
    return (torch.randn(shape),)
