"""What stages announce, as text for a terminal: graphs, bytecode, guards, breaks, times."""
from __future__ import annotations

import re
from pathlib import Path
from types import CodeType
from typing import Any

from torch import fx

from ..dynamo.bytecode import decode, listing
from ..errors import Unsupported
from ..trace import Span


def target_name(target: Any) -> str:
    """The short name of what a node calls."""
    return target if isinstance(target, str) else str(getattr(target, "__name__", target)).removesuffix(".default")


def graph(gm: fx.GraphModule) -> str:
    """A line a node: name, call, result, and the user's line where it changes."""
    lines, before = [], None
    for each in gm.graph.nodes:
        where = each.meta.get("stack") or ()
        if where and where[-1] != before:
            before = where[-1]
            lines.append(f"# {Path(before.file).name}:{before.line}  {before.text}".rstrip())
        lines.append(node(each))
    return "\n".join(lines)


def node(node: fx.Node) -> str:
    """One node: name, what it makes, how."""
    if node.op == "output":
        return f"return {_argument(node.args[0])}"
    result = _value(node.meta.get("val"))
    if node.op in ("placeholder", "get_attr"):
        source = node.meta.get("source") or node.target
        return f"{node.name}: {result} = {source}"
    arguments = [*map(_argument, node.args), *(f"{k}={_argument(v)}" for k, v in node.kwargs.items())]
    if node.op == "call_method":
        return f"{node.name}: {result} = {arguments[0]}.{node.target}({', '.join(arguments[1:])})"
    why = f"  # eager kernel: {node.meta['fallback']}" if node.meta.get("fallback") else ""
    return f"{node.name}: {result} = {target_name(node.target)}({', '.join(arguments)}){why}"


def _argument(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        inside = ", ".join(map(_argument, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return value.name if isinstance(value, fx.Node) else repr(value)


def _value(val: Any) -> str:
    if isinstance(val, (tuple, list)):
        return f"({', '.join(map(_value, val))})"
    if hasattr(val, "dtype") and hasattr(val, "shape"):
        device = str(getattr(val, "device", "cpu"))
        return f"{str(val.dtype).removeprefix('torch.')}{list(val.shape)}" + f" on {device}" * (device != "cpu")
    return type(val).__name__


def bytecode(codes: tuple[CodeType, CodeType]) -> str:
    """Canonical instructions of the user's code and of what runs instead."""
    old, new = codes
    address = re.compile(r" at 0x[0-9a-f]+")
    before, after = (address.sub("", listing(decode(code))) for code in (old, new))
    return f"{old.co_filename}:{old.co_firstlineno}\n{before}\n-- runs as --\n{after}"


def guards(payload: tuple) -> str:
    """Every check in the order made."""
    return "\n".join(map(str, payload[1].checks))


def skipped(payload: tuple[CodeType, Unsupported | str]) -> str:
    code, reason = payload
    return f"runs eagerly ({code.co_filename}:{code.co_firstlineno}): {reason}"


def recompiles(payload: tuple[CodeType, dict[int, str]]) -> str:
    """Why none of the versions compiled so far fits this call, in the order in which they were compiled."""
    code, reasons = payload
    return "\n".join([f"compiled again ({code.co_filename}:{code.co_firstlineno}); of the versions there are",
                      *(f"  version {k} needs {reason}" for k, reason in sorted(reasons.items()))])


def dynamic(payload: tuple[CodeType, list[str]]) -> str:
    """What the code compiled now no longer depends on, and which sizes it fixes."""
    code, news = payload
    return "\n".join([f"sizes that vary ({code.co_filename}:{code.co_firstlineno}):", *(f"  {text}" for text in news)])


def perf(span: Span) -> str:
    inside = f" ({span.own:.3f} s of its own)" if span.seconds - span.own > 5e-4 else ""
    return f"{span.seconds:.3f} s{inside}"


def plain(payload: Any) -> str:
    """Graphs by their nodes, anything else by its own text."""
    return graph(payload) if isinstance(payload, fx.GraphModule) else str(payload)
