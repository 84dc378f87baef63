"""A DLRM-shaped recommender (Naumov et al., 2019): embeddings, a dense tower, pairwise interactions, a top tower."""
import torch
from torch import nn


def tower(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


class Recommender(nn.Module):
    def __init__(self, tables: int, rows: int, width: int, dense: int):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = tower(dense, 4 * width, width)
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(*tower(width + pairs, 256, 128), nn.Linear(128, 1))
        i, j = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("left", i)
        self.register_buffer("right", j)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        """``dense`` (n, features) float, ``sparse`` (n, tables) rows of each table; returns click logits (n,)."""
        x = self.bottom(dense)
        features = torch.stack([x] + [table(sparse[:, k]) for k, table in enumerate(self.tables)], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))  # (n, tables + 1, tables + 1)
        interactions = products[:, self.left, self.right]
        return self.top(torch.cat([x, interactions], dim=1)).squeeze(1)


def build(size: str) -> nn.Module:
    tables, rows, width, dense = {"small": (3, 50, 8, 5), "bench": (8, 10000, 32, 13), "gpu": (26, 100000, 64, 13)}[size]
    return Recommender(tables, rows, width, dense)


def inputs(size: str) -> tuple:
    n, tables, rows, dense = {"small": (6, 3, 50, 5), "bench": (512, 8, 10000, 13), "gpu": (8192, 26, 100000, 13)}[size]
    return torch.randn(n, dense), torch.randint(0, rows, (n, tables))
