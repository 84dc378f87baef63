"""Rewrites of the prims graph before lowering. The order of passes is here and in ``compile.py``; each file shows a before and an after.

Upstream counterpart: ``torch._inductor.fx_passes`` and ``torch._inductor.freezing``.
"""
from .bn_fold import fold_conv_bn
from .freeze import Frozen, split_static
from .layout import choose_layouts
from .onednn import fuse_convolutions


def _fold(gm: object) -> None:
    from ...config import config
    if config.freeze:
        fold_conv_bn(gm)


def _onednn(gm: object) -> None:
    from ...config import config
    if config.freeze and config.onednn:
        fuse_convolutions(gm)


INFERENCE_PASSES = (choose_layouts, _fold, _onednn)
"""Run in this order when no gradient is wanted; ``split_static`` follows. Training graphs get ``choose_layouts`` before they are cut in two."""

__all__ = ["Frozen", "INFERENCE_PASSES", "choose_layouts", "fold_conv_bn", "fuse_convolutions", "split_static"]
