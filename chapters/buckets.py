"""Chapter 9: a model's gradients in the order they get ready, and the figure of buckets on a link."""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
from torch import nn

from minipt2.distributed import Sent, assign, finish
from minipt2.report.figures import Figure, Pane, State


class Step(NamedTuple):
    """A backward pass: parameters in the order their gradients are there, and when (seconds)."""

    names: list[str]
    parameters: list[torch.Tensor]
    ready: list[float]


class Message(NamedTuple):
    """A bucket of ``count`` gradients on the link."""

    sent: Sent
    nbytes: int
    count: int


def ready_order(model: nn.Module, args: Sequence[Any], loss: Any, seconds: float) -> Step:
    """One step of ``model``; its gradients spread evenly over a backward of ``seconds``."""
    order: list[tuple[str, torch.Tensor]] = []
    hooks = [p.register_post_accumulate_grad_hook(lambda p, name=name: order.append((name, p))) for name, p in model.named_parameters()]
    loss(model(*args)).backward()
    for hook in hooks:
        hook.remove()
    return Step([n for n, _ in order], [p for _, p in order], [seconds * (k + 1) / len(order) for k in range(len(order))])


def messages(step: Step, cap: int, bandwidth: float, latency: float) -> list[Message]:
    """The step's gradients in buckets of ``cap`` bytes, sent as each is complete."""
    when = {id(p): t for p, t in zip(step.parameters, step.ready)}
    buckets = assign(step.parameters, cap)
    sizes = [sum(p.nbytes for p in bucket) for bucket in buckets]
    sent = finish([max(when[id(p)] for p in bucket) for bucket in buckets], sizes, bandwidth, latency)
    return [Message(*row) for row in zip(sent, sizes, map(len, buckets))]


def timeline(step: Step, caps: Sequence[int], bandwidth: float, latency: float, name: str = "timeline") -> Figure:
    """Two lanes, compute and link, for each bucket size. ``data["finish"]``: when the last gradient has arrived."""
    compute = step.ready[-1]
    runs = [messages(step, cap, bandwidth, latency) for cap in caps]
    ends = [max(m.sent.end for m in run) for run in runs]
    states = [State(f"buckets of {cap / 2**20:.2f} MiB: {len(run)} messages, done after {end * 1e3:.1f} ms, {(end - compute) * 1e3:.1f} ms after the backward",
                    {"off": [f"b{other}" for other in range(len(caps)) if other != k]},
                    {"list": "\n".join(f"{m.sent.start * 1e3:7.1f} to {m.sent.end * 1e3:7.1f} ms  {m.nbytes / 2**20:6.2f} MiB  {m.count} gradient" + "s" * (m.count != 1) for m in run)})
              for k, (cap, run, end) in enumerate(zip(caps, runs, ends))]
    start = min(range(len(ends)), key=ends.__getitem__)
    drawing = f'<div class="mp-pane mp-wide"><p class="mp-title">compute above, link below</p>{_lanes(runs, compute, max(ends), states[start])}</div>'
    return Figure(name, "Buckets on a link.", "Small buckets start early and pay for every message; one large bucket starts when everything is over.",
                  [drawing, Pane("messages", slot="list", wide=True)], states, "range", "bucket size", start, data={"finish": ends, "caps": list(caps)})


def _lanes(runs: Sequence[Sequence[Message]], compute: float, longest: float, first: State) -> str:
    scale = 840 / longest
    parts = [f'<rect class="node" x="5" y="10" width="{compute * scale:.1f}" height="30"/><text x="12" y="30">backward</text>']
    for k, run in enumerate(runs):
        kind = "saved off" if f"b{k}" in first.marks["off"] else "saved"
        boxes = "".join(f'<rect class="node" x="{5 + m.sent.start * scale:.1f}" y="55" width="{max(1.0, (m.sent.end - m.sent.start) * scale - 1):.1f}" height="30"/>'
                        for m in run)
        parts.append(f'<g data-name="b{k}" class="{kind}">{boxes}</g>')
    return f'<svg viewBox="0 0 850 95" role="img" tabindex="0" aria-label="Backward pass and messages over time">{"".join(parts)}</svg>'
