"""Fused groups -> source text and a table of launches.

In: a ``Schedule``. Out: text of its kernels, C for a CPU (``c_openmp.generate``) or Triton for a GPU (``triton.generate``), and the Python
module that calls them and the extern kernels in order (``wrapper``, ``triton_wrapper``). Called by ``inductor.compile_graph``. Upstream
counterpart: ``torch._inductor.codegen``.

On a CPU, beside the loops: ``c_openmp_products`` and ``c_openmp_attention``, libraries for all shapes.
On a GPU: ``triton_ops`` what each op is in Triton · ``triton_values`` values, masks, pointers · ``triton_reduce``, ``triton_split``
reductions in one program or shared by several · ``triton_blocks`` how much a program takes · ``triton`` the kernels of a schedule. One
level up, ``triton_pool`` compiles them in processes of their own, ``triton_library`` hands them to the driver, and
``triton_interpreter`` runs them on CPU tensors instead.
"""
