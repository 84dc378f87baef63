"""An actor-critic network with a Gaussian policy (Schulman et al., 2017, PPO): returns log-probability, entropy and value."""
import math

import torch
from torch import nn


class ActorCritic(nn.Module):
    def __init__(self, observation: int, action: int, width: int):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(observation, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.mean, self.value = nn.Linear(width, action), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(action))

    def forward(self, observation: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.body(observation)
        mean, std = self.mean(x), self.log_std.clamp(-5, 2).exp()
        z = (action - mean) / std
        log_prob = (-0.5 * z.square() - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        entropy = (std.log() + 0.5 * (1 + math.log(2 * math.pi))).sum(-1).expand_as(log_prob)
        return log_prob, entropy, self.value(x).squeeze(-1)


def build(size: str) -> nn.Module:
    return ActorCritic(*{"small": (6, 2, 16), "bench": (64, 8, 256), "gpu": (256, 32, 1024)}[size])


def inputs(size: str) -> tuple:
    n, observation, action = {"small": (5, 6, 2), "bench": (1024, 64, 8), "gpu": (16384, 256, 32)}[size]
    return torch.randn(n, observation), torch.randn(n, action)
