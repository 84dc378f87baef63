"""Calls of every prim, for tests of meta rules, references and backends: ``calls(name)`` gives tuples of positional arguments."""
from __future__ import annotations

import functools
import math
from typing import Any, Iterator

import torch

from minipt2.prims import TABLE

CPU = torch.device("cpu")
FLOATS = torch.tensor([[-2.5, -1.0, -0.3, -0.0], [0.0, 0.4, 0.5, 1.0], [1.5, 2.0, 3.7, 8.0]])
SPECIAL = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -1.0])
INTS, OTHER_INTS = torch.tensor([[-7, -1, 0, 5], [2, 3, 9, -4]]), torch.tensor([[2, 3, -2, 5], [1, -3, 4, 2]])
BOOLS = INTS > 0
POSITIVE = torch.tensor([[0.1, 0.25, 0.5], [0.75, 0.9, 1.5]])
DEGREES = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
INTEGERS = frozenset("gcd bitwise_and bitwise_or bitwise_xor bitwise_not shift_left shift_right".split())
FLOAT_ONLY = frozenset("""div copysign nextafter hypot atan2 reciprocal rsqrt isinf isfinite isnan floor ceil round trunc sigmoid relu
    fmax fmin""".split())


def calls(name: str) -> list[tuple[Any, ...]]:
    """Arguments to call the prim of that name with; at least one tuple."""
    listed = [args for other, args in _listed() if other == name]
    return listed or list(_elementwise(name))


def _elementwise(name: str) -> Iterator[tuple[Any, ...]]:
    if "polynomial" in name or name in ("zeta", "igamma", "igammac"):
        yield (POSITIVE + (1.5 if name == "zeta" else 0), DEGREES + 1)
        yield (POSITIVE.double(), 2.0)
        return
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


@functools.cache
def _listed() -> tuple[tuple[str, tuple[Any, ...]], ...]:
    return tuple(_calls())


def _calls() -> Iterator[tuple[str, tuple[Any, ...]]]:
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
    yield "valid", (m, m == m)
    yield "where", (m > 0, m, 1.5)
    yield "valid", (m, m == m)
    yield "where", (m > 0, 1.5, m)
    yield "where", (m > 0, m, m + 1)
    yield "convert", (m, torch.int64)
    yield "convert", (FLOATS, torch.bool)
    yield "convert", (INTS, torch.float32)
    yield "bitcast", (m, torch.int32)
    yield from (("digamma", (POSITIVE,)), ("digamma", (FLOATS,)), ("digamma", (SPECIAL,)))
    yield from _ordering(x)
    yield from _random()
    yield from _linear_algebra(torch.randn(2, 4, 3), torch.randn(2, 3, 3))
    yield from _convolutions()
    yield from _pooling()


def _pooling() -> Iterator[tuple[str, tuple[Any, ...]]]:
    image = torch.randn(2, 3, 5, 6).to(memory_format=torch.channels_last)
    cases = [(image, (3, 3), (2, 2), (1, 1), (1, 1), False), (image.contiguous(), (2, 3), (1, 2), (0, 1), (2, 1), True),
             (torch.full((3, 4, 5), -math.inf), (2, 2), (2, 2), (1, 1), (1, 1), False),
             (torch.randn(1, 2, 3, 4, 5).round(), (2, 1, 2), (1, 1, 2), (1, 0, 0), (1, 1, 1), True)]
    for x, *window, ceil_mode in cases:
        values, offsets = TABLE["max_pool"].ref(x, *window, ceil_mode)
        sizes = tuple(x.shape[-len(window[0]):])
        yield "max_pool", (x, *window, ceil_mode)
        yield "max_pool_positions", (offsets, sizes, *window)
        yield "max_pool_backward", (torch.randn_like(values), offsets, sizes, *window)


def _ordering(x: torch.Tensor) -> Iterator[tuple[str, tuple[Any, ...]]]:
    ties = torch.tensor([[2.0, 1.0, math.nan, 2.0, -math.inf, 1.0], [0.0, 0.0, 3.0, -1.0, 3.0, 3.0]])
    yield "sort", (ties, 1, False)
    yield "sort", (x.permute(1, 0, 2), 0, True)
    ordered = torch.tensor([[0.0, 1.0, 1.0, 4.0], [-1.0, 2.0, 3.0, 3.0]])
    yield "searchsorted", (ordered, ties[:, :3].nan_to_num(), False)
    yield "searchsorted", (ordered[0], ties[:, 3:], True)
    for name in ("cumprod", "logcumsumexp", "cummax", "cummin"):
        yield name, (x, 1)
        yield name, (ties, 1)
    at, src = torch.tensor([[0, 1, 0], [2, 2, 1]]), POSITIVE + 1
    for how in ("sum", "prod", "mean", "amax", "amin"):
        yield "scatter_reduce", (torch.ones(3, 3), 0, at, src, how, how != "prod")


def _linear_algebra(tall: torch.Tensor, square: torch.Tensor) -> Iterator[tuple[str, tuple[Any, ...]]]:
    positive = square @ square.mT + torch.eye(3)
    yield "cholesky", (positive, False)
    yield "cholesky", (positive[0], True)
    for x in (tall, square, tall.mT.contiguous()):
        yield "lu_factor", (x,)
        yield "geqrf", (x,)
        yield "svd", (x, False)
        yield "svd", (x, True)
        for mode in ("reduced", "complete", "r"):
            yield "qr", (x, mode)
    yield "householder_product", torch.geqrf(tall)
    yield "eigh", (positive, True)
    yield "matrix_exp", (square,)
    yield "solve_triangular", (square.triu() + 3 * torch.eye(3), tall.mT.contiguous(), True, True, False)
    yield "solve_triangular", (square.tril(), tall, False, False, True)


def _random() -> Iterator[tuple[str, tuple[Any, ...]]]:
    yield from (("rand", ((2, 3), torch.float32, CPU)), ("randn", ((2, 3), torch.float64, CPU)), ("randperm", (5, torch.int64, CPU)),
                ("randint", (-2, 7, (4,), torch.int32, CPU)), ("bernoulli", (torch.rand(3, 4),)),
                ("bernoulli_number", ((3, 4), 0.25, torch.float32, CPU)), ("poisson", (POSITIVE,)), ("standard_gamma", (POSITIVE,)),
                ("binomial", (DEGREES, POSITIVE.clamp(max=1))), ("multinomial", (POSITIVE, 2, False)), ("random_seed", (CPU,)),
                ("random_bits", (torch.tensor(7), 1, (3, 4))))


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
