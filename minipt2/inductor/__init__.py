"""Functional graph of prims -> loop IR -> fused kernels -> a callable.

In: an FX graph whose every call is a prim or an explicit fallback, and fake inputs. Out: ``fn(args: list) -> list``.
Called by ``backends``. Upstream counterpart: ``torch._inductor``.
"""
