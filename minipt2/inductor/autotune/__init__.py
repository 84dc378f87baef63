"""Which of several ways to do the same is fastest here: measured, remembered.

In: the kernels of a schedule, and its contractions. Out: a configuration for each. Called by code generators in the mode ``max-autotune``.
Upstream counterpart: ``torch._inductor.autotune_process``, ``select_algorithm`` and ``runtime.triton_heuristics``.

* ``tuned(plans, schedule, hw, device)``: block sizes of fused kernels; their space in ``space``.
* ``choose(candidates, schedule, hw, device)``: tiles for those contractions that are faster as templates, with the loops after them, than as
  library calls; their space in ``template_space``, the text in ``codegen.triton_template``, what may be a template in ``scheduler.templates``.
  Float32, where TF32 is off: ``codegen.triton_pieces``.
  Attention likewise: ``autotune.attention``, ``codegen.triton_attention``, ``scheduler.attention``.
* ``pick``, ``descend``: the race, and the search from its winner. ``Tried``: what they tell.
"""
from .descent import descend
from .race import pick
from .records import Tried
from .space import candidates
from .templates import choose
from .tune import tuned

__all__ = ["Tried", "candidates", "choose", "descend", "pick", "tuned"]
