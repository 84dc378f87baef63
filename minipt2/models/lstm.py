"""An LSTM language model (Zaremba et al., 2014) whose cell is written out, so that a compiler sees inside it."""
import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inside: int, width: int):
        super().__init__()
        self.x, self.h = nn.Linear(inside, 4 * width), nn.Linear(width, 4 * width, bias=False)

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        h, c = state
        i, f, g, o = (self.x(x) + self.h(h)).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class LSTMLanguageModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int):
        super().__init__()
        self.width = width
        self.embedding = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(Cell(width, width) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)  # (n, t, width)
        steps = x.unbind(1)
        for cell in self.cells:
            zero = x.new_zeros(x.shape[0], self.width)
            state, outputs = (zero, zero), []
            for step in steps:
                state = cell(step, state)
                outputs.append(state[0])
            steps = outputs
        return self.head(torch.stack(list(steps), dim=1))


def build(size: str) -> nn.Module:
    return LSTMLanguageModel(*{"small": (50, 16, 2), "bench": (2000, 256, 2), "gpu": (10000, 512, 2)}[size])


def inputs(size: str) -> tuple:
    n, t, vocabulary = {"small": (3, 5, 50), "bench": (16, 16, 2000), "gpu": (64, 32, 10000)}[size]
    return (torch.randint(0, vocabulary, (n, t)),)
