"""Rewrites of the prims graph before lowering. The order of passes is here and in ``compile.py``; each file shows a before and an after.

Upstream counterpart: ``torch._inductor.fx_passes`` and ``torch._inductor.freezing``.
"""
from ...config import config
from .align import align_products
from .attention import fuse_attention
from .bias import unfuse_bias
from .bn_fold import fold_conv_bn
from .freeze import Frozen, split_static
from .layout import move_convolutions
from .onednn import fuse_convolutions
from .operands import order_operands
from .randomness import draws_in_loops, make_in_loops


def choose_layouts(gm: object) -> object:
    """Memory order for convolutions, pooling and the operands of matrix products. Runs on joint graphs before they are cut, because forward and
    backward must agree about the tensors saved between them; in place."""
    order_operands(gm)
    return move_convolutions(gm)


def _fold(gm: object) -> None:
    if config.freeze:
        fold_conv_bn(gm)


def _onednn(gm: object) -> None:
    if config.freeze and config.onednn:
        fuse_convolutions(gm)


INFERENCE_PASSES = (choose_layouts, _fold, _onednn, unfuse_bias, align_products)
"""Run in this order when no gradient is wanted; ``split_static`` follows."""
TRAINING_PASSES = (unfuse_bias, align_products)
"""Run on a forward or a backward graph; ``choose_layouts`` ran before they were cut apart."""

__all__ = ["Frozen", "INFERENCE_PASSES", "TRAINING_PASSES", "align_products", "choose_layouts", "draws_in_loops", "fold_conv_bn", "fuse_attention",
           "fuse_convolutions", "make_in_loops", "split_static", "unfuse_bias"]
