"""Which code is captured as a frame, which is inlined, and which always runs as it is.

Upstream: ``torch/_dynamo/trace_rules.py``.
"""
from __future__ import annotations

import os
import sysconfig
from types import CodeType
from typing import Any

import torch

from .per_code import PerCode
from .variables.base import unsupported

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STDLIB = os.path.abspath(sysconfig.get_paths()["stdlib"]) + os.sep
_SITE = tuple(os.path.abspath(sysconfig.get_paths()[key]) + os.sep for key in ("purelib", "platlib"))
# Parts of minipt2 that are user code as far as capture is concerned.
_USER_PARTS = tuple(os.path.join(_OWN, part) for part in ("models" + os.sep, "bench" + os.sep, os.path.join("distributed", "sharded.py")))

# Rooms that compile and run graphs: nothing that their frames call is captured (autograd calls the backward in the middle of a user's frame).
_COMPILER_PARTS = tuple(os.path.join(_OWN, part + os.sep) for part in ("aot_autograd", "backends", "inductor", "prims"))

# Parts of torch that are Python like a user's: what follows a graph break inside them is captured as a frame of its own. Not among them:
# the files every module call goes through, whose few code objects would soon hold entries for every module there is.
_TORCH_USER_PARTS = tuple(_TORCH + part for part in (
    os.path.join("nn", "modules") + os.sep, os.path.join("nn", "functional.py"), "masked" + os.sep, "testing" + os.sep))
_TORCH_SHARED = tuple(os.path.join(_TORCH, "nn", "modules", name) for name in ("module.py", "container.py", "lazy.py"))

# Modules whose functions do things no graph may repeat or fold: they are called for real, between graphs.
NEVER_INLINE = (
    "logging", "warnings", "threading", "multiprocessing", "subprocess", "socket", "asyncio", "concurrent", "importlib", "time", "random",
    "tempfile", "pdb", "unittest", "traceback", "inspect", "linecache", "torch._dynamo", "torch._inductor", "torch._functorch",
    "torch.utils.data", "torch.distributed", "torch.nn.parallel.distributed", "torch.multiprocessing", "torch.profiler", "torch.autograd.profiler",
    "torch.jit", "torch.fx", "torch.onnx", "torch._tensor_str", "torch._subclasses", "torch.autograd.function", "numpy",
)

_disabled: set[CodeType] = set()
_allowed: PerCode[bool] = PerCode(lambda code: True)
_transparent: set[CodeType] = set()


def disable_code(code: CodeType) -> None:
    _disabled.add(code)


def allow_code(code: CodeType) -> None:
    """Capture frames of ``code`` although its file is skipped."""
    _allowed(code)


def treat_as_compiler(file: str) -> None:
    """Take functions of ``file`` for the compiler's own: a student's answer runs in the place of one of them."""
    global _COMPILER_PARTS
    _COMPILER_PARTS += (file,)


def transparent_code(code: CodeType) -> None:
    """Inline calls of ``code`` although it is minipt2's own."""
    _transparent.add(code)


def is_hidden(code: CodeType) -> bool:
    """Code of ours between two frames of the user's, who does not want to hear of it."""
    return code in _allowed or code in _transparent


def skipped_with_callees(code: CodeType) -> bool:
    """Frames of the compiler itself: what they call is its own business too."""
    return code.co_filename.startswith(_COMPILER_PARTS)


def skipped_as_frame(code: CodeType) -> bool:
    """Frames never captured on their own: torch, the standard library, minipt2, generated code without a file."""
    if code in _allowed:
        return False
    if code in _disabled:
        return True
    name = code.co_filename
    if name.startswith("<"):
        return not name.startswith(("<stdin>", "<ipython", "<string>", "<doctest")) or code.co_name == "<module>"
    if name.startswith(_USER_PARTS):
        return False
    if name.startswith(_TORCH_USER_PARTS) and name not in _TORCH_SHARED:
        return False
    if name.startswith((_OWN, _TORCH, *_COMPILER_PARTS)):
        return True
    return name.startswith(_STDLIB) and not name.startswith(_SITE)


def check_inline(fn: Any) -> None:
    """Raise Unsupported when the function variable ``fn`` must be called for real."""
    code = fn.get_code()
    real = getattr(fn, "fn", None)
    if code in _disabled or getattr(real, "_minipt2_disable", False):
        unsupported("MP305", f"{getattr(real, '__qualname__', code.co_qualname)} is disabled for capture", "remove minipt2.disable, or call it outside")
    module = fn.get_globals().get("__name__") or ""
    if module.startswith(NEVER_INLINE) and _matches(module):
        unsupported("MP303", f"call of {module}.{code.co_qualname}", "move this call out of the compiled code")
    if code.co_filename.startswith(_OWN) and not code.co_filename.startswith(_USER_PARTS) and not is_hidden(code):
        unsupported("MP303", f"call of minipt2's own {code.co_qualname}")


def _matches(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in NEVER_INLINE)
