"""Races of a GPU's configurations: a dot for each, its time over the first guess's, and the kernel that it makes."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from .frame import Figure, Pane, State, escape

WIDTH, HEIGHT, EDGE, GAP = 760, 300, 44, 26


@dataclass
class Race:
    """One kernel's race; the first configuration is the one to beat (a guess, or the library)."""

    title: str
    labels: list[str]
    microseconds: list[float]
    best: int
    texts: list[str]
    """What each configuration makes of the kernel."""

    @property
    def relative(self) -> list[float]:
        return [us / self.microseconds[0] for us in self.microseconds]


def races(held: Sequence[Race], caption: str, name: str = "races") -> Figure:
    """``data["relative"]`` and ``data["best"]`` of each race."""
    states, chosen = [], 0
    for k, race in enumerate(held):
        for j, (label, us, ratio) in enumerate(zip(race.labels, race.microseconds, race.relative)):
            said = (", to be beaten" if j == 0 else f", {ratio:.2f} of what was to be beaten") + ", chosen" * (j == race.best)
            states.append(State(f"{race.title}: {label}: {us:.1f} µs{said}", {"now": [f"r{k}.{j}"]}, {"code": race.texts[j]}))
            if k == 0 and j == race.best:
                chosen = len(states) - 1
    drawing = (f'<div class="mp-pane mp-wide"><p class="mp-title">time over that of the first guess, or the library; chosen: orange</p>{_scatter(held)}</div>')
    return Figure(name, "Races.", caption, [drawing, Pane("its kernel", slot="code", wide=True)], states, "range", "configuration", start=chosen,
                  data={"relative": [[round(r, 3) for r in race.relative] for race in held], "best": [race.best for race in held]})


def _scatter(held: Sequence[Race]) -> str:
    highest = max(max(race.relative) for race in held)
    lowest = min(min(race.relative) for race in held)
    count = sum(len(race.labels) for race in held)
    step = (WIDTH - EDGE - 10 - GAP * len(held)) / count

    def y(ratio: float) -> float:
        return HEIGHT - EDGE - (ratio - lowest) / (highest - lowest) * (HEIGHT - 2 * EDGE)
    parts, x, number = [f'<path class="axis" fill="none" d="M{EDGE} {y(1.0):.1f} H{WIDTH - 10}"/><text x="6" y="{y(1.0) + 4:.1f}">1.0</text>'
                        f'<text x="6" y="{y(highest) + 4:.1f}">{highest:.1f}</text>'], EDGE + GAP / 2, 0
    for k, race in enumerate(held):
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - 12}">{escape(race.title)}</text>')
        for j, ratio in enumerate(race.relative):
            kind = "b" if j == race.best else "a"
            parts.append(f'<circle class="dot {kind}" data-name="r{k}.{j}" data-goto="{number}" cx="{x + step / 2:.1f}" cy="{y(ratio):.1f}" r="5.5"/>')
            x, number = x + step, number + 1
        x += GAP
    return (f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="group" tabindex="0" aria-label="Scatter of {count} configurations in {len(held)} races; '
            f'arrow keys walk through them, Enter shows the code">{"".join(parts)}</svg>')
