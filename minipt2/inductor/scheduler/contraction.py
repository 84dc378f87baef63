"""Contractions as loop nests: a product that somebody accumulates, then ordinary loops over its elements.

``addmm(bias, a, b)`` is ``c[m, n] = product[m, n] + bias[n]``, where loading ``product`` means the sum over k that a template holds in registers.
So what follows a contraction is fused by the same law, and written by the same code generator, as what follows any other loop.
Upstream: ``torch._inductor.kernel.mm_common`` (``mm_args``, ``addmm_epilogue``) and ``ir.TritonTemplateBuffer``.
"""
from __future__ import annotations

import itertools
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

import torch

from ..ir import Buffer, Extern, Input, Instr, Layout, Ref, TensorRef
from .affine import Index
from .nodes import Access, Node, list_accesses

if TYPE_CHECKING:
    from .operands import Prologue

aten = torch.ops.aten
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
AXES = ("z", "m", "n")
"""Batch, rows and columns of a product."""
FEW = 16
"""Channels below which blocks of one tap's would be empty for the most part: a tensor core multiplies 16 at a time."""


@dataclass(frozen=True)
class Operand:
    """A matrix in memory: elements from one batch, row and column to the next (of attention: batch, head, row and column), and where the first lies."""

    buffer: str
    dtype: torch.dtype
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class Window:
    """A convolution as a product: row m is a place (image, y, x) of the result, column n a channel, and k runs over ``taps`` and channels.

    ``image``: height and width read, ``out``: written; ``strides``: of (image, y, x) in the input; ``tap_strides``: of (y, x) in the weight.
    """

    image: tuple[int, int]
    out: tuple[int, int]
    taps: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    strides: tuple[int, int, int]
    tap_strides: tuple[int, int]

    @property
    def pointwise(self) -> bool:
        """One tap that never leaves the image: rows of a matrix, where they lie evenly."""
        return self.taps == (1, 1) and self.padding == (0, 0)


@dataclass(frozen=True)
class Contraction:
    """``product[z, m, n] = sum over k of a[z, m, k] * b[z, k, n]``; with a ``window``, ``k`` counts the channels of one tap."""

    extern: Extern
    sizes: tuple[int, int, int]
    k: int
    a: Operand
    b: Operand
    window: Window | None = None
    bias: TensorRef | None = None
    scales: tuple[float, float] = (1, 1)
    """What the product and the bias are multiplied with."""
    make_a: "Prologue | None" = None
    make_b: "Prologue | None" = None
    """Loops that make an operand where it is read; it then lies nowhere in memory."""

    @property
    def made(self) -> str:
        """The buffer that the call makes."""
        return self.extern.name

    @property
    def product(self) -> str:
        """The name by which loops read what was accumulated."""
        return f"{self.extern.name}.product"

    @property
    def operands(self) -> frozenset[str]:
        """Buffers that programs read all along."""
        return frozenset().union(*(loops.reads if loops else (o.buffer,) for o, loops in ((self.a, self.make_a), (self.b, self.make_b))))

    @property
    def depth(self) -> int:
        """Products that are added up for one element."""
        return self.k * (prod(self.window.taps) if self.window else 1)

    @property
    def walked(self) -> int:
        """Products that a template walks in one go: the channels of a tap, or, where they are few, those of all taps."""
        return self.depth if self.few else self.k

    @property
    def few(self) -> bool:
        """Whether the channels of one tap would fill no block."""
        return self.window is not None and self.k < FEW

    @property
    def result(self) -> Layout:
        return self.extern.layout

    def node(self, buffers: Mapping[str, Buffer], fresh: Iterator[int]) -> Node:
        """The loop nest that reads the product and stores the result."""
        return product_node(self, buffers, fresh)


def contraction_of(step: Extern, buffers: Mapping[str, Buffer]) -> Contraction | None:
    """``step`` as a product; None where it is none, or none that templates compute (sizes that vary, float64, groups, NCHW)."""
    read = _READERS.get(step.target)
    if read is None or step.layout.dtype not in DTYPES or not _known(step, buffers):
        return None
    found = read(step, lambda ref: seen(ref, buffers))
    if found is None or 0 in (*found.sizes, found.k) or not found.a.dtype == found.b.dtype == step.layout.dtype:
        return None
    return found


def _known(step: Extern, buffers: Mapping[str, Buffer]) -> bool:
    layouts = [step.layout, *(seen(a, buffers) for a in step.args if isinstance(a, TensorRef))]
    return all(map(known, layouts))


def known(layout: Layout) -> bool:
    """Whether all that ``layout`` says is numbers."""
    return all(isinstance(n, int) or n.is_Integer for n in (*layout.sizes, *layout.strides, layout.offset))


def seen(ref: TensorRef, buffers: Mapping[str, Buffer]) -> Layout:
    """How ``ref`` lies in its buffer; inputs are passed by where they begin."""
    buffer = buffers[ref.buffer]
    layout = ref.layout or buffer.layout
    start = layout.offset - buffer.layout.offset if isinstance(buffer, Input) else layout.offset
    return Layout(tuple(map(_int, layout.sizes)), tuple(map(_int, layout.strides)), layout.dtype, layout.device, _int(start))


def _int(n: Any) -> Any:
    return int(n) if isinstance(n, int) or n.is_Integer else n


Seen = Callable[[TensorRef], Layout]


def _matrix(ref: TensorRef, seen: Seen) -> Operand:
    layout = seen(ref)
    strides = (0, *layout.strides)[-3:]
    # a dimension of one element may have any stride
    return Operand(ref.buffer, layout.dtype, tuple(0 if n == 1 else s for n, s in zip((1, *layout.sizes)[-3:], strides)), layout.offset)


def _product(step: Extern, seen: Seen, a: TensorRef, b: TensorRef, **more: Any) -> Contraction:
    rows, columns = seen(a).sizes, seen(b).sizes
    return Contraction(step, ((1, *rows)[-3], rows[-2], columns[-1]), rows[-1], _matrix(a, seen), _matrix(b, seen), **more)


def _mm(step: Extern, seen: Seen) -> Contraction | None:
    return _product(step, seen, *step.args[:2])


def _addmm(step: Extern, seen: Seen) -> Contraction | None:
    alpha, beta = step.kwargs.get("alpha", 1), step.kwargs.get("beta", 1)
    if not all(isinstance(s, (int, float)) for s in (alpha, beta)):
        return None
    bias = step.args[0] if beta != 0 else None
    return _product(step, seen, *step.args[1:3], bias=bias, scales=(alpha, beta))


def _convolution(step: Extern, seen: Seen) -> Contraction | None:
    """Two-dimensional, channels-last, without groups."""
    x_ref, w_ref, bias, stride, padding, dilation, transposed, _, groups = step.args
    x, w = seen(x_ref), seen(w_ref)
    if len(x.sizes) != 4 or transposed or groups != 1 or x.strides[1] != 1 or 0 in x.sizes:
        return None
    out, channels = step.layout, x.sizes[1]
    if tuple(map(int, out.strides)) != channels_last(out.sizes):
        return None
    pairs = [tuple(map(int, p)) if len(p) == 2 else (int(p[0]),) * 2 for p in (stride, padding, dilation)]
    height, width = map(int, out.sizes[2:])
    window = Window(x.sizes[2:], (height, width), w.sizes[2:], *pairs, (x.strides[0], *x.strides[2:]), w.strides[2:])
    a = Operand(x_ref.buffer, x.dtype, (0, 0, 1), x.offset)
    b = Operand(w_ref.buffer, w.dtype, (0, w.strides[1] if channels > 1 else 0, w.strides[0]), w.offset)
    sizes = (1, x.sizes[0] * height * width, w.sizes[0])
    even = window.pointwise and window.stride == (1, 1) and x.strides[2:] == (width * x.strides[3], x.strides[3]) and (
        x.sizes[0] == 1 or x.strides[0] == height * x.strides[2])
    if even:  # 1x1: the image is a matrix
        a, window = Operand(a.buffer, a.dtype, (0, x.strides[3], 1), a.offset), None
    return Contraction(step, sizes, channels, a, b, window, bias)


def channels_last(sizes: Sequence[Any]) -> tuple[int, ...]:
    """Strides of (n, c, h, w) with channels innermost."""
    _, c, h, w = map(int, sizes)
    return (h * w * c, 1, w * c, c)


_READERS: dict[Any, Callable[[Extern, Seen], Contraction | None]] = {
    aten.mm.default: _mm, aten.bmm.default: _mm, aten.addmm.default: _addmm, aten.baddbmm.default: _addmm,
    aten.convolution.default: _convolution,
}


def product_node(c: Contraction, buffers: Mapping[str, Buffer], fresh: Iterator[int]) -> Node:
    """The loop nest that reads the product and stores the result. Its first three accesses say which variables make each of ``AXES``."""
    names = {axis: f"p{next(fresh)}" for axis, n in zip(AXES, c.sizes) if n > 1}
    sizes = {names[axis]: n for axis, n in zip(AXES, c.sizes) if n > 1}
    place = [Index.var(names[axis]) if axis in names else Index() for axis in AXES]
    index = _walk(_result_strides(c), place, _int(c.result.offset))
    instrs = _body(c, buffers, index, place)
    node = Node(c.extern, sizes, frozenset(), tuple(instrs))
    marks = [Access("", p, "value", 0) for p in place]
    node.accesses = marks + list(list_accesses(instrs, lambda name: 0 if name == c.product else buffers[name].layout.dtype.itemsize))
    return node


def _result_strides(c: Contraction) -> tuple[int, int, int]:
    """Of batch, rows and columns in the result's memory."""
    if c.extern.target is aten.convolution.default:
        return 0, c.sizes[2], 1
    return tuple((0, *map(_int, c.result.strides))[-3:])  # type: ignore[return-value]


def _walk(strides: Sequence[int], place: Sequence[Index], start: int) -> Index:
    return sum((p.scale(s) for p, s in zip(place, strides)), Index(start))


def _body(c: Contraction, buffers: Mapping[str, Buffer], index: Index, place: Sequence[Index]) -> list[Instr]:
    count = itertools.count()
    out: list[Instr] = []

    def emit(op: str, *args: Any, dtype: torch.dtype | None = torch.float32) -> Ref:
        out.append(Instr(next(count), op, args, dtype))
        return Ref(out[-1].id)

    def scaled(value: Ref, by: float) -> Ref:
        return value if by == 1 else emit("mul", value, emit("constant", by))

    value = scaled(emit("load", c.product, index), c.scales[0])
    if c.bias is not None:
        layout = seen(c.bias, buffers)
        shape = (1, 1, 1, *layout.sizes)[-3:]
        strides = [0 if n == 1 else s for n, s in zip(shape, (0, 0, 0, *layout.strides)[-3:])]
        bias = emit("load", c.bias.buffer, _walk(strides, place, layout.offset), dtype=layout.dtype)
        bias = bias if layout.dtype is torch.float32 else emit("to_dtype", bias)
        value = emit("add", value, scaled(bias, c.scales[1]))
    if c.result.dtype is not torch.float32:
        value = emit("to_dtype", value, dtype=c.result.dtype)
    emit("store", c.extern.name, index, value, None, dtype=None)
    return out
