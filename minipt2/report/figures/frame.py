"""What every figure is made of: panes of lines with names, and states that say which lines are marked.

A figure is HTML that reads without JavaScript (its first state is drawn here) and a JSON block with its states, which
``assets/figures.js`` turns into a slider, a list to choose from, or marks that follow the pointer. No figure has script of its own.
"""
from __future__ import annotations

import html
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Iterable, Sequence

ASSETS = Path(__file__).parent.parent / "assets"
SHOWN, BLOCK = 60, 200
"""Lines of a long pane that stand in the page at once, and how many of the rest are laid out together."""


@dataclass
class State:
    """One position of a figure's control. ``marks``: class -> names of lines that have it; ``slots``: place -> text that stands there."""

    label: str
    marks: dict[str, list[str]] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)


@dataclass
class Line:
    """A line (or a few that belong together) of a pane. ``links``: what it is known by; ``lights``: what lights up with it (default: the lines
    with a common link). ``goto``: the state a click chooses."""

    text: str
    name: str = ""
    links: Sequence[str] = ()
    lights: Sequence[str] = ()
    goto: int | None = None
    pick: str = ""
    """Name under which it takes part in the figure's pairs."""


@dataclass
class Pane:
    """Lines under a title, or a slot whose text changes with the state. ``wide``: takes a whole row. ``wraps``: prose, not code."""

    title: str
    lines: Sequence[Line] = ()
    slot: str = ""
    wide: bool = False
    wraps: bool = False


@dataclass
class Figure:
    """``control``: ``range``, ``select`` or nothing. ``start``: the state drawn first. ``pairs``: what is said of two picked lines, by "a|b"."""

    name: str
    title: str
    caption: str
    panes: list[Pane | str]
    """A string is HTML of its own (a drawing)."""
    states: list[State] = field(default_factory=lambda: [State("")])
    control: str = ""
    control_label: str = "step"
    start: int = 0
    pairs: dict[str, str] = field(default_factory=dict)
    data: dict[str, Any] = field(default_factory=dict)
    """Numbers behind the drawing, for tests and readers of the page's source."""
    packed: bool = False
    """Long panes are text that the script unpacks once the page is there: for thousands of lines. Only without marks."""

    def html(self) -> str:
        """The figure as one element."""
        state = self.states[self.start]
        body = "\n".join(pane if isinstance(pane, str) else self._pane(pane, state) for pane in self.panes)
        payload = {"states": [vars(s) for s in self.states], "start": self.start, "pairs": self.pairs, "data": self.data}
        text = json.dumps(payload, separators=(",", ":")).replace("<", "\\u003c")
        said = '<p class="mp-said" aria-live="polite">Pick two loop nests.</p>' if self.pairs else ""
        return (f'<figure class="mp" id="figure-{self.name}" data-figure="{self.name}">\n<figcaption><strong>{escape(self.title)}</strong> '
                f"{escape(self.caption)}</figcaption>\n{self._control()}<div class=\"mp-panes\">\n{body}\n</div>\n{said}"
                f'<script type="application/json">{text}</script>\n</figure>')

    def _control(self) -> str:
        if not self.control or len(self.states) < 2:
            return ""
        first, label = escape(self.states[self.start].label), escape(self.control_label)
        if self.control == "select":
            options = "".join(f'<option value="{k}"{" selected" * (k == self.start)}>{escape(s.label)}</option>' for k, s in enumerate(self.states))
            inner = f'<label>{label} <select>{options}</select></label>'
        else:
            inner = (f'<button type="button" data-move="-1" aria-label="previous {label}">&#9664;</button>'
                     f'<input type="range" min="0" max="{len(self.states) - 1}" value="{self.start}" aria-label="{label}" aria-valuetext="{first}">'
                     f'<button type="button" data-move="1" aria-label="next {label}">&#9654;</button>'
                     f'<output aria-live="polite">{first}</output>')
        return f'<div class="mp-control" hidden>{inner}</div>\n'

    def _pane(self, pane: Pane, state: State) -> str:
        kind = "mp-pane" + " mp-wide" * pane.wide + " mp-wraps" * pane.wraps
        head = f'<div class="{kind}"><p class="mp-title">{escape(pane.title)}</p>'
        region = f'tabindex="0" role="region" aria-label="{escape(pane.title)}"'
        if pane.slot:
            return f'{head}<pre {region} data-slot="{pane.slot}">{escape(state.slots.get(pane.slot, ""))}</pre></div>'
        lines = [_line(line, state) for line in pane.lines]
        return f'{head}<pre {region}>{_packed(lines) if self.packed else "".join(lines)}</pre></div>'


def _packed(lines: list[str]) -> str:
    """The first lines, and the others as text inside a script element, which a browser neither parses nor lays out."""
    blocks = [f'<span class="mp-block">{"".join(lines[k:k + BLOCK])}</span>' for k in range(SHOWN, len(lines), BLOCK)]
    return "".join(lines[:SHOWN]) + (f'<script type="text/html">{"".join(blocks)}</script>' if blocks else "")


def _line(line: Line, state: State) -> str:
    classes = ["mp-line", *(kind for kind, names in state.marks.items() if line.name and line.name in names)]
    more = f' data-name="{escape(line.name)}"' * bool(line.name)
    if line.links:
        more += f' data-links="{escape(" ".join(line.links))}"'
    if line.lights:
        more += f' data-lights="{escape(" ".join(line.lights))}"'
    if line.pick:
        more += f' data-pick="{escape(line.pick)}"'
    if line.goto is not None:
        more += f' data-goto="{line.goto}"'
    return f'<span class="{" ".join(classes)}"{more}>{escape(line.text) or " "}\n</span>'


def escape(text: Any) -> str:
    return html.escape(str(text))


def script() -> str:
    return (ASSETS / "figures.js").read_text()


def style() -> str:
    return (ASSETS / "figures.css").read_text()


def text_lines(text: str, prefix: str = "") -> list[Line]:
    """``text`` as lines, named ``prefix`` + number when there is a prefix."""
    return [Line(t, f"{prefix}{k}" if prefix else "") for k, t in enumerate(text.splitlines(), 1)]


def unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))
