"""Operators that are others under another name, or others over lists. Upstream: ``torch._decomp``, ``torch._refs``."""
from __future__ import annotations

from typing import Any, Sequence

import torch

from .. import ops as p
from ..core import Value
from ..meta import numel, wrap_dim
from ..promote import to_float
from .activations import gelu
from .contractions import convolution, convolution_backward, matmul
from .creation import zeros
from .foreach import foreach, plain
from .joining import cat, stack
from .normalization import V
from .pointwise import alias, relu
from .reductions import max_all
from .registry import NoRule, broadcast_to, full_like, opmath, rule
from .views import reshape

Ints = Sequence[int]

rule("alias_copy", "detach_copy", "_lazy_clone", "_conj_copy", "_conj_physical", "_pin_memory", library=True)(alias)
rule("_stack", library=True)(stack)
rule("_reshape_alias_copy", library=True)(reshape)
rule("convolution_backward_overrideable", library=True)(convolution_backward)


@rule("_neg_view", "_neg_view_copy", library=True)
def neg(x: Value) -> Value:
    return p.neg(x)


@rule("zero", library=True)
def zero(x: Value) -> Value:
    return full_like(x, 0)


@rule("_efficientzerotensor", library=True)
def zero_tensor(size: Ints, **options: Any) -> Value:
    return zeros(size, **options)


@rule("empty_permuted", library=True)
def empty_permuted(size: Ints, physical_layout: Ints, **options: Any) -> Value:
    """Zeros, as all uninitialised tensors."""
    return zeros(size, **options)


@rule("_new_zeros_with_same_feature_meta", library=True)
def new_zeros_like(x: Value, other: Value, *, self_num_batch_dims: int = 0) -> Value:
    return p.full((*x.shape[:self_num_batch_dims], *other.shape), 0.0, other.dtype, other.device)


@rule("_is_all_true")
def is_all_true(x: Value) -> Value:
    return p.all(x, tuple(range(x.ndim)), False)


@rule("_is_any_true")
def is_any_true(x: Value) -> Value:
    return p.any(x, tuple(range(x.ndim)), False)


@rule("channel_shuffle", library=True)
def channel_shuffle(x: Value, groups: int) -> Value:
    """(n, groups * c, ...): channels of one group no longer side by side."""
    n, c, *rest = x.shape
    split = p.reshape(x, (n, groups, c // groups, *rest))
    return p.reshape(p.permute(split, (0, 2, 1, *range(3, split.ndim))), x.shape)


@rule("_chunk_cat", library=True)
def chunk_cat(tensors: Sequence[Value], dim: int, num_chunks: int) -> Value:
    """Each tensor padded to equal chunks along dim; chunks of all tensors side by side."""
    dim, parts = wrap_dim(dim, tensors[0].ndim), []
    for x in tensors:
        size = -(-x.shape[dim] // num_chunks)
        zero_sides = (0,) * x.ndim
        padded = p.pad(x, zero_sides, tuple([num_chunks * size - n if d == dim else 0 for d, n in enumerate(x.shape)]), 0.0)
        parts.append(p.reshape(padded, (*x.shape[:dim], num_chunks, padded.numel() // (num_chunks * numel(x.shape[:dim])))))
    return cat(parts, dim + 1)


# ------------------------------------------------------------------ products and convolutions
@rule("_int_mm", library=True)
def int_mm(a: Value, b: Value) -> Value:
    """int8 matrices, an int32 product."""
    return p.mm(p.convert(a, torch.int32), p.convert(b, torch.int32))


@rule("_addmm_activation", library=True)
def addmm_activation(bias: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1, use_gelu: bool = False) -> Value:
    out = p.addmm(bias, a, b, beta, alpha)
    return gelu(out) if use_gelu else relu(out)


def _plain_convolution(x: Value, weight: Value, bias: V, stride: Ints, padding: Ints, dilation: Ints) -> Value:
    n = len(stride)
    return convolution(x, weight, bias, stride, padding, dilation, False, (0,) * n, 1)


@rule("slow_conv3d_forward", "_slow_conv2d_forward", library=True)
def slow_conv(x: Value, weight: Value, kernel_size: Ints, bias: V, stride: Ints, padding: Ints) -> Value:
    return _plain_convolution(x, weight, bias, stride, padding, (1,) * len(stride))


@rule("slow_conv_dilated2d", "slow_conv_dilated3d", library=True)
def slow_conv_dilated(x: Value, weight: Value, kernel_size: Ints, bias: V = None, stride: Ints = (1,), padding: Ints = (0,),
                      dilation: Ints = (1,)) -> Value:
    n = weight.ndim - 2
    return _plain_convolution(x, weight, bias, *[tuple(v) * (n if len(v) == 1 else 1) for v in (stride, padding, dilation)])


@rule("slow_conv_transpose2d", "slow_conv_transpose3d", library=True)
def slow_conv_transpose(x: Value, weight: Value, kernel_size: Ints, bias: V = None, stride: Ints = (1,), padding: Ints = (0,),
                        output_padding: Ints = (0,), dilation: Ints = (1,)) -> Value:
    return convolution(x, weight, bias, stride, padding, dilation, True, output_padding, 1)


@rule("_slow_conv2d_backward.output_mask", library=True)
def slow_conv_backward(grad: Value, x: Value, weight: Value, kernel_size: Ints, stride: Ints, padding: Ints,
                       output_mask: Sequence[bool]) -> tuple[V, V, V]:
    return convolution_backward(grad, x, weight, (weight.shape[0],), stride, padding, (1, 1), False, (0, 0), 1, output_mask)


@rule("conv_tbc", library=True)
def conv_tbc(x: Value, weight: Value, bias: Value, pad: int = 0) -> Value:
    """(time, batch, channels) with (kernel, in, out)."""
    out = convolution(p.permute(x, (1, 2, 0)), p.permute(weight, (2, 1, 0)), bias, (1,), (pad,), (1,), False, (0,), 1)
    return p.permute(out, (2, 0, 1))


# ------------------------------------------------------------------ lists and statistics
foreach("clone", "", lambda x, **options: x, library=True)
foreach("copy", "", lambda x, src, non_blocking=False: broadcast_to(p.convert(src, x.dtype), x.shape), library=True)
foreach("zero", "", zero, library=True)
foreach("max", "", max_all, library=True)
foreach("pow", "ScalarAndTensor", plain("pow.Scalar"), library=True)
foreach("mm", "", matmul, library=True)


@rule("linalg__powsum", library=True)
def powsum(x: Value, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    """The sum of |x| ** ord: a norm without its root."""
    out = dtype or x.dtype
    wide = opmath(p.convert(x, out))
    dims = tuple(range(x.ndim)) if not dim else tuple(sorted(d % x.ndim for d in ([dim] if isinstance(dim, int) else dim)))
    power = wide * wide if ord == 2 else p.pow(p.abs(wide), to_float(ord))
    return p.convert(p.sum(power, dims, keepdim), out)


@rule("batch_norm_update_stats", library=True)
def batch_norm_update_stats(x: Value, running_mean: V, running_var: V, momentum: float) -> tuple[Value, Value]:
    """(mean, variance) of a batch."""
    if running_mean is not None or running_var is not None or x.numel() == 0:
        raise NoRule("running statistics, which are written in place")
    var, mean = p.var_mean(opmath(x), tuple([d for d in range(x.ndim) if d != 1]), 0.0, False)
    return p.convert(mean, x.dtype), p.convert(var, x.dtype)


def _foreach_with_scalars(name: str) -> None:
    """``_foreach_<name>.Tensor``: the factors are the elements of one vector."""
    fn = plain(name)

    @rule(f"_foreach_{name}.Tensor", library=True)
    def apply(xs: Sequence[Value], firsts: Sequence[Value], seconds: Sequence[Value], scalars: Value) -> list[Value]:
        results = []
        for i, (x, a, b) in enumerate(zip(xs, firsts, seconds)):
            factor = p.reshape(p.slice(scalars, (i,), (i + 1,), (1,)), ())
            results.append(fn(x, p.convert(a * broadcast_to(p.convert(factor, a.dtype), a.shape), a.dtype), b))
        return results


_foreach_with_scalars("addcmul")
_foreach_with_scalars("addcdiv")


@rule("_foreach_powsum.Scalar", library=True)
def foreach_powsum(xs: Sequence[Value], ord: float = 2, dtype: torch.dtype | None = None) -> list[Value]:
    return [powsum(x, ord, dtype=dtype) for x in xs]
