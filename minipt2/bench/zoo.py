"""The models of the table for a GPU: plain ``torch.nn`` ones, those of transformers and of timm, with weights drawn at random.

``case(name, size)`` gives a module and a function that makes its inputs. ``size``: ``"gpu"``, or ``"small"`` for a try on a CPU.
"""
from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import nn

Made = tuple[nn.Module, Callable[[], dict[str, torch.Tensor] | tuple[torch.Tensor, ...]]]
IMAGES = {"resnet18": 64, "mobilenet": 64, "vit": 32}
TEXT = {"gpt2": (4, 512), "bert": (16, 512), "distilbert": (16, 512), "opt": (4, 512), "llama": (4, 512), "t5": (8, 512)}
"""Batch and tokens."""
NAMES = ("resnet18", "mobilenet", "vit", "gpt2", "bert")
"""Those that the table has in every mode."""
MORE = ("timm:convnext_tiny", "timm:efficientnet_b0", "timm:regnety_008", "timm:mixer_b16_224", "timm:deit_small_patch16_224",
        "timm:swin_tiny_patch4_window7_224", "distilbert", "opt", "llama", "t5")
"""Those that it has in the default mode."""
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
    """Of transformers, with its configuration's defaults: GPT-2 small, BERT base, ViT-B/16, DistilBERT, OPT-125m, T5 small, and a Llama as wide as they are."""
    import transformers as tf
    words, width = {"vocab_size": 500}, {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
    llama = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4, "intermediate_size": 2048}
    kind, config, always, tiny = {
        "gpt2": ("GPT2LMHeadModel", "GPT2Config", {}, {**words, "n_layer": 2, "n_embd": 64, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}),
        "bert": ("BertForMaskedLM", "BertConfig", {}, {**words, **width}),
        "vit": ("ViTForImageClassification", "ViTConfig", {"num_labels": 1000}, {**width, "image_size": 32}),
        "distilbert": ("DistilBertForMaskedLM", "DistilBertConfig", {}, {**words, "dim": 64, "n_layers": 2, "n_heads": 2, "hidden_dim": 128}),
        "opt": ("OPTForCausalLM", "OPTConfig", {}, {**words, "hidden_size": 64, "word_embed_proj_dim": 64, "num_hidden_layers": 2,
                                                      "num_attention_heads": 2, "ffn_dim": 128}),
        "llama": ("LlamaForCausalLM", "LlamaConfig", llama, {**words, **width, "num_key_value_heads": 1}),
        "t5": ("T5ForConditionalGeneration", "T5Config", {"use_cache": False}, {**words, "d_model": 64, "d_kv": 32, "num_layers": 2, "num_heads": 2,
                                                                                "d_ff": 128}),
    }[name]
    return getattr(tf, kind)(getattr(tf, config)(**(always | (tiny if small else {}))))


def case(name: str, size: str = "gpu", seed: int = 0) -> Made:
    """The model in training mode, dropout off (contenders must compute the same thing), and what makes its inputs. Raises ValueError for another name."""
    small = size == "small"
    torch.manual_seed(seed)
    if name.startswith("timm:"):
        import timm
        model = timm.create_model(name.removeprefix("timm:"))
    elif name in NAMES or name in TEXT:
        model = {"resnet18": resnet18, "mobilenet": mobilenet}.get(name, functools.partial(_transformer, name, small))()
    else:
        raise ValueError(f"no model {name!r}; there are {', '.join((*NAMES, *MORE))} and timm:NAME")
    _without_dropout(model)
    for weight in model.parameters():
        if weight.dim() > 1 and not weight.any():  # timm's mixers begin with a head of zeros: their logits would agree with anything
            nn.init.normal_(weight, std=0.02)
    if name in TEXT:
        batch, length = (2, 16) if small else TEXT[name]
        asked = ("input_ids", "decoder_input_ids") if name == "t5" else ("input_ids",)
        return model.train(), lambda: {ids: torch.randint(5, 500 if small else 30000, (batch, length)) for ids in asked}
    fixed = getattr(model, "default_cfg", {}).get("fixed_input_size")
    images, side = (2, 224 if fixed else 96 if name.startswith("timm:") else 32) if small else (IMAGES.get(name, TIMM_IMAGES), 224)
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
