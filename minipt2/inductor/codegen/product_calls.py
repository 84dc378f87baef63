"""Calls of the C function ``products`` from generated code: the geometry of a step, and the line that calls.

Upstream: ``torch._inductor.codegen.cpp_gemm_template`` (where each product is code of its own).
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Sequence

from ..ir import Buffer, Extern, Input, Layout, TensorRef
from ..products import Window, code, image_geometry
from ..sizes import number
from .c_openmp_products import GEOMETRY
from .index import size_text

TYPE = "typedef void products_function(const int64_t *, const double *, const float *, const float *, const float *, const float *, float *);"
FUNCTION = "products_function *products"
"""A parameter of C functions that call products: where the library's function is."""


@dataclass
class ProductCall:
    """One call: what it reads (``None``: no bias, no residual) and writes, and its sizes as C. The same interface as ``c_openmp.KernelSpec``."""

    args: list[str]
    """Buffers, in order; ``places`` says which parameter each is."""
    places: list[str]
    offsets: list[Any]
    """Where in its buffer an argument begins, in elements."""
    geometry: list[str]
    scalars: list[float]
    numbers: list[str] = field(default_factory=list)
    extents: list[Any] = field(default_factory=list)
    checks: bool = False

    def lines(self, actual: Sequence[str]) -> list[str]:
        """C statements for the call, given the pointers of ``args``."""
        given = dict(zip(self.places, [f"(float *){a} + {size_text(o)}" if o != 0 else a for a, o in zip(actual, self.offsets)]))
        pointers = ", ".join(given.get(name, "0") for name in ("x", "weight", "bias", "other", "out"))
        return ["{", f"    const int64_t g[] = {{{', '.join(self.geometry)}}};", f"    const double s[] = {{{', '.join(map(repr, self.scalars))}}};",
                f"    products(g, s, {pointers});", "}"]


def product_call(step: Extern, buffers: Mapping[str, Buffer]) -> ProductCall:
    """The call for ``step``, an ``Extern`` whose target is ``products.product``."""
    x, packed, bias, other, columns, window, activation, scalars = step.args
    window = None if window is None else Window(*window)
    given = {"x": x, "weight": packed, "bias": bias, "other": other, "out": TensorRef(step.name)}
    given = {name: ref for name, ref in given.items() if ref is not None}
    image, result = _layout(x, buffers), step.layout
    sizes = _matrix(*image.sizes, image.strides[0]) if window is None else _image(image, result, window)
    depthwise = window is not None and window.depthwise
    values = [number(n) for n in (*sizes, columns, result.strides[0] if window is None else columns, int(depthwise), code(activation))]
    assert len(values) == len(GEOMETRY)
    offsets = [_offset(ref, buffers) for ref in given.values()]
    symbols = sorted({str(s) for n in values + offsets if not isinstance(n, int) for s in n.free_symbols})
    return ProductCall([ref.buffer for ref in given.values()], list(given), offsets, [size_text(n) for n in values],
                       [*map(float, scalars), 0.0, 0.0][:2], symbols)


def _layout(ref: TensorRef, buffers: Mapping[str, Buffer]) -> Layout:
    return ref.layout or buffers[ref.buffer].layout


def _offset(ref: TensorRef, buffers: Mapping[str, Buffer]) -> Any:
    """Elements from a pointer to the buffer (an input's own offset is in its pointer) to the tensor's first."""
    buffer = buffers[ref.buffer]
    offset = _layout(ref, buffers).offset
    return number(offset - buffer.layout.offset if isinstance(buffer, Input) else offset)


def _matrix(rows: Any, depth: Any, stride: Any) -> list[Any]:
    """A matrix is an image of one row of pixels."""
    return [1, 1, rows, 1, rows, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, stride, depth]


def _image(x: Layout, result: Layout, window: Window) -> list[Any]:
    """An image is dense in channels-last memory; one pixel at a time is a matrix."""
    batch, channels, high, wide = x.sizes
    if window.taps == window.stride == (1, 1) and window.padding == (0, 0) and not window.depthwise:
        return _matrix(batch * high * wide, channels, channels)
    return image_geometry(x.sizes, (high * wide * channels, wide * channels, channels), result.sizes[2:], window)
