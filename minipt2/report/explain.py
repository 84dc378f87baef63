"""``explain(fn)(*args)``: run once under listeners and list graphs, guards, kernels, breaks with their lines, fallbacks, times.

Upstream: ``torch._dynamo.explain`` and its ``ExplainOutput``.
"""
from __future__ import annotations

import html
import itertools
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterable

import torch

from .. import api, trace
from ..errors import InvalidArgument, Unsupported
from .text import target_name

if TYPE_CHECKING:
    from .stages import Gathering

_LISTED = 12
"""Operators named in a line; the rest is counted."""


@dataclass
class GraphReport:
    """One captured graph: what was captured, under which checks it runs, what was generated for it."""

    name: str
    module: torch.fx.GraphModule
    function: str = ""
    """The user's function whose frame it is."""
    guards: list[str] = field(default_factory=list)
    """Every check before it runs, in order."""
    kernels: int = 0
    """Generated loops, forward and backward."""
    eager_kernels: list[str] = field(default_factory=list)
    """Operators that fell back to an eager kernel, and why."""

    @property
    def ops(self) -> Counter[str]:
        """How often each function is called."""
        return Counter(target_name(n.target) for n in self.module.graph.nodes if n.op in ("call_function", "call_method"))


def _gathering() -> "Gathering":
    from .stages import Gathering  # imports the compiler's lower half, which programs that only import minipt2 do not need

    return Gathering()


@dataclass
class Explanation:
    """What one call compiled. Print it, or let a notebook show it."""

    reports: list[GraphReport] = field(default_factory=list)
    breaks: list[Unsupported] = field(default_factory=list)
    """Code, reason, advice and the user's lines (``frames``) of each."""
    skipped: list[tuple[str, Unsupported | str]] = field(default_factory=list)
    """(function, reason) of frames that run eagerly, whole."""
    recompiles: list[tuple[str, str]] = field(default_factory=list)
    """(function, check that failed, with what was expected and found)."""
    dynamic: list[tuple[str, str]] = field(default_factory=list)
    """(function, which size became dynamic, or which the code fixes and by which line)."""
    code: list[tuple[str, str]] = field(default_factory=list)
    """(name, text) of every generated source: C and wrapper modules."""
    tuned: list[str] = field(default_factory=list)
    """What was tried for each kernel that was timed, and what won."""
    not_replayed: list[tuple[str, str]] = field(default_factory=list)
    """(compiled graph, why this call was not the replay of a CUDA graph)."""
    warnings: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Time of each stage, without the stages it called."""
    counters: dict[str, int] = field(default_factory=dict)
    stages: "Gathering" = field(default_factory=_gathering, repr=False)
    """What became of each graph, for ``to_html``."""

    @property
    def graphs(self) -> list[torch.fx.GraphModule]:
        return [report.module for report in self.reports]

    @property
    def graph_count(self) -> int:
        return len(self.reports)

    @property
    def break_count(self) -> int:
        return len(self.breaks)

    def ops(self, graph: int) -> Counter[str]:
        """How often each function is called in a captured graph."""
        return self.reports[graph].ops

    # -- listening -------------------------------------------------------------------------------------------------
    def listen(self, stage: str, name: str, payload: Any) -> None:
        if stage == "graph":
            self.reports.append(GraphReport(name, payload))
        elif stage == "guards":
            _, guard, gm = payload
            for report in self.reports:
                if report.module is gm:
                    report.function, report.guards = name, [str(check) for check in guard.checks]
        elif stage == "recipe":
            self._of(name).kernels += payload.kernels
        elif stage == "fallback":
            self.reports[-1].eager_kernels.append(f"{name}: {payload}")
        elif stage == "breaks":
            self.breaks.append(payload)
        elif stage == "skipped":
            self.skipped.append((name, payload[1]))
        elif stage == "recompiles":
            self.recompiles += [(name, reason) for reason in payload[1].values()]
        elif stage == "dynamic":
            self.dynamic += [(name, text) for text in payload[1]]
        elif stage == "code":
            self.code.append((name, str(payload)))
        elif stage == "autotune":
            self.tuned.append(str(payload))
        elif stage == "cudagraphs":
            self.not_replayed.append((name, payload))
        elif stage == "perf":
            stage = name.split(" of ")[0].split(" on ")[0]
            self.seconds[stage] = self.seconds.get(stage, 0.0) + payload.own

    def _of(self, name: str) -> GraphReport:
        """The graph that generated code with this name belongs to; a backend that renames has made it of the last one."""
        return next((r for r in self.reports if name.startswith(f"{r.name}_")), self.reports[-1])

    # -- showing ---------------------------------------------------------------------------------------------------
    def summary(self) -> str:
        parts = [(self.graph_count, "graph"), (self.break_count, "break"), (self.counters.get("kernels", 0), "kernel"),
                 (self.counters.get("fallbacks", 0), "fallback")]
        return ", ".join(itertools.starmap(_counted, parts))

    def __str__(self) -> str:
        lines = [self.summary()]
        for k, report in enumerate(self.reports):
            lines.append(f"graph {k}: {_counted(sum(report.ops.values()), 'op')}: {_listed(report.ops)}")
            lines.append(f"  of {report.function}; {_counted(len(report.guards), 'guard')}; {_counted(report.kernels, 'kernel')}")
            lines += [f"  eager kernel {text}" for text in report.eager_kernels]
        lines += [f"break: {reason}" for reason in self.breaks]
        lines += [f"runs eagerly: {name}: {reason}" for name, reason in self.skipped]
        lines += [f"compiled again: {name}: {reason}" for name, reason in self.recompiles]
        lines += [f"sizes: {name}: {text}" for name, text in self.dynamic]
        lines += [f"tuned: {text}" for text in self.tuned]
        lines += [f"not replayed: {name}: {reason}" for name, reason in self.not_replayed]
        lines += [f"warning: {text}" for text in self.warnings]
        if self.code:
            lines.append("code: " + ", ".join(f"{name} ({_counted(text.count(chr(10)) + 1, 'line')})" for name, text in self.code)
                         + "; the text is in .code, the captured graphs are in .graphs, their guards in .reports")
        if self.seconds:
            lines.append("seconds: " + ", ".join(f"{name} {s:.2f}" for name, s in self.seconds.items()))
        return "\n".join(lines)

    def to_html(self, path: str | Path, times: bool = True) -> Path:
        """Write one self-contained page with every stage, linked line by line; ``times``: run each generated kernel a few times to time it."""
        from .html_report import write
        return write(self, path, times)

    def _repr_html_(self) -> str:
        """Tables for a notebook."""
        graphs = [(k, r.function, sum(r.ops.values()), _listed(r.ops), len(r.guards), r.kernels, "; ".join(r.eager_kernels))
                  for k, r in enumerate(self.reports)]
        tables = [f"<p>{html.escape(self.summary())}</p>",
                  _table(("graph", "function", "ops", "most often", "guards", "kernels", "eager kernels"), graphs)]
        if self.breaks:
            tables.append(_table(("break", "reason", "where", "line", "what to do"), [_break_row(reason) for reason in self.breaks]))
        told = [("runs eagerly", *pair) for pair in self.skipped] + [("compiled again", *pair) for pair in self.recompiles]
        told += [("warning", "", text) for text in self.warnings]
        if told:
            tables.append(_table(("", "function", "reason"), told))
        return "\n".join(tables)


def _counted(n: int, what: str) -> str:
    return f"{n} {what}{'s' * (n != 1)}"


def _listed(ops: Counter[str]) -> str:
    text = ", ".join(f"{name} x{n}" for name, n in ops.most_common(_LISTED))
    return text + f", {len(ops) - _LISTED} others" * (len(ops) > _LISTED)


def _break_row(reason: Unsupported) -> tuple[str, ...]:
    where = reason.frames[-1] if reason.frames else None
    place = (f"{where.file}:{where.line} in {where.function}", where.text) if where else ("", "")
    return (f"{reason.code} {reason.title}", reason.reason, *place, reason.advice)


def _table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    def row(cells: Iterable[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells) + "</tr>"
    return "\n".join(["<table>", row(header, "th"), *(row(cells, "td") for cells in rows), "</table>"])


_STAGES = ("graph", "guards", "recipe", "fallback", "breaks", "skipped", "recompiles", "dynamic", "code", "autotune", "cudagraphs", "perf")


def explain(fn: Callable, *misplaced: Any, **settings: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` compiles ``fn`` anew (``settings`` as for ``compile``), calls it once and says what happened.

    ``fn`` may be plain or already compiled. The call's result is dropped; its side effects happen. Warnings of the call are kept in the
    explanation instead of being shown. A backward graph is compiled when a backward first runs: it is in the explanation of an ``fn``
    that calls ``backward()``. Raises InvalidArgument when the call's arguments are given here.
    """
    if misplaced:
        name = getattr(fn, "__name__", type(fn).__name__)
        raise InvalidArgument(f"explain takes only what to explain; its arguments come after: explain({name})(...)")

    def run(*args: Any, **kwargs: Any) -> Explanation:
        found = Explanation()
        before = trace.counters()
        stops = [trace.subscribe(found.listen, *_STAGES), trace.subscribe(found.stages.listen, *found.stages.LISTENS)]
        try:
            with warnings.catch_warnings(record=True) as caught:
                api.compile(fn, **settings)(*args, **kwargs)
        finally:
            for stop in stops:
                stop()
        found.warnings = [str(w.message) for w in caught]
        found.counters = {k: v - before.get(k, 0) for k, v in trace.counters().items()}
        return found
    return run
