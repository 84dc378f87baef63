"""The closed set of operations that every graph is reduced to, and the rules that reduce it (PrimTorch).

In: a functional FX graph of ATen overloads from ``aot_autograd``. Out: ``expand(gm)``, the same computation in prims (about 160, none of
which promotes or broadcasts) and explicit fallbacks. Called by ``backends``; read by ``inductor`` and by backends outside.

* :class:`Prim`: one operation; callable on tensors (its eager reference), its meta rule gives shape, dtype, device and strides.
* ``decompositions``: ATen overload -> rule, one family a file in ``decompositions/``. ``complete``: the same, with rules for what a
  compiler leaves to PyTorch's kernels; ``expand(gm, complete)`` is for backends that have nothing but the prims.
* ``kind(node)``: pointwise, view, reduction, contraction, random, index, gather (of sharded parameters), effect or extern.
* ``table()``: prims and core ATen, printable. ``coverage()``: what becomes of each ATen overload.

Prims are attributes of this package: ``prims.exp``. Upstream: ``torch._prims``, ``torch._refs``, ``torch._decomp``.
"""
from . import simplify as _simplify  # attaches the identities to the prims
from .coverage import Coverage, core_aten, coverage
from .core import TABLE, Prim, Recorder, TensorMeta, Value
from .decompositions import NoRule, complete, decompositions, elementwise, rule
from .decompositions.random import random_rules
from .expand import expand
from .kinds import kind
from .lazy import LazyGraphModule
from .ops import *  # noqa: F403
from .promote import Kind, result_dtype
from .report import table
