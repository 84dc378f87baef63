"""Loop nests -> fused groups in order, with a memory plan.

In: a ``Program`` of ``lowering``: buffers, each a loop nest or an extern call. Out: a ``Schedule`` for ``codegen`` and its wrapper.
Called by ``inductor.compile_graph``. Upstream counterpart: ``torch._inductor.scheduler``.
"""
from .fusion import Group, can_fuse, fuse, why_not
from .kernels import Kernel, Schedule
from .memory import Slot, plan_memory
from .policy import CPU, GPU, Policy
from .schedule import schedule

__all__ = ["CPU", "GPU", "Group", "Kernel", "Policy", "Schedule", "Slot", "can_fuse", "fuse", "plan_memory", "schedule", "why_not"]
