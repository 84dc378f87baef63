"""Backends: what runs a captured graph.

In: an FX graph and fake example inputs from ``dynamo``. Out: a callable that takes the real inputs and returns a tuple. Called by
``api``. Here rooms are composed: ``aot_autograd``, ``prims`` and ``inductor`` do not know each other.
Upstream counterpart: ``torch._dynamo.backends``.
"""
from . import builtin as _builtin  # registers them
from .registry import list_backends, lookup, register_backend, with_familiar_inputs

__all__ = ["list_backends", "lookup", "register_backend", "with_familiar_inputs"]
