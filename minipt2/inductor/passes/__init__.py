"""Rewrites of the prims graph before lowering. Their order is in ``order.py`` and ``compile.py``; each file shows a before and an after.

Upstream counterpart: ``torch._inductor.fx_passes`` and ``torch._inductor.freezing``.
"""
from typing import Any

_HOMES = {
    "align": ("align_products",),
    "attention": ("fuse_attention",),
    "bn_fold": ("fold_conv_bn",),
    "freeze": ("Frozen", "split_static"),
    "onednn": ("fuse_convolutions",),
    "own_attention": ("replace_attention",),
    "order": ("INFERENCE_PASSES", "TRAINING_PASSES", "choose_layouts"),
    "bias": ("unfuse_bias",),
    "randomness": ("draws_in_loops", "make_in_loops"),
    "products": ("pack_products",),
    "unfolded": ("unfold_gradients",),
}
__all__ = sorted(name for names in _HOMES.values() for name in names)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """A pass is imported when it is asked for: a process that loads stored graphs runs none."""
    import importlib
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(name)
