"""Training: the gradients of a convolution of few places and many channels, as matrix products.

Before::

    gx, gw, _ = convolution_backward(g, x, w, ...)                         # g: (n, out, oh, ow)

After, where that is faster here::

    rows = (n * oh * ow, out) of g;  patches = (n * oh * ow, in * kh * kw) of x    # one row for each place, what the window sees there
    gw = mm(rows.t(), patches)
    gx = sum over taps of mm(rows, w)[:, tap], each moved to where its window looked

oneDNN puts a weight of 512x512x3x3 numbers into blocks, and its gradient back, at each call: with 4x4 places of 4 images 11 to 14 ms on one core where
the two products take 3.5, patches and sums 0.7. The patches are made again in the backward: 9 times as many numbers as the image has. Which way is faster is
measured for each shape, once for each machine (``autotune.gradients``). Runs on the joint graph, after memory orders are chosen.
The method: Chellapilla, Puri and Simard, 2006 ("im2col"). Upstream leaves ``convolution_backward`` to the library.
"""
from __future__ import annotations

import operator
from typing import Any, NamedTuple

import torch
from torch import fx

from ...prims.kinds import drop_dead
from ...prims.meta import is_channels_last, same_layout
from .graphs import is_prim, likely, prim, shape_of

MOST_PLACES, MOST_TAPS = 1024, 9
"""Beyond so many windows libraries are as fast; of more taps the sum is a long one."""
FEWEST_MULTIPLICATIONS = 1 << 20
"""Of a gradient: a race takes longer than smaller ones will ever save."""


class Gradients(NamedTuple):
    """The sizes of a convolution whose gradients are wanted, for the race; ``wanted``: of the image, of the weight."""

    image: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    channels_last: tuple[bool, bool, bool]
    """How gradient, image and weight lie in memory."""
    wanted: tuple[bool, bool]


def unfold_gradients(gm: fx.GraphModule) -> int:
    """Rewrite ``gm`` in place; returns how many ``convolution_backward`` became products."""
    done = 0
    for node in list(gm.graph.nodes):
        problem = _problem(node)
        if problem is None:
            continue
        from ..autotune.gradients import worth_unfolding  # only a process that compiles such a graph needs it
        if worth_unfolding(problem):
            _Rewriting(gm.graph, node, problem).rewrite()
            done += 1
    if done:
        drop_dead(gm.graph)
    return done


def _problem(node: fx.Node) -> Gradients | None:
    """The sizes at hand of gradients that may be products; None for anything else."""
    if not is_prim(node, "convolution_backward"):
        return None
    grad, x, weight, _, stride, padding, dilation, transposed, _, groups, wanted = node.args
    val = grad.meta["val"]
    if transposed or groups != 1 or len(val.shape) != 4 or val.dtype != torch.float32 or val.device.type != "cpu":
        return None
    shapes = [tuple(map(likely, shape_of(n))) for n in (grad, x, weight)]
    places, (out, channels, high, wide) = shapes[0][0] * shapes[0][2] * shapes[0][3], shapes[2]
    if 0 in (places, out, channels) or high * wide > MOST_TAPS or places > MOST_PLACES or places * out * channels * high * wide < FEWEST_MULTIPLICATIONS:
        return None
    last = tuple([is_channels_last(shape_of(n), tuple(n.meta["val"].stride())) for n in (grad, x, weight)])
    pairs = [(v[0], v[-1]) for v in (stride, padding, dilation)]
    return Gradients(shapes[1], shapes[2], *pairs, last, tuple(map(bool, wanted[:2]))) if any(wanted[:2]) else None


class _Rewriting:
    """One ``convolution_backward``. A matrix has a row for each place of the result, in the order (image, y, x), and in the columns of patches
    channels and taps in the order in which the weight lies in memory."""

    def __init__(self, graph: fx.Graph, node: fx.Node, problem: Gradients):
        self.graph, self.node, self.problem = graph, node, problem
        self.grad, self.x, self.weight = node.args[:3]
        self.taps_last = not problem.channels_last[2]
        self.batch, self.out, self.high, self.wide = shape_of(self.grad)
        self.channels, self.taps = shape_of(self.x)[1], shape_of(self.weight)[2:]

    def rewrite(self) -> None:
        with self.graph.inserting_before(self.node):
            rows = self.emit("reshape", self.emit("permute", self.grad, (0, 2, 3, 1)), (self.batch * self.high * self.wide, self.out))
            results = [self.for_image(rows) if self.problem.wanted[0] else None, self.for_weight(rows) if self.problem.wanted[1] else None,
                       self.emit("sum", self.grad, (0, 2, 3)) if self.node.args[10][2] else None]
        for user in list(self.node.users):
            assert user.target is operator.getitem
            user.replace_all_uses_with(results[user.args[1]])
            self.graph.erase_node(user)

    def emit(self, name: str, *args: Any) -> fx.Node:
        return prim(self.graph, name, args, self.node)

    def laid(self, node: fx.Node, k: int) -> fx.Node:
        """``node`` in the memory order of the result that it replaces."""
        wanted, shape = tuple(self.node.meta["val"][k].stride()), shape_of(node)
        return node if same_layout(shape, tuple(node.meta["val"].stride()), wanted) else self.emit("copy_strided", node, wanted)

    def offsets(self) -> list[tuple[int, int]]:
        """Where each tap looks, from the corner of its window."""
        return [(i * self.problem.dilation[0], k * self.problem.dilation[1]) for i in range(self.taps[0]) for k in range(self.taps[1])]

    def weight_matrix(self) -> fx.Node:
        """(out, channels and taps)."""
        weight = self.weight if self.taps_last else self.emit("permute", self.weight, (0, 2, 3, 1))
        return self.emit("reshape", weight, (self.out, self.channels * self.taps[0] * self.taps[1]))

    def for_weight(self, rows: fx.Node) -> fx.Node:
        matrix = self.emit("mm", self.emit("permute", rows, (1, 0)), self.patches())
        if self.taps_last:
            return self.laid(self.emit("reshape", matrix, shape_of(self.weight)), 1)
        return self.laid(self.emit("permute", self.emit("reshape", matrix, (self.out, *self.taps, self.channels)), (0, 3, 1, 2)), 1)

    def patches(self) -> fx.Node:
        """(places, channels and taps): what each window sees."""
        (down, right), (pad_high, pad_wide) = self.problem.stride, self.problem.padding
        image = self.emit("permute", self.x, (0, 2, 3, 1))
        if pad_high or pad_wide:
            image = self.emit("pad", image, (0, pad_high, pad_wide, 0), (0, pad_high, pad_wide, 0), 0.0)
        seen = []
        for y, x in self.offsets():
            ends = (self.batch, y + (self.high - 1) * down + 1, x + (self.wide - 1) * right + 1, self.channels)
            tap = self.emit("slice", image, (0, y, x, 0), ends, (1, down, right, 1))
            seen.append(self.emit("reshape", tap, (*shape_of(tap), 1)) if self.taps_last else tap)
        together = seen[0] if len(seen) == 1 else self.emit("cat", seen, len(shape_of(seen[0])) - 1)
        return self.emit("reshape", together, (self.batch * self.high * self.wide, self.channels * len(seen)))

    def for_image(self, rows: fx.Node) -> fx.Node:
        (down, right), (pad_high, pad_wide) = self.problem.stride, self.problem.padding
        matrix, count = self.emit("mm", rows, self.weight_matrix()), self.taps[0] * self.taps[1]
        order = (self.channels, count) if self.taps_last else (count, self.channels)
        columns = self.emit("reshape", matrix, (self.batch, self.high, self.wide, *order))
        total, (_, _, height, width) = None, shape_of(self.x)
        for k, (y, x) in enumerate(self.offsets()):
            starts, ends = [0] * 5, [*shape_of(columns)]
            axis = 4 if self.taps_last else 3
            starts[axis], ends[axis] = k, k + 1
            tap = self.emit("slice", columns, tuple(starts), tuple(ends), (1,) * 5)
            tap = self.spread(self.emit("reshape", tap, (self.batch, self.high, self.wide, self.channels)), down, right)
            _, high, wide, _ = shape_of(tap)
            low = (0, y - pad_high, x - pad_wide, 0)
            tap = self.emit("pad", tap, low, (0, height - high - low[1], width - wide - low[2], 0), 0.0)
            total = tap if total is None else self.emit("add", total, tap)
        assert total is not None
        return self.laid(self.emit("permute", total, (0, 3, 1, 2)), 0)

    def spread(self, image: fx.Node, down: int, right: int) -> fx.Node:
        """Zeros between the rows and columns of (n, y, x, c): what windows that step by more than one jump over."""
        if down == right == 1:
            return image
        n, high, wide, channels = shape_of(image)
        image = self.emit("reshape", image, (n, high, 1, wide, 1, channels))
        image = self.emit("pad", image, (0,) * 6, (0, 0, down - 1, 0, right - 1, 0), 0.0)
        return self.emit("reshape", image, (n, high * down, wide * right, channels))
