"""The order of passes.

Upstream: ``torch._inductor.fx_passes.joint_graph`` and ``post_grad``.
"""
from ...config import config
from .align import align_products
from .bias import unfuse_bias
from .bn_fold import fold_conv_bn
from .layout import move_convolutions
from .onednn import fuse_convolutions
from .operands import order_operands
from .own_attention import replace_attention
from .products import pack_products
from .unfolded import unfold_gradients


def choose_layouts(gm: object) -> object:
    """Memory order for convolutions, pooling and the operands of matrix products, and which gradients of convolutions are such products. Runs on
    joint graphs before they are cut, because forward and backward must agree about the tensors saved between them; in place."""
    order_operands(gm)
    move_convolutions(gm)
    unfold_gradients(gm)
    return gm


def _fold(gm: object) -> None:
    if config.freeze:
        fold_conv_bn(gm)


def _products(gm: object) -> None:
    if config.freeze and config.packed_products:
        pack_products(gm)


def _attention(gm: object) -> None:
    if config.packed_products:
        replace_attention(gm)


def _onednn(gm: object) -> None:
    if config.freeze and config.onednn:
        fuse_convolutions(gm)


INFERENCE_PASSES = (choose_layouts, _fold, _products, _onednn, _attention, unfuse_bias, align_products)
"""Run in this order when no gradient is wanted; ``split_static`` follows."""
TRAINING_PASSES = (_attention, unfuse_bias, align_products)
"""Run on a forward or a backward graph; ``choose_layouts`` ran before they were cut apart."""
