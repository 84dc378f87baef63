"""Functional graph of prims -> loop IR -> fused kernels -> a callable.

In: an FX graph whose every call is a prim or an explicit fallback, and fake inputs. Out: ``fn(args: list) -> list``.
Called by ``backends``. Upstream counterpart: ``torch._inductor``.

* ``choose_layouts(gm)``: channels-last for convolutions, on the joint graph.
* ``fuse_attention(gm)``: attention written out becomes one operator, on the captured graph.
* ``compile_graph(gm, fake_inputs, inference=..., name=...)``: everything else.
* ``load(recipe, name)``: the same again from what ``compile_graph`` told ``keep``.
"""
from typing import Any

from .load import Recipe, load

__all__ = ["Recipe", "choose_layouts", "compile_graph", "fuse_attention", "load"]


def __getattr__(name: str) -> Any:
    """The compiler itself is imported when there is something to compile (sympy alone takes longer than loading a stored graph)."""
    if name == "compile_graph":
        from .compile import compile_graph
        return compile_graph
    if name in ("choose_layouts", "fuse_attention"):
        from . import passes
        return getattr(passes, name)
    raise AttributeError(name)
