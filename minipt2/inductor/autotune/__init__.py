"""Which of several ways to do the same is fastest here: measured, remembered.

In: the kernels of a schedule. Out: a configuration for each. Called by code generators in the mode ``max-autotune``.
Upstream counterpart: ``torch._inductor.autotune_process`` and ``torch._inductor.runtime.triton_heuristics``.
"""
from .race import pick
from .space import candidates
from .tune import Tried, tuned

__all__ = ["Tried", "candidates", "pick", "tuned"]
