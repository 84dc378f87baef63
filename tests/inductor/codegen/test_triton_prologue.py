"""Loops before a contraction, done where its template loads an operand: against float64 under Triton's interpreter, and what stays outside."""
import importlib
from dataclasses import asdict

import pytest
import torch
from torch import nn

from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.codegen.triton_template import Tile
from minipt2.inductor.hardware import REFERENCE, TINY
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from minipt2.inductor.scheduler.operands import prologues
from minipt2.inductor.scheduler.templates import Template
from tests.compare import check_module
from tests.inductor.codegen.written import check_golden, check_machine_code
from tests.inductor.programs import graph_of
from tests.inductor.templates import check, run, templated

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
TILE = Tile(32, 32, 16)


@pytest.fixture(autouse=True)
def interpreted():
    torch.manual_seed(0)
    with config.patch(triton_interpret=True):
        yield


def made(plan):
    """The operands that the templates of a schedule make themselves."""
    return [name for k in plan.kernels if isinstance(k, Template) for name, _ in prologues(k.contraction)]


def whole(v, like, *dims):
    return P.broadcast_in_dim(v, tuple(like.shape), dims)


def bytes_of(*shape):
    return torch.randint(-128, 128, shape, dtype=torch.int8)


def dequantised(w, scale, dtype):
    """A weight (columns, k) of bytes with a scale for each column, as a matrix (k, columns)."""
    return P.permute(P.convert(P.mul(P.convert(w, torch.float32), whole(scale, w, 0)), dtype), (1, 0))


def linear(x, w, scale, bias):
    return P.relu(P.addmm(bias, x, dequantised(w, scale, x.dtype)))


def layer(m, n, k, dtype=torch.float32):
    return torch.randn(m, k).to(dtype), bytes_of(n, k), torch.rand(n), torch.randn(n).to(dtype)


@pytest.mark.parametrize("tile", [TILE, Tile(16, 64, 32), Tile(16, 16, 16, split=3)], ids=str)
@pytest.mark.parametrize("sizes", [(33, 70, 50), (1, 33, 7), (64, 32, 64), (65, 1, 16)], ids=str)
def test_a_weight_of_bytes_is_dequantised_in_the_product(sizes, tile):
    plan, _ = check(linear, *layer(*sizes), tile=tile)
    assert made(plan) == ["rhs"] and len(plan.steps) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_as_the_library_reads_them(dtype):
    x, w, scale, bias = layer(20, 40, 100, dtype)
    plan, source = templated(linear, x, w, scale, bias)
    assert made(plan) == ["rhs"]
    rounded = (w.float() * scale[:, None]).to(dtype)
    expected = torch.relu(x.double() @ rounded.double().t() + bias.double())
    found, = run(plan, source, [x, w, scale, bias])
    assert (found.double() - expected).abs().max() <= 2 * torch.finfo(dtype).eps * expected.abs().max()


def test_rows_of_several_loops_and_a_value_for_each_summand():
    """The loops of the left operand walk (2, 5, 12) where the product has 10 rows; the scale depends on k alone."""
    def fn(x, s, w):
        return P.mm(P.reshape(P.mul(P.permute(x, (1, 0, 2)), whole(s, P.permute(x, (1, 0, 2)), 2)), (10, 12)), w)
    plan, _ = check(fn, torch.randn(5, 2, 12), torch.randn(12), torch.randn(12, 40))
    assert made(plan) == ["lhs"]


def test_both_operands():
    def fn(x, w):
        return P.mm(P.relu(x), P.convert(w, x.dtype))
    plan, _ = check(fn, torch.randn(40, 33), bytes_of(33, 20))
    assert made(plan) == ["lhs", "rhs"] and len(plan.steps) == 1


def test_batches():
    def fn(x, w, s):
        return P.bmm(x, P.mul(P.convert(w, torch.float32), whole(s, w, 0, 2)))
    plan, _ = check(fn, torch.randn(3, 20, 17), bytes_of(3, 17, 40), torch.rand(3, 40))
    assert made(plan) == ["rhs"]


def test_one_number_for_all():
    def fn(x, s, w):
        return P.mm(x, whole(P.mul(s, 2.0), w))
    check(fn, torch.randn(20, 17), torch.tensor(3.0), torch.empty(17, 40))


def test_infinities_beyond_the_edge_do_no_harm():
    """What is made of the zeros beyond k would be infinite."""
    def fn(x, w):
        return P.mm(P.reciprocal(x), w)
    plan, _ = check(fn, torch.rand(20, 17) + 1, torch.randn(17, 20))
    assert made(plan) == ["lhs"]


STAYS = {
    "somebody else reads the operand": lambda x, w: (P.mm(P.relu(x), w), P.sum(P.relu(x), (0,))),
    "it is a result": lambda x, w: (P.mm(P.relu(x), w), P.relu(x)),
    "twice the bytes": lambda x, w: (P.mm(P.add(x, P.permute(x, (1, 0))), w),),
    "it is reduced": lambda x, w: (P.mm(P.div(x, whole(P.sum(x, (1,)), x, 0)), P.cumsum(w, 0)),),
    "dear": lambda x, w: (P.mm(P.erf(P.exp(P.sin(P.cos(P.tanh(x))))), w),),
}


@pytest.mark.parametrize("why", STAYS)
def test_what_stays_outside(why):
    x, w = torch.rand(20, 20) + 1, torch.randn(20, 40)
    plan, source = templated(STAYS[why], x, w)
    assert "lhs" not in made(plan)
    for found, wanted in zip(run(plan, source, [x, w]), STAYS[why](x.double(), w.double()), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-4)


def test_loops_between_two_products_go_behind_the_first():
    def fn(x, w, v):
        return P.mm(P.relu(P.mm(x, w)), v)
    plan, _ = check(fn, torch.randn(20, 30), torch.randn(30, 40), torch.randn(40, 20), templates=2)
    assert made(plan) == [] and len(plan.steps) == 2


def test_what_a_prologue_reads_is_not_overwritten_by_what_comes_after():
    """A result as large as the operand is not put in the memory of what every program reads; an update waits for all programs."""
    def fn(x, w):
        return P.relu(P.mm(P.mul(x, 2.0), w))
    plan, _ = check(fn, torch.randn(40, 40), torch.randn(40, 40))
    assert made(plan) == ["lhs"] and not plan.inplace
    tensors = torch.randn(40, 40), torch.randn(40, 40)
    gm = graph_of(lambda x, w: (fn(x, w),), *tensors)
    gm.meta["mutated_inputs"] = {0: 0}
    plan = schedule(lower(gm), GPU, lambda cs, _: [TILE] * len(cs))
    assert all(k.operands().isdisjoint(k.writes()) for k in plan.kernels if isinstance(k, Template))
    expected = fn(*tensors)
    run(plan, codegen.generate(plan, TINY), tensors)
    torch.testing.assert_close(tensors[0], expected, rtol=1e-5, atol=1e-4)


class Quantised(nn.Module):
    """A linear layer that keeps its weight as bytes."""

    def __init__(self, inside, out):
        super().__init__()
        self.register_buffer("weight", bytes_of(out, inside))
        self.register_buffer("scale", torch.rand(out) / 100)
        self.bias = nn.Parameter(torch.randn(out))

    def forward(self, x):
        return nn.functional.linear(x, self.weight.to(x.dtype) * self.scale[:, None], self.bias)


def test_a_quantised_model_matches_eager(fresh, monkeypatch):
    compiler = importlib.import_module("minipt2.inductor.compile")
    monkeypatch.setattr(compiler, "_chooser", lambda device: lambda candidates, _: [TILE] * len(candidates))
    model = nn.Sequential(Quantised(40, 24), nn.ReLU(), Quantised(24, 10)).requires_grad_(False)
    with config.patch(freeze=False):
        check_module(model, torch.randn(2, 7, 40), grad=False)


def shown():
    tensors = [torch.empty(s, dtype=d, device="meta") for s, d in (((64, 100), torch.bfloat16), ((48, 100), torch.int8), ((48,), torch.float32),
                                                                  ((48,), torch.bfloat16))]
    return templated(linear, *tensors, tile=Tile(16, 32, 32), hw=REFERENCE)[1]


def test_golden():
    check_golden("mm_of_bytes", shown().text)


@pytest.mark.slow
def test_machine_code_for_two_generations():
    check_machine_code(f for capability in (80, 90) for f in triton_pool.submit([asdict(p) for p in shown().programs], capability))
