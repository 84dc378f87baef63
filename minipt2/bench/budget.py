"""The curve of ``memory_budget``: what a training step saves, its peak memory and its time, from everything recomputed to the default plan.

Each point is measured in a process of its own, so that nothing of another one is resident.
"""
from __future__ import annotations

import argparse
import importlib.util
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

from .runner import child

BUDGETS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0)
_WIDTH = 48


class Point(NamedTuple):
    """One budget of one model."""

    model: str
    budget: float
    saved_mib: float
    peak_mib: float
    ms: float


def main(args: argparse.Namespace, console: Console) -> int:
    """Measure, print a table, draw into ``args.memory_budget`` (as text on the terminal where matplotlib is not installed)."""
    points = []
    for name in args.names:
        for budget in BUDGETS:
            points.append(Point(name, budget, *child(f"budget-{budget}", name, "train", args.size)))
            console.print(f"{name}: budget {budget:.1f} measured", style="dim")
    console.print(table(points))
    if importlib.util.find_spec("matplotlib") is None:
        console.print(text_plot(points))
    else:
        draw(points, args.memory_budget)
        console.print(f"drawn into {args.memory_budget}")
    return 0


def table(points: list[Point]) -> Table:
    out = Table(title="memory budget, training step", box=box.SIMPLE_HEAD, show_edge=False)
    for head in ("model", "budget", "saved MiB", "peak MiB", "step ms"):
        out.add_column(head, justify="left" if head == "model" else "right")
    for p in points:
        out.add_row(p.model, f"{p.budget:.1f}", f"{p.saved_mib:.1f}", f"{p.peak_mib:.1f}", f"{p.ms:.1f}")
    return out


def text_plot(points: list[Point]) -> str:
    """One bar a point: saved memory beside time, each relative to its model's largest."""
    lines = []
    for p in points:
        same = [q for q in points if q.model == p.model]
        saved, time = p.saved_mib / max(q.saved_mib for q in same), p.ms / max(q.ms for q in same)
        lines += [f"{p.model} {p.budget:.1f} saved |{'#' * round(saved * _WIDTH):<{_WIDTH}}| {p.saved_mib:.1f} MiB",
                  f"{' ' * len(p.model)}     time  |{'=' * round(time * _WIDTH):<{_WIDTH}}| {p.ms:.1f} ms"]
    return "\n".join(lines)


def draw(points: list[Point], file: str) -> None:
    """Saved memory against time, a line a model, both relative to budget 1; the format is that of ``file``'s ending."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="step time / that of budget 1", ylabel="saved for the backward / that of budget 1")
    for name in dict.fromkeys(p.model for p in points):
        same = [p for p in points if p.model == name]
        base = same[0]
        axes.plot([p.ms / base.ms for p in same], [p.saved_mib / base.saved_mib for p in same], marker="o", label=name)
        for p in same:
            axes.annotate(f"{p.budget:.1f}", (p.ms / base.ms, p.saved_mib / base.saved_mib), textcoords="offset points", xytext=(4, 4), fontsize=7)
    axes.legend()
    figure.savefig(file)
