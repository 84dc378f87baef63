"""The models of the table for a GPU: plain ``torch.nn`` ones, those of transformers, and ``timm:NAME``, with weights drawn at random.

``case(name, size)`` gives a module and a function that makes its inputs. ``size``: ``"gpu"``, or ``"small"`` for a try on a CPU.
"""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import nn

Made = tuple[nn.Module, Callable[[], dict[str, torch.Tensor] | tuple[torch.Tensor, ...]]]
IMAGES = {"resnet18": 64, "mobilenet": 64, "vit": 32}
TEXT = {"gpt2": (4, 512), "bert": (16, 512)}
NAMES = (*IMAGES, *TEXT)
TIMM_IMAGES = 64


class Residual(nn.Module):
    def __init__(self, i: int, o: int, stride: int = 1):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.norm2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        same = i == o and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm2(self.conv2(torch.relu(self.norm1(self.conv1(x))))) + self.skip(x))


class Inverted(nn.Module):
    def __init__(self, i: int, o: int, stride: int, wider: int = 4):
        super().__init__()
        h = i * wider
        self.body = nn.Sequential(nn.Conv2d(i, h, 1, bias=False), nn.BatchNorm2d(h), nn.Hardswish(),
                                  nn.Conv2d(h, h, 3, stride, 1, groups=h, bias=False), nn.BatchNorm2d(h), nn.Hardswish(),
                                  nn.Conv2d(h, o, 1, bias=False), nn.BatchNorm2d(o))
        self.adds = stride == 1 and i == o

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


def resnet18() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    i = 64
    for o, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(i, o, stride), Residual(o, o)]
        i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def mobilenet() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.Hardswish()]
    i = 16
    for o, stride, n in ((24, 2, 2), (40, 2, 3), (80, 2, 3), (112, 1, 2), (160, 2, 2)):
        for k in range(n):
            layers.append(Inverted(i, o, stride if k == 0 else 1))
            i = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(160, 1000))


def _transformer(name: str, small: bool) -> nn.Module:
    import transformers as tf
    width = dict(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128) if small else {}
    if name == "gpt2":
        return tf.GPT2LMHeadModel(tf.GPT2Config(**(dict(n_layer=2, n_embd=64, n_head=2, vocab_size=500, bos_token_id=1, eos_token_id=2) if small else {})))
    if name == "bert":
        return tf.BertForMaskedLM(tf.BertConfig(**width, **(dict(vocab_size=500) if small else {})))
    return tf.ViTForImageClassification(tf.ViTConfig(num_labels=1000, **width, **(dict(image_size=32) if small else {})))


def case(name: str, size: str = "gpu", seed: int = 0) -> Made:
    """The model in training mode, dropout off (contenders must compute the same thing), and what makes its inputs. Raises ValueError for another name."""
    small = size == "small"
    torch.manual_seed(seed)
    if name.startswith("timm:"):
        import timm
        model = timm.create_model(name.removeprefix("timm:"))
    elif name in NAMES:
        model = {"resnet18": resnet18, "mobilenet": mobilenet}.get(name, functools.partial(_transformer, name, small))()
    else:
        raise ValueError(f"no model {name!r}; there are {', '.join(NAMES)} and timm:NAME")
    _without_dropout(model)
    if name in TEXT:
        batch, length = (2, 16) if small else TEXT[name]
        return model.train(), lambda: {"input_ids": torch.randint(5, 500 if small else 30000, (batch, length))}
    images, side = (2, 32) if small else (IMAGES.get(name, TIMM_IMAGES), 224)
    return model.train(), lambda: (torch.randn(images, 3, side, side),)


def _without_dropout(model: nn.Module) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for field in ("dropout", "attn_dropout", "attention_dropout", "dropout_rate", "drop_prob", "drop_path_rate"):
            if isinstance(getattr(module, field, None), float):
                setattr(module, field, 0.0)


def scalar(output: Any) -> torch.Tensor:
    """Mean square of the logits, in float32 or better."""
    logits = getattr(output, "logits", output)
    return (logits if logits.dtype is torch.float64 else logits.float()).square().mean()
