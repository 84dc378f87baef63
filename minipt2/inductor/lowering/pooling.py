"""Max pooling as loops: each window reads its elements; each element reads the windows that cover it, and adds the gradients of those that
chose it, so that nothing is scattered and no sum depends on the order of threads.

Upstream: ``max_pool2d_with_indices`` and its backward in ``torch._inductor.lowering``.
"""
from __future__ import annotations

import math
from itertools import product
from typing import Any, Callable, NamedTuple, Sequence

import sympy
import torch

from ...prims.promote import opmath_dtype
from ...shapes import bounds, floordiv, mod
from ..ops import ops
from .registry import lowering
from .tensors import Expr, Index, Lazy, Tensor, join

Ints = Sequence[int]
MOST_OPS = 2
"""Operations on an operand that are repeated for every window that covers an element; what is dearer is put into memory first."""
NOWHERE = -1
"""No place in a window."""
MOST_WRITTEN = 128
"""Operations on an operand that are written out, for all places where it is read."""


def _ready(g: Any, x: Tensor, readings: float, places: int) -> None:
    """Put ``x``, read at so many ``places``, into memory where each of its elements would be computed several times, or takes much text."""
    cost = x.cost
    again = readings > 1 and (cost.ops > MOST_OPS or cost.heavy or len(cost.reads) > 1)
    if x.place() is None and (again or cost.ops * places > MOST_WRITTEN):
        g.realize(x)


def _steps(sizes: Sequence[Any]) -> list[Any]:
    """How far apart neighbours along each dimension are, row-major."""
    return [math.prod(sizes[d + 1:]) for d in range(len(sizes))]


Test = tuple[str, Expr, Any]
"""``ge``, ``lt`` or ``eq``, an index expression, and what it is compared with."""


def _truth(test: Test) -> bool | None:
    """What is known of a test without running it."""
    name, value, limit = test
    known = bounds(sympy.sympify(value), ops.ranges)
    if known is None or not isinstance(limit, (int, sympy.Integer)):
        return None
    low, high = known
    if name == "eq":
        return low == limit if low == high else None
    always, never = (low >= limit, high < limit) if name == "ge" else (high < limit, low >= limit)
    return True if always else False if never else None


def _all(tests: Sequence[Test]) -> Any:
    """Whether all ``tests`` hold: True or False where that is known, else a value."""
    known = [_truth(t) for t in tests]
    if False in known:
        return False
    result: Any = True
    for (name, value, limit), truth in zip(tests, known):
        if truth is None:
            holds = getattr(ops, name)(_position(value), _position(limit))
            result = holds if result is True else ops.logical_and(result, holds)
    return result


def _under(condition: Any, body: Callable[[], Any], other: int | float) -> Any:
    return body() if condition is True else ops.masked(condition, body, other)


def _position(e: Any, dtype: torch.dtype = torch.int64) -> Any:
    e = sympy.sympify(e)
    return ops.constant(int(e), dtype) if e.is_Integer else ops.index_expr(e, dtype)


class _Window(NamedTuple):
    """A pooling over the last dimensions: ``sizes`` of the image, ``out`` windows, and how these lie."""

    sizes: Sequence[Expr]
    out: Sequence[Expr]
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints


def _places(window: _Window, at: Index, k: Ints) -> tuple[list[Expr], list[Test]]:
    """The element at place ``k`` of the window ``at``, and what must hold for the input to have it."""
    spots = [o * s + i * d - pad for o, i, s, d, pad in zip(at, k, window.stride, window.dilation, window.padding)]
    return spots, [t for spot, size in zip(spots, window.sizes) for t in (("ge", spot, 0), ("lt", spot, size))]


@lowering("max_pool")
def _max_pool(g: Any, x: Tensor, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool) -> list[Tensor | None]:
    """One nest that stores the values and, where they are read, the places."""
    n, (sizes, _), wanted = len(kernel), g.outputs[0], g.used(2)
    window = _Window(x.sizes[-n:], sizes[-n:], kernel, stride, padding, dilation)
    _ready(g, x, math.prod(k / s for k, s in zip(kernel, stride)), math.prod(kernel))
    targets = [g.allocate(sizes, t, order_of=[x]) if use else None for (_, t), use in zip(g.outputs, wanted)]

    def body(index: Index) -> None:
        lead, at = list(index[:-n]), index[-n:]
        best, place = None, _first_place(window, at)
        for number, k in enumerate(product(*map(range, kernel))):
            spots, tests = _places(window, at, k)
            inside = _all(tests)
            if inside is False:
                continue
            here = _under(inside, lambda: x.load(lead + spots), -math.inf)
            if best is None:
                best = here
                continue
            wins = ops.logical_or(ops.gt(here, best), ops.isnan(here))
            best = ops.where(wins, here, best)
            place = ops.where(wins, ops.constant(number, torch.int32), place)
        for target, value in zip(targets, (best, place)):
            if target is not None:
                target.store(index, value)

    made = [t for t in targets if t is not None]
    stored = iter(g.loops_into(made, body))
    return [None if t is None else next(stored) for t in targets]


def _first_place(window: _Window, at: Index) -> Any:
    """The first place of a window that is no padding: it is chosen where all elements are -inf."""
    total = ops.constant(0, torch.int32)
    for d, step in enumerate(_steps(window.kernel)):
        for i in range(-(-window.padding[d] // window.dilation[d])):
            inside = _all([("ge", at[d] * window.stride[d] + i * window.dilation[d] - window.padding[d], 0)])
            if inside is not True:
                skipped = ops.constant(step, torch.int32)
                total = ops.add(total, skipped if inside is False else ops.where(inside, ops.constant(0, torch.int32), skipped))
    return total


@lowering("max_pool_positions")
def _max_pool_positions(g: Any, offsets: Tensor, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Lazy:
    n = len(kernel)
    image = g.symbols.sizes(sizes)

    def inner(index: Index) -> Any:
        place, total = ops.to_dtype(offsets.load(index), torch.int64), None
        for d, (step, k) in enumerate(zip(_steps(image), _steps(kernel))):
            within = ops.remainder(ops.floordiv(place, ops.constant(k, torch.int64)), ops.constant(kernel[d], torch.int64))
            corner = _position((index[len(index) - n + d] * stride[d] - padding[d]) * step)
            here = ops.add(ops.mul(within, _position(sympy.sympify(dilation[d] * step))), corner)
            total = here if total is None else ops.add(total, here)
        return total

    return g.lazy(inner, join(offsets.cost, ops=5 * n, heavy=True))


class _Cover(NamedTuple):
    """Along one dimension: a window that may cover an element, the element's place in it, and what must hold for that."""

    window: Expr
    place: Expr
    tests: tuple[Test, ...]


def _covers(window: _Window, d: int, x: Expr) -> list[_Cover]:
    """The windows that may cover position ``x`` of dimension ``d``, in order."""
    kernel, stride, dilation, padded = window.kernel[d], sympy.Integer(window.stride[d]), window.dilation[d], x + window.padding[d]
    found: list[_Cover] = []
    if dilation == 1:
        last, rest = floordiv(padded, stride, ops.ranges), mod(padded, stride, ops.ranges)
        for a in range(-(-kernel // window.stride[d])):
            found.append(_Cover(last - a, rest + a * stride, (("lt", rest + a * stride, kernel),)))
    else:
        for k in range(kernel):
            rest = padded - k * dilation
            whole = mod(rest + kernel * dilation * stride, stride, ops.ranges)  # of what is not negative
            found.append(_Cover(floordiv(rest, stride, ops.ranges), sympy.Integer(k), (("eq", whole, 0), ("ge", rest, 0))))
    return [c._replace(tests=(*c.tests, ("ge", c.window, 0), ("lt", c.window, window.out[d]))) for c in reversed(found)]


@lowering("max_pool_backward")
def _max_pool_backward(g: Any, grad: Tensor, offsets: Tensor, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Lazy:
    n = len(kernel)
    window = _Window(g.symbols.sizes(sizes), grad.sizes[-n:], kernel, stride, padding, dilation)
    readings = math.prod(-(-k // s) for k, s in zip(kernel, stride))
    for operand in (grad, offsets):
        _ready(g, operand, readings, readings)
    dtype, steps = g.dtype, _steps(kernel)
    exact = opmath_dtype(dtype)

    def inner(index: Index) -> Any:
        lead, at = list(index[:-n]), index[-n:]
        total = ops.constant(0.0, exact)
        for covers in product(*[_covers(window, d, x) for d, x in enumerate(at)]):
            place = sympy.Add(*[c.place * step for c, step in zip(covers, steps)])
            spots, inside = lead + [c.window for c in covers], _all([t for c in covers for t in c.tests])
            if inside is False:
                continue

            chosen = ops.eq(ops.to_dtype(_under(inside, lambda: offsets.load(spots), NOWHERE), torch.int32), _position(place, torch.int32))
            share = ops.to_dtype(_under(inside, lambda: grad.load(spots), 0.0), exact)
            total = ops.add(total, ops.where(chosen, share, ops.constant(0.0, exact)))
        return ops.to_dtype(total, dtype)

    return g.lazy(inner, join(grad.cost, offsets.cost, ops=6 * readings, heavy=True))
