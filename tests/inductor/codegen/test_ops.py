"""Every op of the loop IR in every dtype against eager, special values included."""
import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor.codegen.c_openmp import generate
from minipt2.inductor.codegen.c_openmp_values import BAD_DIVISOR, BAD_VALUE
from minipt2.inductor.lowering import lower
from minipt2.inductor.ops import BINARY, UNARY
from minipt2.inductor.scheduler import schedule
from tests.inductor.execute import check, execute, graph_of

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
INT_UNARY = "abs neg sign bitwise_not logical_not relu".split()
INT_BINARY = ("add sub mul maximum minimum eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor logical_and logical_or "
              "shift_left shift_right").split()
NOT_FLOAT = frozenset("bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right truncdiv".split())
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, float("inf"), float("-inf"), float("nan"), 88.0, -88.0, 1e-30, 3e4, -104.5]
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}


def floats(dtype: torch.dtype, n: int = 67) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.cat([torch.randn(n, generator=g, dtype=torch.float64) * 2, torch.rand(n, generator=g, dtype=torch.float64),
                      torch.tensor(SPECIAL, dtype=torch.float64)]).to(dtype)


def ints(dtype: torch.dtype, n: int = 150) -> torch.Tensor:
    g = torch.Generator().manual_seed(1)
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -2**31), min(info.max, 2**31 - 1), (n,), generator=g).to(dtype)
    x[:4] = torch.tensor([0, 1, info.max, info.min], dtype=torch.int64).to(dtype)
    return x


def together(names, *tensors):
    """One program with an output for each op."""
    return lambda *xs: tuple(getattr(P, n)(*xs) for n in names)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_floats(dtype):
    names = [n for n in UNARY if n not in NOT_FLOAT and hasattr(P, n)]
    if dtype not in (torch.float32, torch.float64):
        names = [n for n in names if n not in ("digamma", "erfinv", "lgamma", "signbit")]
    check(together(names), floats(dtype), rtol=TOLERANCE.get(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_binary_floats(dtype):
    names = [n for n in BINARY if n not in NOT_FLOAT and hasattr(P, n)]
    if dtype not in (torch.float32, torch.float64):
        names = [n for n in names if n not in ("nextafter", "fmod", "remainder", "floordiv")]  # rounded step by step in eager
    x = floats(dtype)
    y = x[torch.randperm(len(x), generator=torch.Generator().manual_seed(3))].clone()
    check(together(names), x, y, rtol=TOLERANCE.get(dtype))


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integers(dtype):
    x = ints(dtype)
    y = x.flip(0).contiguous()
    shifts = (x % 7).abs()
    unary = [n for n in INT_UNARY if not (n in ("abs", "neg", "relu") and dtype is torch.uint8)]
    check(lambda a, b, s: (*together(unary)(a), *together([n for n in INT_BINARY if "shift" not in n])(a, b),
                           P.shift_left(a, s), P.shift_right(a, s)), x, y, shifts)


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integer_division(dtype):
    x, y = ints(dtype), ints(dtype).flip(0).contiguous()
    y[y == 0] = 3
    x[x == torch.iinfo(dtype).min] = 5  # eager traps on min // -1
    names = [n for n in ("floordiv", "truncdiv", "fmod", "remainder") if hasattr(P, n)]
    check(together(names), x, y)


def test_bool():
    a, b = torch.tensor([0, 0, 1, 1] * 9, dtype=torch.bool), torch.tensor([0, 1] * 18, dtype=torch.bool)
    check(lambda x, y: (P.logical_and(x, y), P.logical_or(x, y), P.logical_not(x), P.bitwise_xor(x, y), P.bitwise_not(x), P.eq(x, y)), a, b)


@pytest.mark.parametrize("source", [*FLOATS, *INTS, torch.bool], ids=str)
def test_convert(source):
    if source is torch.bool:
        x = torch.tensor([True, False] * 9)
    elif source.is_floating_point:
        x = torch.linspace(-100, 100, 33, dtype=torch.float64).to(source)  # in range of every target
    else:
        x = ints(source)
    targets = [t for t in (*FLOATS, *INTS, torch.bool) if not (source.is_floating_point and t is torch.uint8)]
    check(lambda a: tuple(P.convert(a, t) for t in targets), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_round_as_eager(dtype):
    """Every bit pattern survives a round trip; every float rounds to nearest even."""
    every = torch.arange(-2**15, 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    check(lambda a: P.convert(a, torch.float32), every, rtol=1e-12)
    near = every.float()
    near = torch.cat([near, near * (1 + 2**-9), near * (1 - 2**-12), near + 3e-8])
    check(lambda a: P.convert(a, dtype), near, rtol=1e-12)


def test_exp_is_right_to_the_last_bits():
    x = torch.cat([torch.linspace(-110, 90, 40001), torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0])])
    s, source = check(lambda a: P.exp(a), x, rtol=3e-7)
    assert "mp_expf" in source.text


def test_zero_divisor_sets_the_flag():
    x, y = torch.tensor([5, 6]), torch.tensor([0, 2])
    s = schedule(lower(graph_of(lambda a, b: P.floordiv(a, b), x, y)))
    _, error = execute(s, generate(s), [x, y])
    assert error == BAD_DIVISOR


def test_a_value_that_is_not_valid_sets_the_flag():
    x = torch.arange(37.0)
    f = lambda a: P.valid(P.mul(a, 2.0), P.ge(a, 0.0))  # noqa: E731
    check(f, x)
    s = schedule(lower(graph_of(f, x)))
    assert execute(s, generate(s), [x - 1])[1] == BAD_VALUE
