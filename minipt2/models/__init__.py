"""Sample models in plain ``torch.nn``, one file each: what the demo, the bench and the tests run.

In: a name and a size (``"small"`` for tests, ``"bench"`` for timing on a CPU, ``"gpu"``). Out: a module and its example inputs. Each model file
defines ``build(size) -> nn.Module`` and ``inputs(size) -> tuple`` and nothing a user's own model would not have; ``loss`` turns any
output into the scalar that training steps minimise. Called by ``bench`` and ``tests``.
"""
from __future__ import annotations

import importlib
from typing import Any

import torch
from torch import nn

NAMES = ("resnet18", "resnet50", "mobilenetv2", "gpt2", "bert", "vit", "recommender", "unet", "lstm", "actor_critic")
CNNS = ("resnet18", "resnet50", "mobilenetv2", "unet")
SIZES = ("small", "bench", "gpu")


def build(name: str, size: str = "bench", seed: int = 0) -> nn.Module:
    """The model with weights drawn from ``seed``, in training mode as ``nn.Module`` starts."""
    torch.manual_seed(seed)
    return _file(name).build(_check(size))


def inputs(name: str, size: str = "bench", seed: int = 0) -> tuple[Any, ...]:
    """Positional arguments for the model's ``forward``."""
    torch.manual_seed(seed)
    return _file(name).inputs(_check(size))


def loss(output: Any) -> torch.Tensor:
    """Mean square of every floating-point tensor in a model's output: a scalar that reaches all of it."""
    if isinstance(output, torch.Tensor):
        return output.float().square().mean()
    return sum(loss(part) for part in output)


def _file(name: str) -> Any:
    if name not in NAMES:
        raise ValueError(f"no sample model {name!r}; there are {', '.join(NAMES)}")
    return importlib.import_module(f"{__name__}.{name}")


def _check(size: str) -> str:
    if size not in SIZES:
        raise ValueError(f"no size {size!r}; there are {', '.join(SIZES)}")
    return size
