"""ResNet-18 (He et al., 2015, "Deep Residual Learning for Image Recognition"): two 3x3 convolutions a block."""
import torch
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(x)) + identity)


class ResNet(nn.Module):
    """``block(inside, outside, stride)`` repeated ``depths[k]`` times at each of four resolutions."""

    def __init__(self, block, depths, expansion: int = 1, classes: int = 1000, width: int = 64):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        stages, inside = [], width
        for k, depth in enumerate(depths):
            outside = width * 2**k * expansion
            for j in range(depth):
                stages.append(block(inside, outside, stride=2 if j == 0 and k > 0 else 1))
                inside = outside
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(self.stages(self.stem(x)))  # (n, c, 1, 1)
        return self.fc(torch.flatten(x, 1))


def build(size: str) -> nn.Module:
    return ResNet(BasicBlock, (1, 1, 1, 1), classes=10, width=16) if size == "small" else ResNet(BasicBlock, (2, 2, 2, 2))


def inputs(size: str) -> tuple:
    shape = {"small": (4, 3, 64, 64), "bench": (4, 3, 128, 128), "gpu": (64, 3, 224, 224)}[size]
    return (torch.randn(shape),)
