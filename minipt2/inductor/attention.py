"""Attention of our own on a CPU: what a graph calls in place of ATen's kernels, and the library of C that computes it.

``attention`` and ``attention_backward`` take and return what ``aten._scaled_dot_product_flash_attention_for_cpu`` and its backward do, for float32 tensors on
a CPU (batch, heads, rows, width), without dropout. What the C cannot read (a width that is no multiple of 16, elements that do not lie side by side) goes
to ATen's kernels. Called by generated code; ``passes/own_attention.py`` decides where. The C: ``codegen/c_openmp_attention.py``.
Upstream: ``aten/src/ATen/native/cpu/FlashAttentionKernel.cpp``.
"""
from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch

from . import cache
from .codegen.c_openmp_attention import FIELDS, TENSORS, source

aten = torch.ops.aten
FORWARD, BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu.default, aten._scaled_dot_product_flash_attention_for_cpu_backward.default
WIDTH = 16
"""Widths of heads are multiples of it: whole vectors on every CPU."""
MOST_TURNED = 1 << 24
"""Numbers of a head's keys beyond which a thread's copies of them take more memory than is well spent."""
Sizes = ctypes.c_int64 * (len(FIELDS) + 3 * len(TENSORS) + 1)
T = torch.Tensor
Strides = tuple[int, ...]


def attention(q: T, k: T, v: T, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: T | None = None,
              scale: float | None = None) -> tuple[T, T]:
    """(softmax(q @ k.T * scale + attn_mask) @ v, logarithm of the softmax's divisor (batch, heads, rows)); a row that sees nothing gives 0 and 0."""
    batch, heads, rows, width = q.shape
    out, lse = torch.empty_like(q), q.new_empty(batch, rows, heads).transpose(1, 2)
    sizes = _sizes(is_causal, q.shape, k.shape, v.shape, None if attn_mask is None else (attn_mask.shape, attn_mask.stride()),
                   q.stride(), k.stride(), v.stride(), out.stride(), lse.stride())
    if sizes is None:
        return FORWARD(q, k, v, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    library().attention_forward(sizes, width ** -0.5 if scale is None else scale, q.data_ptr(), k.data_ptr(), v.data_ptr(),
                                 None if attn_mask is None else attn_mask.data_ptr(), out.data_ptr(), lse.data_ptr())
    return out, lse


def attention_backward(grad: T, q: T, k: T, v: T, out: T, logsumexp: T, dropout_p: float, is_causal: bool, *, attn_mask: T | None = None,
                       scale: float | None = None) -> tuple[T, T, T]:
    """Gradients for ``q``, ``k`` and ``v``. The softmax is made again from the scores alone: ``logsumexp`` is for ATen's kernel, for which it has to come
    from ATen's forward: next to large scores (100, or a mask of -1e9) its last digit is an error of every weight, unless it was made of the same scores."""
    dq, dk, dv = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]).transpose(1, 2) for x in (q, k, v)]
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    sizes = _sizes(is_causal, q.shape, k.shape, v.shape, None if attn_mask is None else (attn_mask.shape, attn_mask.stride()),
                   *[x.stride() for x in (q, k, v, out, logsumexp, grad, dq, dk, dv)])
    if sizes is None:
        return BACKWARD(grad, q, k, v, out, logsumexp, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
    library().attention_backward(sizes, q.shape[-1] ** -0.5 if scale is None else scale, q.data_ptr(), k.data_ptr(), v.data_ptr(),
                                  None if attn_mask is None else attn_mask.data_ptr(), grad.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr())
    return dq, dk, dv


@functools.lru_cache(maxsize=256)
def _sizes(causal: bool, q: torch.Size, k: torch.Size, v: torch.Size, mask: tuple[torch.Size, Strides] | None, *strides: Strides) -> Any:
    """The C's sizes: ``FIELDS``, then for each of ``TENSORS`` how far it is from one batch, head and row to the next. ``strides``: of q, k, v, out,
    lse, and in the backward of the gradients. None for what the C cannot read. Kept: a call costs more than a small block otherwise."""
    (batch, heads, rows, width), columns = q, k[2]
    if k != (batch, heads, columns, width) or k != v or width % WIDTH or 0 in q or not 0 < width * columns <= MOST_TURNED:
        return None
    if any(s[3:] not in ((), (1,)) for s in strides):
        return None
    apart = dict(zip([name for name in TENSORS if name != "mask"], strides))
    apart["mask"] = (0, 0, 0, 0) if mask is None else _spread(*mask, (batch, heads, rows, columns))
    if apart["mask"][3] not in (0, 1):
        return None
    found = [batch, heads, rows, columns, width, int(causal)]
    for name in TENSORS:
        found += apart.get(name, (0, 0, 0))[:3]
    return Sizes(*found, apart["mask"][3])


def _spread(shape: torch.Size, strides: Strides, wanted: tuple[int, ...]) -> Strides:
    """Strides of a tensor as if it were expanded to ``wanted``."""
    missing = len(wanted) - len(shape)
    return (0,) * missing + tuple([0 if n == 1 else s for n, s in zip(shape, strides)])


@functools.cache
def library() -> Any:
    """The C functions. Raises CompilerNotFound, BackendError."""
    made = cache.compile_c(source())
    for function, pointers in ((made.attention_forward, 6), (made.attention_backward, 8)):
        function.argtypes, function.restype = [ctypes.POINTER(ctypes.c_int64), ctypes.c_double, *[ctypes.c_void_p] * pointers], None
    return made
