"""FX graph of prims -> ``ir.Program``: what each prim means as loops over memory, and which values get memory at all.

In: an expanded, functional graph module and its fake inputs. Out: ``lower(gm, inputs) -> Program``, buffers in an order that can be executed.
Called by ``inductor.compile``. Upstream counterpart: ``torch._inductor.graph`` and ``torch._inductor.lowering``.

* ``tensors``: a tensor during lowering, either a closure ``inner(index)`` (not in memory), a view, or a place in a buffer.
* ``symbols``: sizes and numbers that are arguments of the call, and names for what is made of them.
* ``graph``: the walk over the nodes, when a closure is realised, memory order, outputs, mutated inputs.
* ``pointwise``, ``views``, ``reductions``, ``pooling``, ``indexing``, ``memory``, ``extern``: the lowerings, in one dict ``lowerings`` by prim name.
"""
from . import indexing, memory, pointwise, pooling, reductions  # noqa: F401  (fill the registry)
from .graph import lower
from .registry import lowerings
from .views import view_index

__all__ = ["lower", "lowerings", "view_index"]
