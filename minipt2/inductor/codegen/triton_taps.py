"""A convolution's walk in a template: rows are places (image, y, x) of the result, and what is added up are channels of the image at the taps of a window.

Many channels: a step is a block of channels at one tap, whose elements lie side by side. Few (a network's first layer): a step is a block of (tap, channel),
because a tensor core multiplies 16 at a time, and one tap's 3 channels would be 13 zeros of 16. Upstream: ``torch._inductor.kernel.conv``.
"""
from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .triton_template import TemplateWriter


def places(t: "TemplateWriter") -> str:
    """What comes before the walk, to ``t``; the walk."""
    c, w = t.contraction, t.contraction.window
    high, broad = w.out
    place = [("image", f"row // {high * broad}"), ("y", f"row // {broad} % {high}" + _times(w.stride[0]) + _less(w.padding[0])),
             ("x", f"row % {broad}" + _times(w.stride[1]) + _less(w.padding[1]))]
    t.line(*[f"{name} = ({text})[:, None]" for name, text in place])
    if c.few:
        return f"start in range({t.span(c.depth, t.blocks.k)}, KBLOCK)"
    return f"step in range({t.span(prod(w.taps) * -(-c.k // t.blocks.k), 1)})"


def all_taps(t: "TemplateWriter", whole: bool) -> None:
    """A block of (tap, channel) of the image as ``u``, and of the weight as ``v``."""
    c, w = t.contraction, t.contraction.window
    t.line("k = start + tl.arange(0, KBLOCK)", f"channel = k % {c.k}", f"ty = k // {c.k * w.taps[1]}", f"tx = k // {c.k} % {w.taps[1]}")
    t.line(*[f"{i} = {o} + {step}[None, :]{_times(d)}" for i, o, step, d in zip(("iy", "ix"), "yx", ("ty", "tx"), w.dilation)])
    edge = f" & (k[None, :] < {c.depth})" if c.depth % t.blocks.k else ""
    t.line(f"inside = (iy >= 0) & (iy < {w.image[0]}) & (ix >= 0) & (ix < {w.image[1]}){edge}")
    read = sum_of([("image", w.strides[0]), ("iy", w.strides[1]), ("ix", w.strides[2]), ("channel[None, :]", c.a.strides[2])], c.a.offset)
    t.line(f"u = tl.load(lhs + ({read}), inside, 0.0)")
    steps = (w.tap_strides[0], w.tap_strides[1], c.b.strides[1])
    inner = [("k", 1)] if steps == (c.k * w.taps[1], c.k, 1) else [*zip(("ty", "tx", "channel"), steps)]  # "k": the weight lies in this order
    t.line(f"place = {sum_of(inner, 0)}")
    b = replace(c.b, strides=(0, 1, c.b.strides[2]))
    t.load_tile("v", "rhs", b, ("place[:, None]", "col[None, :]"), t.beyond("col[None, :]", "k[:, None]"), whole)


def tap(t: "TemplateWriter", whole: bool) -> None:
    """A block of channels at one tap, likewise."""
    c, w, blocks = t.contraction, t.contraction.window, -(-t.contraction.k // t.blocks.k)
    t.line(*["tap = step", "k = tl.arange(0, KBLOCK)"] if blocks == 1 else
           [f"tap = step // {blocks}", f"k = step % {blocks} * KBLOCK + tl.arange(0, KBLOCK)"])
    t.line(f"ty = tap // {w.taps[1]}", f"tx = tap % {w.taps[1]}")
    t.line(f"iy = y + ty{_times(w.dilation[0])}", f"ix = x + tx{_times(w.dilation[1])}")
    edge = f" & (k[None, :] < {c.k})" if c.k % t.blocks.k else ""
    t.line(f"inside = (iy >= 0) & (iy < {w.image[0]}) & (ix >= 0) & (ix < {w.image[1]}){edge}")
    read = sum_of([("image", w.strides[0]), ("iy", w.strides[1]), ("ix", w.strides[2]), ("k[None, :]", c.a.strides[2])], c.a.offset)
    t.line(f"u = tl.load(lhs + ({read}), inside, 0.0)")
    taps = sum_of([("ty", w.tap_strides[0]), ("tx", w.tap_strides[1])], 0)
    t.load_tile("v", "rhs", c.b, ("k[:, None]", "col[None, :]"), t.beyond("col[None, :]", "k[:, None]"), whole, f" + {taps}" * (taps != "0"))


def _times(n: int) -> str:
    return f" * {n}" * (n != 1)


def _less(n: int) -> str:
    return f" - {n}" * (n != 0)


def sum_of(terms: list[tuple[str, int]], start: int) -> str:
    """``terms`` with their strides, those of no stride left out."""
    parts = [name if s == 1 else f"{name} * {s}" for name, s in terms if s]
    return " + ".join(parts + [str(start)] * (start != 0 or not parts))
