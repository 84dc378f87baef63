"""From Python frames to FX graphs: the frame evaluation hook, a symbolic interpreter, guards, and resumable breaks.

In: a function or module and a backend ``(gm, fake inputs) -> callable``. Out: the same function, whose frames run as compiled
graphs wherever that is possible. ``api.compile`` calls ``optimize``. Read ``eval_frame`` (which frames), ``frame`` (one frame),
``translator`` and ``opcodes/`` (one instruction), ``variables/`` (one value), ``resume`` (graph breaks), ``guards`` and
``guard_table`` (reuse), ``dynamic`` and ``frame_symbols`` (sizes that vary).
Upstream: ``torch/_dynamo``.
"""
from .marks import mark_dynamic, mark_static
from .eval_frame import disable, is_compiling, optimize, reset
from .skip import transparent_code

__all__ = ["disable", "is_compiling", "mark_dynamic", "mark_static", "optimize", "reset", "transparent_code"]
