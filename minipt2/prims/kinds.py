"""``kind(node)``: the coarse nature of a graph node, which partitioners and schedulers decide by. Works on prims and on ATen overloads."""
from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import torch
from torch import fx

from .core import Prim

_CONTRACTIONS = frozenset("""
    mm bmm addmm baddbmm addbmm mv addmv dot vdot addr linear matmul convolution convolution_backward _convolution linear_backward mkldnn_convolution
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_attention_math _grouped_mm _scaled_mm _int_mm
    _scaled_dot_product_attention_math_for_mps _trilinear _cdist_forward _cdist_backward
    _thnn_fused_lstm_cell mkldnn_rnn_layer mkldnn_rnn_layer_backward
""".split())
_REDUCTIONS = frozenset("""
    sum mean prod amax amin max min any all argmax argmin var std var_mean std_mean _softmax _log_softmax _softmax_backward_data
    _log_softmax_backward_data native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward
    _native_batch_norm_legit _native_batch_norm_legit_functional _native_batch_norm_legit_no_training native_group_norm native_group_norm_backward
    norm linalg_vector_norm logsumexp cumsum cumprod cummax cummin logcumsumexp nll_loss_forward nll_loss2d_forward aminmax
    avg_pool1d avg_pool2d avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d nansum count_nonzero mse_loss
""".split())
_INDEX = frozenset("""
    index gather index_select embedding take embedding_dense_backward index_put index_add index_copy index_fill index_reduce scatter scatter_add
    scatter_reduce put _unsafe_index _unsafe_index_put masked_scatter max_pool2d_with_indices_backward nll_loss_backward nll_loss2d_backward
    _unsafe_masked_index _unsafe_masked_index_put_accumulate
""".split())
_VIEWS = frozenset("_unsafe_view _reshape_alias lift_fresh alias detach view_copy".split())
_POINTWISE = frozenset("""
    clone _to_copy contiguous cat stack constant_pad_nd where masked_fill full zeros ones arange full_like zeros_like ones_like scalar_tensor
    new_zeros new_ones new_full empty empty_like new_empty empty_strided new_empty_strided eye slice_backward select_backward
    triu tril fill lift_fresh_copy
    native_dropout_backward gelu gelu_backward silu silu_backward threshold_backward tanh_backward sigmoid_backward
    hardswish hardswish_backward hardsigmoid hardsigmoid_backward
    hardtanh_backward leaky_relu_backward elu_backward softplus_backward mish mish_backward repeat flip roll copy slice_scatter select_scatter
""".split())
_RANDOM = frozenset("""
    native_dropout bernoulli rand randn randint randperm rand_like randn_like randint_like normal normal_functional multinomial uniform exponential
    geometric log_normal cauchy random poisson binomial _sample_dirichlet _standard_gamma rrelu_with_noise rrelu_with_noise_functional
    _fused_dropout
""".split())
_GATHERS = frozenset("all_gather_into_tensor wait_tensor".split())
"""Shards of a parameter put together (and the wait for it): a collective that every rank may run once more."""
_CHECKS = frozenset("_functional_assert_async _functional_assert_scalar".split())


@lru_cache(None)
def _overload_kind(overload: Any) -> str:
    name = overload._schema.name.split("::")[-1]
    tags = overload.tags
    if name in _CHECKS or not overload._schema.returns and not overload._schema.is_mutable:
        return "effect"
    if torch.Tag.nondeterministic_seeded in tags and name not in _CONTRACTIONS or name in _RANDOM:
        return "random"
    for names, kind in ((_CONTRACTIONS, "contraction"), (_VIEWS, "view"), (_REDUCTIONS, "reduction"), (_INDEX, "index"),
                        (_POINTWISE, "pointwise"), (_GATHERS, "gather")):
        if name in names:
            return kind
    first = overload._schema.arguments[0].alias_info if overload._schema.arguments else None
    if first is not None and not first.is_write:
        return "view"
    return "pointwise" if torch.Tag.pointwise in tags else "extern"


def kind(node: fx.Node) -> str:
    """``pointwise``, ``view``, ``reduction``, ``contraction``, ``random``, ``index``, ``gather``, ``effect`` or ``extern``.

    Creation counts as pointwise, reading one output of several (getitem) as a view, and whatever is not known as extern. An effect is
    called for what it may raise (``_assert_async``, ``_linalg_check_errors``): nobody reads its result, if it has one.
    """
    target = node.target
    if isinstance(target, Prim):
        return "pointwise" if target.kind == "creation" else target.kind
    if isinstance(target, torch._ops.OpOverload):
        return _overload_kind(target)
    return "view" if target is operator.getitem or node.op in ("placeholder", "get_attr") else "extern"


def pure(node: fx.Node) -> bool:
    """Whether running ``node`` twice, or not at all where nobody reads it, is no different: it draws no random numbers and raises nothing."""
    seeded = isinstance(node.target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in node.target.tags
    return not seeded and kind(node) not in ("random", "effect")


def draws(node: fx.Node) -> bool:
    """Whether ``node`` draws random numbers: attention is marked so, but draws for a dropout only."""
    if not isinstance(node.target, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded not in node.target.tags:
        return kind(node) == "random"
    places = {a.name: i for i, a in enumerate(node.target._schema.arguments)}
    if "dropout_p" not in places:
        return True
    place = places["dropout_p"]
    return bool(node.args[place] if place < len(node.args) else node.kwargs.get("dropout_p", 0.0))


def drop_dead(graph: fx.Graph) -> None:
    """Remove what nobody reads, and nothing that eager would notice: the generator advances, and what checks values raises."""
    for node in reversed(list(graph.nodes)):
        if node.op in ("call_function", "get_attr") and not node.users and pure(node):
            graph.erase_node(node)
