"""Rounds of a paired measurement, one dot for each side: why a ratio needs an interval."""
from __future__ import annotations

import statistics
import time
from typing import Callable

from .. import measure
from .frame import Figure, Line, Pane, State, escape

WIDTH, HEIGHT, EDGE = 760, 260, 40


def rounds(sides: dict[str, Callable[[], object]], count: int = 30, name: str = "rounds",
           clock: measure.Clock = time.process_time) -> Figure:
    """Time two callables in turns; ``data`` has the seconds of both and ``ratio``: median, low, high of the first over the second.

    Disturbed rounds are drawn on the upper edge, so that the others can be told apart.
    """
    timing = measure.interleave(sides, count, clock)
    (first, a), (second, b) = timing.items()
    ratio = measure.ratio(a.seconds, b.seconds)
    highest = min(max(*a.seconds, *b.seconds), 2 * max(map(statistics.median, (a.seconds, b.seconds))))
    quotients = [x / y for x, y in zip(a.seconds, b.seconds)]
    states = [State(f"round {k + 1}: {first} {x * 1e6:.0f} µs, {second} {y * 1e6:.0f} µs, ratio {x / y:.2f}", {"now": [f"r{k}"]})
              for k, (x, y) in enumerate(zip(a.seconds, b.seconds))]
    lines = [Line(f"{k + 1:3}  {q:5.2f}", f"r{k}", goto=k) for k, q in enumerate(quotients)]
    drawing = (f'<div class="mp-pane mp-wide"><p class="mp-title">time of each round, {escape(first)} blue, {escape(second)} orange</p>'
               f"{_scatter(a.seconds, b.seconds, highest, first, second)}</div>")
    return Figure(name, f"{first} over {second}: {ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}] in {ratio.rounds} rounds.",
                  "The two run in turns, so that whatever disturbs the machine disturbs both; the median of the ratios forgets the rest.",
                  [drawing, Pane("round and ratio", lines)], states, "range", "round",
                  data={first: a.seconds, second: b.seconds, "ratio": [ratio.median, ratio.low, ratio.high]})


def _scatter(a: list[float], b: list[float], highest: float, first: str, second: str) -> str:
    step = (WIDTH - 2 * EDGE) / max(1, len(a) - 1)

    def dot(k: int, seconds: float, kind: str) -> str:
        x, y = EDGE + k * step, HEIGHT - EDGE - min(seconds / highest, 1.0) * (HEIGHT - 2 * EDGE)
        return f'<circle class="dot {kind}" data-name="r{k}" data-goto="{k}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'
    dots = [dot(k, s, "a") for k, s in enumerate(a)] + [dot(k, s, "b") for k, s in enumerate(b)]
    axis = (f'<path class="axis" fill="none" d="M{EDGE} {EDGE / 2} V{HEIGHT - EDGE} H{WIDTH - EDGE / 2}"/>'
            f'<text x="4" y="14">{highest * 1e6:.0f} µs{" and more" * (max(*a, *b) > highest)}</text>'
            f'<text x="{WIDTH - 110}" y="{HEIGHT - 14}">round {len(a)}</text>')
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" tabindex="0" aria-label="Scatter of {len(a)} rounds of {escape(first)} and '
            f'{escape(second)}; arrow keys walk through them">{axis}{"".join(dots)}</svg>')
