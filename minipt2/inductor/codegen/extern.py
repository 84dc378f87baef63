"""Text of calls to eager kernels in the wrapper module.

In: an ``Extern`` and a function that names the tensor behind a ``TensorRef``. Out: Python expressions.
Upstream: ``ExternKernel.codegen`` and ``ExternKernelOut`` of ``torch._inductor.ir``.
"""
from __future__ import annotations

import math
import re
from typing import Any, Callable

import torch

from ...shapes import python
from ..ir import Extern, TensorRef

Naming = Callable[[TensorRef], str]


def target_text(target: Any) -> str | None:
    """An expression, over the names of the wrapper module, that evaluates to the called object; None when there is no such text."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return f"torch.ops.{namespace}.{name}.{target._overloadname}"
    if type(target).__name__ == "Prim":
        return f"TABLE[{target.name!r}].ref"
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if module is None or name is None or "<" in name:
        return None
    return f"importlib.import_module({module!r}).{name}"


def target_name(target: Any) -> str:
    """A readable identifier for the called object."""
    if isinstance(target, torch._ops.OpOverload):
        overload = "" if target._overloadname == "default" else "_" + target._overloadname
        return target._schema.name.split("::")[-1] + overload
    return re.sub(r"\W", "_", getattr(target, "name", None) or getattr(target, "__name__", "call"))


def argument_text(value: Any, name: Naming) -> str:
    """A literal for one argument; tensors by ``name``."""
    if isinstance(value, TensorRef):
        return name(value)
    if isinstance(value, (list, tuple)):
        items = ", ".join(argument_text(v, name) for v in value)
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {argument_text(v, name)}" for k, v in value.items()) + "}"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.layout, torch.memory_format)):
        return repr(value)
    if value is Ellipsis or isinstance(value, slice):
        return repr(value)
    return python(value)


def arguments_text(extern: Extern, name: Naming) -> str:
    parts = [argument_text(a, name) for a in extern.args]
    parts += [f"{k}={argument_text(v, name)}" for k, v in extern.kwargs.items()]
    return ", ".join(parts)


def out_names(overload: Any) -> list[str]:
    """Keyword names of an out-variant's ``out=`` arguments, in order."""
    return [a.name for a in overload._schema.arguments if a.is_out]
