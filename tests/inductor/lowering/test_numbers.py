"""Python numbers beside half-precision tensors: taken in float32 or rounded first, as eager's kernel of the device does."""
import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor.ir import Computed
from minipt2.inductor.lowering import lower
from minipt2.prims.core import TensorMeta
from tests.inductor.programs import graph_of

HALF = (torch.bfloat16, torch.float16)
CALLS = dict(
    mul=lambda x, y: x * 0.1, first=lambda x, y: 0.1 * x, add=lambda x, y: x + 0.1, sub=lambda x, y: x - 0.1, rsub=lambda x, y: 0.1 - x, div=lambda x, y: x / 0.3,
    floor=lambda x, y: x // 0.1, trunc=lambda x, y: torch.div(x, 0.1, rounding_mode="trunc"), add_alpha=lambda x, y: torch.add(x, y, alpha=0.3),
    both=lambda x, y: torch.add(x, 0.1, alpha=0.3), gt=lambda x, y: x > 0.1, eq=lambda x, y: (x * 0 + 0.1) == 0.1, clamp=lambda x, y: x.clamp(min=0.1) * y,
    where=lambda x, y: torch.where(x > 0, x, 0.1) * y, pad=lambda x, y: F.pad(x, (1, 1), value=0.1) * 3, full=lambda x, y: torch.full_like(x, 0.1) * x,
    fill=lambda x, y: x.masked_fill(x > 0, 0.1) * y, fmod=lambda x, y: torch.fmod(x, 0.1), deg2rad=lambda x, y: torch.deg2rad(x),
    tensor=lambda x, y: x * torch.tensor(0.1), double=lambda x, y: x / torch.tensor(0.3, dtype=torch.float64), tensor_first=lambda x, y: torch.tensor(0.1) * x,
    tensor_added=lambda x, y: x + torch.tensor(0.1), leaky_relu=lambda x, y: F.leaky_relu(x, 0.1), softshrink=lambda x, y: F.softshrink(x, 0.1),
    hardshrink=lambda x, y: F.hardshrink(x, 0.1), foreach=lambda x, y: torch._foreach_mul([x, y], 0.1))


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", HALF)
def test_as_eager_to_the_bit(name, dtype, fresh):
    torch.manual_seed(0)
    x, y = torch.randn(2, 33, 129).to(dtype)
    with torch.no_grad():
        expected, found = CALLS[name](x, y), minipt2.compile(CALLS[name])(x, y)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@pytest.mark.parametrize("dtype", HALF)
def test_numbers_of_the_call(dtype, fresh):
    """A float that varies is an argument of the kernel."""
    x = torch.randn(33, 129).to(dtype)
    for fn in (lambda x, k: x * k, lambda x, k: k * x, lambda x, k: x + k, lambda x, k: k - x, lambda x, k: x / k):
        compiled = minipt2.compile(fn)
        for k in (0.1, 0.3, 0.7):
            with torch.no_grad():
                assert torch.equal(compiled(x, k), fn(x, k))


@pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
@pytest.mark.parametrize("name", ["mul", "first", "div", "floor", "add", "eq", "where", "pad"])
def test_in_triton(name, fresh):
    """In float16: the interpreter cuts bfloat16 off where it should round."""
    pytest.importorskip("triton")
    x, y = torch.randn(2, 33, 129).half()
    with config.patch(triton_interpret=True), torch.no_grad():
        assert torch.equal(minipt2.compile(CALLS[name])(x, y), CALLS[name](x, y))


def _gpu_body(fn, dtype=torch.bfloat16):
    """Operation -> its constants, of the loops for ``fn`` on a GPU."""
    meta = TensorMeta((8, 8), dtype, torch.device("cuda", 0), (8, 1))
    program = lower(graph_of(fn, meta))
    body, = [b.body for b in program.buffers if isinstance(b, Computed)]
    numbers = {i.id: i.args[0] for i in body.instrs if i.op == "constant"}
    return {i.op: [numbers[a.id] for a in i.args if getattr(a, "id", None) in numbers] for i in body.instrs if i.op not in ("load", "store", "constant")}


def test_on_a_gpu():
    """Sums too are of numbers in float32, and a division by a number is a product."""
    rounded = torch.tensor(0.1, dtype=torch.bfloat16).item()
    assert _gpu_body(lambda x: P.mul(x, 0.1)) == {"mul": [0.1]}
    assert _gpu_body(lambda x: P.add(x, 0.1)) == {"add": [0.1]}
    assert _gpu_body(lambda x: P.sub(0.1, x)) == {"sub": [0.1]}
    assert _gpu_body(lambda x: P.remainder(x, 0.1)) == {"remainder": [rounded]}
    assert _gpu_body(lambda x: P.floordiv(x, 0.1)) == {"floordiv": [0.1]}
    assert _gpu_body(lambda x: P.div(x, 0.3)) == {"mul": [torch.tensor(0.3).reciprocal().item()]}
    assert _gpu_body(lambda x: P.div(x, 0.3), torch.float64) == {"mul": [1 / 0.3]}
    assert _gpu_body(lambda x: P.div(x, 0.0)) == {"mul": [float("inf")]}


def test_a_reciprocal_that_overflows_is_not_taken():
    assert _gpu_body(lambda x: P.div(x, 1e-40), torch.float32) == {"div": [1e-40]}
