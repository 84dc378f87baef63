"""What torch lets kernels make of float32 numbers: TF32, bfloat16, or nothing less than they are.

Read through ``fp32_precision``, which also knows what was set by ``allow_tf32`` and ``set_float32_matmul_precision``; those raise RuntimeError once
somebody has set it the new way. Upstream: ``torch.backends``, ``torch._inductor.utils.tf32_used``.
"""
from __future__ import annotations

import torch

TF32 = "tf32"


def products_in_tf32() -> bool:
    """Whether matrix products on a GPU may be."""
    return torch.backends.cuda.matmul.fp32_precision == TF32


def convolutions_in_tf32() -> bool:
    """Whether convolutions on a GPU may be."""
    return torch.backends.cudnn.conv.fp32_precision == TF32


def precisions() -> tuple[str, ...]:
    """Every setting that decides what eager kernels give: part of the keys of compiled graphs."""
    on_gpu, on_cpu = torch.backends.cudnn, torch.backends.mkldnn
    return (torch.backends.cuda.matmul.fp32_precision, *[part.fp32_precision for part in (on_gpu.conv, on_gpu.rnn, on_cpu.matmul, on_cpu.conv, on_cpu.rnn)])
