"""A graph as text that two processes agree on: everything about it that reaches the generated code.

Upstream: ``torch._inductor.codecache.FxGraphHashDetails``.
"""
from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from .cache import digest
from .codegen.extern import target_name

IN_META = ("static", "frozen", "layout", "fallback")


def graph_text(gm: fx.GraphModule) -> str:
    """Nodes with targets, arguments, metadata and user lines, constants by content, and ``gm.meta``'s mutated inputs."""
    lines = [repr(sorted(gm.meta.get("mutated_inputs", {}).items()))]
    for node in gm.graph.nodes:
        target = node.target if isinstance(node.target, str) else f"{getattr(node.target, '__module__', '')}.{target_name(node.target)}"
        meta = " ".join(f"{k}={node.meta[k]}" for k in IN_META if k in node.meta)
        stack = node.meta.get("stack", ())
        lines.append(f"{node.name} = {node.op} {target} {_text(node.args)} {_text(node.kwargs)} {_value(node.meta.get('val'))} {meta} {stack[-1:]}")
        if node.op == "get_attr":
            lines.append(_content(operator.attrgetter(node.target)(gm)))
    return "\n".join(lines)


def _text(arg: Any) -> str:
    if isinstance(arg, fx.Node):
        return f"%{arg.name}"
    if isinstance(arg, (list, tuple)):
        return f"{type(arg).__name__}({', '.join(map(_text, arg))})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_text(v)}" for k, v in arg.items()) + "}"
    return repr(arg)


def _value(val: Any) -> str:
    if isinstance(val, (list, tuple)):
        return f"[{', '.join(map(_value, val))}]"
    if hasattr(val, "stride"):
        return f"{val.dtype}{list(val.shape)}{list(val.stride())}{val.device}"
    return repr(val)


def _content(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    data = value.detach().cpu().contiguous().reshape(-1)
    return f"{_value(value)} {digest(data.view(torch.uint8).numpy().tobytes() if data.numel() else b'')}"
