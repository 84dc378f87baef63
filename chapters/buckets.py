"""Chapter 9's own small code: gradients in buckets, and when a step with them ends. What DDP does, without a network."""
from __future__ import annotations

from typing import Any, NamedTuple, Sequence

import torch
from torch import nn

from minipt2.report.figures import Figure, Pane, State


class Gradient(NamedTuple):
    """``ready``: seconds into the backward at which it is there."""

    name: str
    nbytes: int
    ready: float


class Sent(NamedTuple):
    """A bucket on the link."""

    names: tuple[str, ...]
    nbytes: int
    start: float
    end: float


def assign(ready: Sequence[Gradient], cap: int) -> list[list[Gradient]]:
    """Gradients in the order they get ready, in buckets of at most ``cap`` bytes; none is split, a larger one has a bucket of its own."""
    buckets: list[list[Gradient]] = []
    room = 0
    for gradient in sorted(ready, key=lambda g: g.ready):
        if not buckets or gradient.nbytes > room:
            buckets.append([])
            room = cap
        buckets[-1].append(gradient)
        room -= gradient.nbytes
    return buckets


def send(buckets: Sequence[Sequence[Gradient]], bandwidth: float, latency: float) -> list[Sent]:
    """One link, first come first served: a bucket waits for its last gradient and for the bucket before it."""
    sent: list[Sent] = []
    free = 0.0
    for bucket in buckets:
        start = max(free, max(g.ready for g in bucket))
        size = sum(g.nbytes for g in bucket)
        free = start + latency + size / bandwidth
        sent.append(Sent(tuple(g.name for g in bucket), size, start, free))
    return sent


def ready_order(model: nn.Module, args: Sequence[Any], loss: Any, seconds: float) -> list[Gradient]:
    """Gradients of one step in the order autograd makes them, spread evenly over a backward of ``seconds``."""
    order: list[tuple[str, torch.Tensor]] = []
    hooks = [p.register_post_accumulate_grad_hook(lambda p, name=name: order.append((name, p))) for name, p in model.named_parameters()]
    loss(model(*args)).backward()
    for hook in hooks:
        hook.remove()
    return [Gradient(name, p.numel() * p.element_size(), seconds * (k + 1) / len(order)) for k, (name, p) in enumerate(order)]


def timeline(gradients: Sequence[Gradient], caps: Sequence[int], bandwidth: float, latency: float, name: str = "timeline") -> Figure:
    """Two lanes, compute and link, for each bucket size. ``data["finish"]``: when the last gradient has arrived."""
    compute = max(g.ready for g in gradients)
    runs = [send(assign(gradients, cap), bandwidth, latency) for cap in caps]
    finish = [run[-1].end for run in runs]
    longest = max(finish)
    states = [State(f"buckets of {cap / 2**20:.2f} MiB: {len(run)} messages, done after {end * 1e3:.1f} ms, {(end - compute) * 1e3:.1f} ms after the backward",
                    {"off": [f"b{other}" for other in range(len(caps)) if other != k]},
                    {"list": "\n".join(f"{s.start * 1e3:7.1f} to {s.end * 1e3:7.1f} ms  {s.nbytes / 2**20:6.2f} MiB  {len(s.names)} gradients" for s in run)})
              for k, (cap, run, end) in enumerate(zip(caps, runs, finish))]
    drawing = f'<div class="mp-pane mp-wide"><p class="mp-title">compute above, link below</p>{_lanes(runs, compute, longest, states[0])}</div>'
    return Figure(name, "Buckets on a link.", "Small buckets start early and pay for every message; one large bucket starts when everything is over.",
                  [drawing, Pane("messages", slot="list", wide=True)], states, "range", "bucket size", data={"finish": finish, "caps": list(caps)})


def _lanes(runs: Sequence[Sequence[Sent]], compute: float, longest: float, first: State) -> str:
    scale = 840 / longest
    parts = [f'<rect class="node" x="5" y="10" width="{compute * scale:.1f}" height="30"/><text x="12" y="30">backward</text>']
    for k, run in enumerate(runs):
        kind = "saved off" if f"b{k}" in first.marks["off"] else "saved"
        boxes = "".join(f'<rect class="node" x="{5 + s.start * scale:.1f}" y="55" width="{max(1.0, (s.end - s.start) * scale - 1):.1f}" height="30"/>' for s in run)
        parts.append(f'<g data-name="b{k}" class="{kind}">{boxes}</g>')
    return f'<svg viewBox="0 0 850 95" role="img" aria-label="Backward pass and messages over time">{"".join(parts)}</svg>'

