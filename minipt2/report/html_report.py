"""The report: one HTML file with every stage of the user's own program, linked line by line. Nothing in it is fetched from elsewhere.

``minipt2.explain(fn)(*args).to_html(path)`` writes it. Upstream: ``tlparse``, which renders ``TORCH_TRACE`` logs.
"""
from __future__ import annotations

import re
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Iterable

import torch

from ..dynamo.bytecode import decode, listing
from ..errors import UserFrame
from ..inductor.scheduler import Schedule
from .figures.frame import Figure, Line, Pane, State, escape, script, style
from .figures.joint import BUDGETS, DRAWN, of_joint
from .figures.pipeline import captured_lines, nests_and_code, place, source_lines
from .stages import Part, Stages, kernel_seconds

if TYPE_CHECKING:
    from .explain import Explanation

PAGE_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 100rem; padding: 1rem; color: #1c2430; background: #fff; }
body.mp-dark { color: #e4e9f2; background: #10131a; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2rem; } a { color: inherit; }
.scrolls { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid #8886; }
td pre { margin: 0; white-space: pre-wrap; } nav a { margin-right: 1rem; }
.mp-pane { content-visibility: auto; contain-intrinsic-size: auto 20rem; } /* thousands of lines are laid out when they are scrolled to */
"""


def page(found: "Explanation", times: bool = True) -> str:
    """The whole file. ``times``: run every generated kernel a few times and say how long it takes."""
    graphs = [_graph(k, report, stages, times) for k, (report, stages) in enumerate(zip(found.reports, found.stages.graphs))]
    links = "".join(f'<a href="#graph-{k}">graph {k}: {escape(r.function or r.name)}</a> ' for k, r in enumerate(found.reports))
    parts = [f"<h1>What minipt2 made of it</h1><p>{escape(found.summary())}; torch {escape(torch.__version__)}.</p><nav>{links}</nav>",
             _breaks(found), _others(found), _seconds(found), *graphs]
    return (f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>minipt2 report</title><style>{style()}{PAGE_STYLE}</style></head><body><script>if (matchMedia('(prefers-color-scheme: dark)').matches) "
            f"document.body.classList.add('mp-dark')</script><main>{''.join(parts)}</main><script>{script()}</script></body></html>")


# ------------------------------------------------------------------ the parts of the page
def _breaks(found: "Explanation") -> str:
    rows = []
    for reason in found.breaks:
        where = "\n".join(f"{f.file}:{f.line}  {f.text}" for f in reason.frames)
        rows.append((f"{reason.code} {reason.title}", reason.reason, where, reason.advice))
    return _section("Graph breaks", ("reason", "what was met", "where", "what to do"), rows, "None: everything was captured.")


def _others(found: "Explanation") -> str:
    rows = [("runs eagerly", name, str(reason)) for name, reason in found.skipped]
    rows += [("compiled again", name, reason) for name, reason in found.recompiles]
    rows += [("eager kernel", r.function, text) for r in found.reports for text in r.eager_kernels]
    rows += [("warning", "", text) for text in found.warnings]
    return _section("Also noticed", ("kind", "function", "what"), rows, "")


def _seconds(found: "Explanation") -> str:
    rows = [(name, f"{s:.3f}") for name, s in sorted(found.seconds.items(), key=lambda pair: -pair[1])]
    return _section("Compile time", ("stage", "seconds of its own"), rows, "")


def _section(title: str, header: Iterable[str], rows: list[tuple], empty: str) -> str:
    if not rows:
        return f"<h2>{title}</h2><p>{empty}</p>" if empty else ""
    head = "".join(f'<th scope="col">{escape(h)}</th>' for h in header)
    body = "".join("<tr>" + "".join(f"<td><pre>{escape(c)}</pre></td>" for c in row) + "</tr>" for row in rows)
    return (f'<h2>{title}</h2><div class="scrolls" tabindex="0" role="region" aria-label="{title}"><table><thead>'
            f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")


def _graph(k: int, report: Any, stages: Stages, times: bool) -> str:
    title = f'<h2 id="graph-{k}">Graph {k}: {escape(report.function or report.name)}</h2>'
    figures = [_way(k, report, stages, times)]
    if stages.joint is not None:
        size = len(stages.joint.graph.nodes)
        figures.append(of_joint(stages.joint, f"joint-{k}", BUDGETS if size <= DRAWN else BUDGETS[:1]))
    return title + "".join(figure.html() for figure in figures)


def _way(k: int, report: Any, stages: Stages, times: bool) -> Figure:
    """Source, bytecode, graph, guards, and for each compiled part prims, loop nests, times, C and wrapper."""
    frames = [f for n in stages.graph.graph.nodes for f in n.meta.get("stack") or ()]
    panes: list[Pane | str] = [Pane("source", source_lines(frames))]
    if stages.codes is not None:
        panes += [Pane("bytecode of the frame", _bytecode(stages.codes[0])), Pane("what runs instead", _bytecode(stages.codes[1]))]
    panes += [Pane("captured: FX graph", captured_lines(stages.graph)), Pane(f"{len(report.guards)} guards", [Line(g) for g in report.guards])]
    for n, part in enumerate(stages.parts.values()):
        panes += _part(part, f"p{n}.", times)
    return Figure(f"way-{k}", "The whole way.", "Point at a line, or walk with the arrow keys: everything that came from it, or that it came from, lights up.",
                  panes, [State("")], packed=True)


def _part(part: Part, prefix: str, times: bool) -> list[Pane | str]:
    kind = part.name.rpartition("_")[2]
    panes: list[Pane | str] = [Pane(f"{kind}: prims", part.prims.lines)]
    if part.plan is not None:
        loops, c = nests_and_code(part.plan, part.prims.captured, prefix)
        panes += [Pane(f"{kind}: loop nests", loops), Pane(f"{kind}: C", c)]
        seconds = kernel_seconds(part) if times else None
        if seconds:
            panes.append(Pane(f"{kind}: {len(seconds)} kernels, {sum(seconds) * 1e6:,.0f} µs on one run each", _timed(part.plan, seconds, prefix)))
    if part.recipe is not None:
        panes.append(Pane(f"{kind}: wrapper module", _wrapper(part.recipe.python)))
    return panes


def _timed(plan: Schedule, seconds: list[float], prefix: str) -> list[Line]:
    """Kernels, the slowest first."""
    total = sum(seconds)
    order = sorted(range(len(seconds)), key=lambda k: -seconds[k])
    lines = []
    for k in order:
        kernel = plan.kernels[k]
        names = ", ".join(kernel.origins[:5]) + ", …" * (len(kernel.origins) > 5)
        lines.append(Line(f"{seconds[k] * 1e6:9.1f} µs {seconds[k] / total:5.1%}  {names}", links=[f"{prefix}{name}" for name in kernel.names]))
    return lines


def _bytecode(code: CodeType) -> list[Line]:
    """Canonical instructions, linked to their lines."""
    address = re.compile(r" at 0x[0-9a-f]+")
    kept = [i for i in decode(code) if i.op != "END_FOR"]
    texts = address.sub("", listing(decode(code))).splitlines()
    places = [place(UserFrame(code.co_filename, i.line or 0, "")) for i in kept]
    return [Line(t, links=[p], lights=[f"={p}", p]) for t, p in zip(texts, places)]


def _wrapper(text: str) -> list[Line]:
    """The module's lines; those under a comment that names operations are linked with them."""
    lines: list[Line] = []
    links: list[str] = []
    for t in text.splitlines():
        stripped = t.strip()
        if stripped.startswith("# "):
            words = stripped[2:].partition("  (")[0].split()
            links = [w for w in words if re.fullmatch(r"\w+", w)]
        lines.append(Line(t, links=[f"@{w}" for w in links], lights=[f"{kind}{w}" for w in links for kind in "^@"]))
        if not stripped.startswith("# ") and "= empty(" not in stripped:  # an allocation belongs to the call after it
            links = []
    return lines


def write(found: "Explanation", path: str | Path, times: bool = True) -> Path:
    target = Path(path)
    target.write_text(page(found, times))
    return target
