"""Functional graph of prims -> loop IR -> fused kernels -> a callable.

In: an FX graph whose every call is a prim or an explicit fallback, and fake inputs. Out: ``fn(args: list) -> list``.
Called by ``backends``. Upstream counterpart: ``torch._inductor``.

* ``choose_layouts(gm)``: channels-last for convolutions, on the joint graph.
* ``draws_in_loops(gm)``, ``make_in_loops(gm)``: random numbers on a GPU, on the joint graph before and after its operators became prims.
* ``fuse_attention(gm)``: attention written out becomes one operator, on the captured graph.
* ``compile_graph(gm, fake_inputs, inference=..., name=...)``: everything else.
* ``load(recipe, name)``: the same again from what ``compile_graph`` told ``keep``.
"""
from typing import Any

from .load import Recipe, load

__all__ = ["Recipe", "choose_layouts", "compile_graph", "draws_in_loops", "fuse_attention", "load", "make_in_loops"]


def __getattr__(name: str) -> Any:
    """The compiler itself is imported when there is something to compile (sympy alone takes longer than loading a stored graph)."""
    if name == "compile_graph":
        from .compile import compile_graph
        return compile_graph
    if name in ("choose_layouts", "draws_in_loops", "fuse_attention", "make_in_loops"):
        from . import passes
        return getattr(passes, name)
    raise AttributeError(name)
