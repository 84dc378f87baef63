"""What is known about a size, question by question: each fact cuts the line of numbers that compiled code may meet."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Sequence

import sympy

from ...shapes import ShapeEnv
from .frame import Figure, Line, Pane, State, escape

SHOWN = 24
"""Sizes 0 to this one are drawn."""
STEP = 32


@dataclass(frozen=True)
class _At:
    """A source that is only a name."""

    text: str

    def name(self) -> str:
        return self.text


def number_line(hint: int, questions: Sequence[tuple[str, Callable[[Any], Any]]], name: str = "number-line") -> Figure:
    """Ask ``questions`` (text, function of the size) about a size that is ``hint`` at the first call.

    ``data["possible"]``: the sizes not ruled out after each question; ``data["guards"]``: the guards there are then.
    """
    env = ShapeEnv()
    size = env.symbol(hint, _At("x.size(0)"))
    states, possible, guards = [], [], []

    def texts() -> list[str]:
        return [str(g).split(" with ")[0] for g in env.guards()]
    lines = [Line(f"x.size(0) is a size; this time it is {hint}", "q0", goto=0)]
    for k in range(len(questions) + 1):
        before = texts()
        if k:
            text, ask = questions[k - 1]
            answer = ask(size)
            free = texts() == before
            lines.append(Line(f"{text}  ->  {answer}" + ("   known already: no guard" if free else ""), f"q{k}", goto=k))
        left = [n for n in range(SHOWN + 1) if env.implied(sympy.Eq(size.node.expr, n, evaluate=False)) is not False]
        possible.append(left)
        guards.append(texts())
        states.append(State(lines[-1].text, {"now": [f"q{k}"], "later": [f"n{n}" for n in range(SHOWN + 1) if n not in left]},
                            {"guards": "\n".join(guards[-1])}))
    drawing = f'<div class="mp-pane mp-wide"><p class="mp-title">sizes for which this code may run</p>{_line(hint, states[0])}</div>'
    return Figure(name, "What is known of a size.", "Each question that the facts so far do not answer is answered for the size at hand, and the answer "
                  "becomes a guard.", [drawing, Pane("questions, in order", lines), Pane("guards", slot="guards")], states, "range", "question",
                  data={"possible": possible, "guards": guards})


def _line(hint: int, first: State) -> str:
    width = STEP * (SHOWN + 1)
    parts = [f'<path class="axis" d="M0 30 H{width}"/>']
    for n in range(SHOWN + 1):
        x, later = STEP * n + STEP // 2, "later" * (f"n{n}" in first.marks["later"])
        parts.append(f'<g data-name="n{n}" class="{later}"><circle class="dot {"b" * (n == hint)}" cx="{x}" cy="30" r="8"/><text x="{x - 7}" y="60">{n}</text></g>')
    return (f'<svg viewBox="0 0 {width} 70" role="img" tabindex="0" aria-label="Numbers 0 to {SHOWN}; {hint} is the size at hand: {escape(first.label)}">'
            + "".join(parts) + "</svg>")
