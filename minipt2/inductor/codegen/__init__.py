"""Fused groups -> source text and a table of launches.

In: a ``Schedule``. Out: C text for its kernels (``c_openmp.generate``), and by ``wrapper`` the Python module that calls them and the
extern kernels in order. Called by ``inductor.compile_graph``. Upstream counterpart: ``torch._inductor.codegen``.
"""
