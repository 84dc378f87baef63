"""Calls of every prim, for tests of meta rules, references and backends: ``calls(name)`` gives tuples of positional arguments."""
from __future__ import annotations

import math
from typing import Any, Iterator

import torch

from minipt2.prims import TABLE

CPU = torch.device("cpu")
FLOATS = torch.tensor([[-2.5, -1.0, -0.3, -0.0], [0.0, 0.4, 0.5, 1.0], [1.5, 2.0, 3.7, 8.0]])
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0])
INTS, OTHER_INTS = torch.tensor([[-7, -1, 0, 5], [2, 3, 9, -4]]), torch.tensor([[2, 3, -2, 5], [1, -3, 4, 2]])
BOOLS = INTS > 0
INTEGERS = frozenset("bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right".split())
FLOAT_ONLY = frozenset("""div copysign nextafter hypot atan2 reciprocal rsqrt isinf isfinite isnan floor ceil round trunc sigmoid relu
    fmax fmin""".split())


def calls(name: str) -> list[tuple[Any, ...]]:
    """Arguments to call the prim of that name with; at least one tuple."""
    listed = [args for other, args in _listed() if other == name]
    return listed or list(_elementwise(name))


def _elementwise(name: str) -> Iterator[tuple[Any, ...]]:
    if TABLE[name].parameters == 1:
        if name in INTEGERS:
            yield from ((INTS,), (BOOLS,))
            return
        yield from ((FLOATS.t(),), (SPECIAL,), (FLOATS.double(),), (FLOATS[0, 1],))
        if name in ("abs", "neg", "sign", "signbit"):
            yield INTS,
        return
    if name in INTEGERS:
        shift = OTHER_INTS.abs() if name.startswith("shift") else OTHER_INTS
        yield from ((INTS, shift), (INTS, 2), (5, shift))
        return
    floats = FLOATS.t().contiguous().t()
    yield from ((FLOATS, floats.flip(0) + 0.25), (FLOATS, 2.0), (1.5, FLOATS), (SPECIAL, SPECIAL.flip(0)), (FLOATS[0], FLOATS.double()[0].float()))
    if name not in FLOAT_ONLY:
        yield INTS, OTHER_INTS.abs() if name == "pow" else OTHER_INTS


def _listed() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """One or more calls for each prim that is not elementwise."""
    torch.manual_seed(0)
    x, m = torch.randn(2, 3, 4), torch.randn(3, 4)
    at = torch.tensor([[0, 1], [1, 0]])
    yield "broadcast_in_dim", (m, (3, 5, 4), (0, 2))
    yield "reshape", (x.permute(2, 0, 1), (8, 3))
    yield "permute", (x, (2, 0, 1))
    yield "slice", (x, (0, 1, 0), (2, 3, 4), (1, 1, 3))
    yield "flip", (x, (0, 2))
    yield "cat", ((x, x), 1)
    yield "pad", (x, (0, 1, -1), (2, 0, 1), 3.0)
    yield "copy_strided", (x, (1, 2, 6))
    yield "full", ((2, 3), 7, torch.int32, CPU)
    yield "iota", (5, 2, 3, torch.float64, CPU)
    yield "gather", (m, 1, at)
    yield "index_select", (x, 1, torch.tensor([2, 0, 2, 1]))
    yield "index", (x, (at, None, at - 1))
    yield "index", (x, (None, at))
    yield "scatter", (m, 1, at, torch.ones(2, 2))
    yield "scatter_add", (m, 0, torch.tensor([[0, 1], [0, 2]]), torch.ones(2, 2))
    yield "index_put", (x, (None, at), torch.ones(2, 2, 2, 4), True)
    yield "index_put", (x, (torch.tensor([1]), None, torch.tensor([2])), torch.ones(1, 3), False)
    for name in ("sum", "prod", "amax", "amin"):
        yield name, (x, (0, 2), False)
        yield name, (x, (1,), True)
        yield name, (INTS, (1,), False)
    yield "any", (x > 0, (0, 1), False)
    yield "all", (x > 0, (0, 1), True)
    for name in ("argmax", "argmin"):
        yield name, (x, 1, False)
        yield name, (x, None, False)
        yield name, (SPECIAL, 0, True)
    yield "var_mean", (x, (0, 2), 1.0, True)
    yield "var_mean", (x + 1e3, (1,), 0.0, False)
    yield "cumsum", (x, 1)
    yield "mm", (m, m.t())
    yield "bmm", (x, x.transpose(1, 2))
    yield "addmm", (torch.ones(3), m, m.t(), 1, 2)
    yield "addmm", (torch.full((3,), math.nan), m, m.t(), 0, 1)
    yield "baddbmm", (torch.ones(3), x, x.transpose(1, 2), 0.5, 1)
    yield "where", (m > 0, m, 1.5)
    yield "valid", (m, m == m)
    yield "where", (m > 0, 1.5, m)
    yield "where", (m > 0, m, m + 1)
    yield "convert", (m, torch.int64)
    yield "convert", (FLOATS, torch.bool)
    yield "convert", (INTS, torch.float32)
    yield "bitcast", (m, torch.int32)
    yield from _convolutions()


def _convolutions() -> Iterator[tuple[str, tuple[Any, ...]]]:
    image, weight = torch.randn(2, 4, 6, 7).to(memory_format=torch.channels_last), torch.randn(6, 2, 3, 2)
    line, volume = torch.randn(2, 3, 9), torch.randn(1, 2, 4, 5, 4)
    down = torch.randn(4, 3, 2, 3)
    cases = [(image, weight, (2, 1), (1, 0), (1, 2), False, (0, 0), 2), (line, torch.randn(4, 3, 3), (2,), (1,), (1,), False, (0,), 1),
             (volume, torch.randn(3, 2, 2, 3, 2), (1, 2, 1), (0, 1, 1), (2, 1, 1), False, (0, 0, 0), 1),
             (image, down, (2, 2), (1, 1), (1, 1), True, (1, 0), 2), (line, torch.randn(3, 2, 3), (2,), (0,), (2,), True, (1,), 1),
             (image, down, (1, 2), (0, 1), (3, 1), True, (2, 1), 2)]
    for x, w, *rest in cases:
        out = torch.ops.aten.convolution.default(x, w, None, *rest)
        bias = (w.shape[1] * rest[-1] if rest[4 - 1] else w.shape[0],)
        yield "convolution", (x, w, torch.randn(bias), *rest)
        yield "convolution_backward", (torch.randn_like(out), x, w, bias, *rest, (True, True, True))
    yield "convolution_backward", (torch.randn_like(out), x, w, None, *rest, (False, True, False))
