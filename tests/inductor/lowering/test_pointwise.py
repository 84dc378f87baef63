import math

import pytest
import torch

from minipt2 import prims as p
from minipt2.inductor.ops import BINARY, UNARY
from minipt2.inductor.lowering import lower

from ..programs import check, graph_of, loops

FLOAT_ONLY = "exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc " \
             "erfinv lgamma digamma sigmoid isnan isinf div atan2 copysign nextafter hypot floor ceil round trunc".split()
INT_ONLY = "bitwise_not bitwise_and bitwise_or bitwise_xor shift_left shift_right".split()


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    fn, x = getattr(p, name), torch.linspace(-0.9, 0.9, 12).reshape(3, 4)
    if name not in INT_ONLY:
        check(fn, x)
        check(fn, torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan]))
    if name not in FLOAT_ONLY:
        check(fn, torch.arange(-4, 4))
    if name in ("exp", "abs", "relu", "tanh"):
        check(fn, x.to(torch.bfloat16))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    fn = getattr(p, name)
    a, b = torch.randn(3, 4), torch.rand(3, 4) + 0.5
    if name not in INT_ONLY:
        check(fn, a.abs() if name == "pow" else a, b)
        check(lambda x: fn(x, 2.0), a)
    if name not in FLOAT_ONLY:
        ints = torch.arange(12).reshape(3, 4)
        check(fn, ints, torch.full((3, 4), 3))
        check(lambda x: fn(x, 3), ints)


def test_number_on_the_left():
    check(lambda x: p.sub(1.0, x), torch.randn(5))


def test_where_convert_bitcast():
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    check(lambda a, b: p.where(p.gt(a, b), a, 0.5), a, b)
    check(lambda a, b: p.where(p.logical_not(p.lt(a, 0.0)), p.convert(a, torch.int64), p.convert(b, torch.int64)), a, b)
    check(lambda a: p.bitcast(a, torch.int32), a)
    check(lambda a: p.bitcast(p.mul(a, 2.0), torch.int16), a.to(torch.bfloat16))
    check(lambda a: p.convert(p.convert(a, torch.bool), torch.float64), torch.tensor([0.0, 1.5, -2.0]))
    check(lambda a: p.isfinite(a), torch.tensor([1.0, math.inf, math.nan]))
    check(lambda a: p.isfinite(a), torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8])
def test_dtypes(dtype):
    x = torch.arange(1, 13).reshape(3, 4).to(dtype)
    check(lambda x, y: p.add(p.mul(x, y), 3), x, x)


def test_creation():
    check(lambda x: p.add(x, p.convert(p.iota(6, 3, 2, torch.int64, x.device), torch.float32)), torch.randn(6))
    check(lambda x: p.mul(x, p.iota(6, 0.5, 0.1, torch.float32, x.device)), torch.randn(6))
    check(lambda x: (p.full((2, 3), 7, torch.int64, x.device), p.full((), -0.0, torch.float32, x.device)), torch.randn(1))


def test_scalars_and_empty():
    check(lambda x, y: p.mul(x, y), torch.tensor(2.0), torch.tensor(3.0))
    check(lambda x: (p.exp(x), p.add(x, 1.0)), torch.randn(0, 4))
    check(lambda x: p.exp(x), torch.randn(1, 1))


def test_memory_order():
    """Results lie as eager's do: channels-last, transposed, and broadcast of the two."""
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    check(lambda x: p.relu(x), image)
    check(lambda x, y: p.add(x, y), torch.randn(4, 3).t(), torch.randn(4, 3).t())
    check(lambda x, y: p.add(x, y), image, torch.randn(2, 3, 4, 5))
    check(lambda x: p.exp(x), torch.randn(4, 8)[:, ::2])
    check(lambda x: p.exp(x), torch.randn(4, 1).expand(4, 3))


def test_channels_last_follows_reads():
    """A realised intermediate takes the order its operands are read in, whatever its recorded strides."""
    def fn(x):
        a = p.exp(x)
        if not isinstance(a, torch.Tensor):
            a.strides = a.node.meta["val"].strides = (60, 20, 5, 1)
        b = p.add(a, 1.0)
        return p.sum(a, (0,)), p.amax(p.mul(a, b), (1,))
    program = check(fn, torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), strides=False)
    assert program.buffers[0].layout.strides == (60, 1, 15, 3)


def test_requested_layout():
    """``meta["layout"]`` on a node is the memory order of its buffer."""
    gm = graph_of(lambda x: (p.sum(p.exp(x), (0,)), p.amax(p.exp(x), (0,))), torch.randn(3, 4))
    next(n for n in gm.graph.nodes if n.name == "exp").meta["layout"] = (1, 3)
    assert lower(gm).buffers[0].layout.strides == (1, 3)


def test_sharing_not_repeated():
    """A value used many times is computed once: doubling x fifty times has fifty additions, not 2**50."""
    def fn(x):
        for _ in range(50):
            x = p.add(x, x)
        return x
    program = check(fn, torch.randn(4))
    assert sum(i.op == "add" for b in loops(program) for i in b.body.instrs) == 50


def test_reuse_realised():
    """Expensive values with several readers are stored once; cheap ones are repeated."""
    assert len(loops(check(lambda x: (p.sum(p.exp(x), (1,)), p.sum(p.mul(p.exp(x), 2.0), (0,))), torch.randn(3, 4)))) == 3
    assert len(loops(check(lambda x: (p.sum(p.neg(x), (1,)), p.sum(p.mul(p.neg(x), 2.0), (0,))), torch.randn(3, 4)))) == 2


def test_origins_and_stack():
    program = check(lambda x: p.mul(p.exp(x), 2.0), torch.randn(3))
    assert set(program.buffers[0].origins) == {"exp", "mul"}
