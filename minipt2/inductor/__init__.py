"""Functional graph of prims -> loop IR -> fused kernels -> a callable.

In: an FX graph whose every call is a prim or an explicit fallback, and fake inputs. Out: ``fn(args: list) -> list``.
Called by ``backends``. Upstream counterpart: ``torch._inductor``.

* ``choose_layouts(gm)``: channels-last for convolutions, on the joint graph.
* ``compile_graph(gm, fake_inputs, inference=..., name=...)``: everything else.
* ``load(recipe, name)``: the same again from what ``compile_graph`` told ``keep``.
"""
from .compile import Recipe, compile_graph, load
from .passes import choose_layouts

__all__ = ["Recipe", "choose_layouts", "compile_graph", "load"]
