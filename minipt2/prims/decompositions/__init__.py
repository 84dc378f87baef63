"""Rules that rewrite ATen overloads in prims, one family a file. ``decompositions`` maps overload -> rule.

In: the arguments of one ATen call, tensors as ``Value``. Out: values made by prims. Called by ``expand`` and by rules for one another.
Upstream: ``torch._decomp.decompositions``, ``torch._refs``.
"""
from .registry import NoRule, Rule, complete, decompositions, elementwise, rule
from . import (  # noqa: F401  importing a family registers its rules
    activations, antialiasing, attention, contractions, creation, distances, embedding_bags, foreach, grid_sampling, indexing, joining, linear_algebra,
    losses, margin_losses, max_pooling, normalization, ordering, plumbing, pointwise, pooling, pooling_in_loops, random, reductions,
    resizing, resizing_backward, scattering, softmax, special, views, windows)
