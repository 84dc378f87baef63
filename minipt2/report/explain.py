"""``explain(fn)(*args)``: run once under a listener and list graphs, operators, breaks, kernels and code."""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from .. import api, trace
from ..errors import Unsupported


@dataclass
class Explanation:
    """What one call compiled. Print it."""

    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    breaks: list[Unsupported] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    code: list[tuple[str, str]] = field(default_factory=list)
    """(name, text) of every generated source: C and wrapper modules."""
    counters: dict[str, int] = field(default_factory=dict)

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def break_count(self) -> int:
        return len(self.breaks)

    def ops(self, graph: int) -> Counter[str]:
        """How often each function is called in a captured graph."""
        calls = (n for n in self.graphs[graph].graph.nodes if n.op in ("call_function", "call_method"))
        return Counter(n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target)) for n in calls)

    def listen(self, stage: str, name: str, payload: Any) -> None:
        if stage == "graph":
            self.graphs.append(payload)
        elif stage == "breaks":
            self.breaks.append(payload)
        elif stage == "guards":
            self.guards.append(payload)
        elif stage == "code":
            self.code.append((name, str(payload)))

    def __str__(self) -> str:
        parts = [(self.graph_count, "graph"), (self.break_count, "break"), (self.counters.get("kernels", 0), "kernel"),
                 (self.counters.get("fallbacks", 0), "fallback")]
        lines = [", ".join(f"{n} {what}{'s' * (n != 1)}" for n, what in parts)]
        for k, _ in enumerate(self.graphs):
            ops = self.ops(k)
            lines.append(f"graph {k}: {sum(ops.values())} ops: " + ", ".join(f"{name} x{n}" for name, n in ops.most_common(12)))
        # a break inside an inlined function is met again when that function's own frame is captured: told once
        for text, n in Counter(map(str, self.breaks)).items():
            lines.append(f"break{f' (met {n} times)' * (n > 1)}: {text}")
        if self.code:
            lines.append("code: " + ", ".join(f"{name} ({text.count(chr(10)) + 1} lines)" for name, text in self.code)
                         + "; the text is in .code, the captured graphs are in .graphs")
        return "\n".join(lines)


def explain(fn: Callable, **settings: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` compiles ``fn`` anew (``settings`` as for ``compile``), calls it once and says what happened.

    ``fn`` may be plain or already compiled. The call's result is dropped; its side effects happen.
    """

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()
        target = getattr(fn, "_orig_mod", getattr(fn, "__wrapped__", fn))
        before = trace.counters()
        unsubscribe = trace.subscribe(found.listen)
        try:
            api.compile(target, **settings)(*args, **kwargs)
        finally:
            unsubscribe()
        found.counters = {k: v - before.get(k, 0) for k, v in trace.counters().items()}
        return found
    return run
