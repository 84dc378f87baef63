"""minipt2: the PyTorch 2 compiler stack, small enough to read and complete enough to use.

``model = minipt2.compile(model)`` captures Python frames as FX graphs, traces the backward pass ahead of time, reduces operators to a
small closed set, fuses them in a loop-level IR and generates C with OpenMP. Rooms, in the order data flows through them:
``dynamo``, ``aot_autograd``, ``prims``, ``inductor``; ``backends`` composes them.
"""
from .api import OptimizedModule, compile, counters, disable, is_compiling, mark_dynamic, mark_static, reset
from .backends import list_backends, register_backend
from .config import config
from .errors import BackendError, FixedSize, InvalidArgument, Minipt2Error, Unsupported
from .report import explain, set_logs

__version__ = "0.1.0"
__all__ = ["BackendError", "FixedSize", "InvalidArgument", "Minipt2Error", "OptimizedModule", "Unsupported", "compile", "config", "counters",
           "disable", "explain", "is_compiling", "list_backends", "mark_dynamic", "mark_static", "register_backend", "reset", "set_logs"]

if config.logs:
    set_logs(*filter(None, config.logs.replace(" ", "").split(",")))
