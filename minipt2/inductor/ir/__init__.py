"""The loop IR: buffers, and the bodies that compute them.

In: what ``lowering`` builds from an FX graph of prims. Out: a ``Program`` that ``scheduler`` orders and fuses.
Upstream counterpart: ``torch._inductor.ir`` and ``torch._inductor.loop_body``.
"""
from .body import Block, Instr, LoopBody, MemDep, Recorder, Ref, loop_vars, reads, record
from .buffers import Buffer, Computed, Constant, Extern, Input, Layout, Output, Program, TensorRef

__all__ = ["Block", "Buffer", "Computed", "Constant", "Extern", "Input", "Instr", "Layout", "LoopBody", "MemDep", "Output",
           "Program", "Recorder", "Ref", "TensorRef", "loop_vars", "reads", "record"]
