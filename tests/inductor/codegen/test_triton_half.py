"""Cheaper functions in kernels that round to half: as exact as eager where it counts, and nowhere else."""
import math

import pytest
import torch

from minipt2 import prims as P
from minipt2.prims.decompositions import decompositions
from minipt2.inductor import triton_pool
from tests.inductor.codegen.test_triton import generated, run

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
aten = torch.ops.aten
ENDS = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-6, -1e-6, 30.0, -30.0, 3e38, -3e38])


def gelu(approximate="none"):
    return lambda x: decompositions[aten.gelu.default](x, approximate=approximate)


def gelu_backward(approximate="none"):
    return lambda g, x: decompositions[aten.gelu_backward.default](g, x, approximate=approximate)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_no_worse_than_eager_at_any_size_of_value(dtype, approximate):
    """Against float64, element by element, tails included: twice the rounding of a half."""
    x = torch.cat([torch.linspace(-9, 9, 4000), torch.logspace(-8, 0, 200), ENDS[:7]]).to(dtype)
    found, = run(gelu(approximate), x)
    exact = torch.nn.functional.gelu(x.double(), approximate=approximate)
    eager = torch.nn.functional.gelu(x, approximate=approximate).double()
    finite = exact.isfinite()
    step = exact.abs() * torch.finfo(dtype).eps + 1e-8
    worse = (found.double() - exact).abs() - (eager - exact).abs()
    assert (worse[finite] <= step[finite]).all()
    assert torch.equal(found[~finite].isnan(), exact[~finite].isnan())  # eager's half of infinity is NaN where it runs on AVX-512


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gradients(approximate):
    x = torch.cat([torch.linspace(-9, 9, 1000), ENDS[:7]]).to(torch.bfloat16)
    g = torch.linspace(0.5, 2, len(x)).to(torch.bfloat16)
    found, = run(gelu_backward(approximate), g, x)
    exact, eager = (aten.gelu_backward(g.to(d), x.to(d), approximate=approximate).double() for d in (torch.float64, torch.bfloat16))
    finite = exact.isfinite()
    assert ((found.double() - exact).abs()[finite] <= 2 * (eager - exact).abs()[finite] + 0.008 * exact.abs()[finite] + 1e-5).all()


def one_plus(fn):
    return lambda x: P.convert(P.add(fn(P.convert(x, torch.float32)), 1.0), torch.float16)


def test_the_sum_does_not_cancel():
    x = torch.linspace(-2.5, 0, 100).half()
    found, = run(one_plus(P.erf), x)
    torch.testing.assert_close(found.double(), 1 + torch.erf(x.double()), rtol=1e-3, atol=1e-7)
    found, = run(one_plus(P.tanh), x)
    torch.testing.assert_close(found.double(), 1 + torch.tanh(x.double()), rtol=1e-3, atol=1e-7)


def text(fn, *tensors):
    return generated(fn, *tensors)[1].text


@pytest.mark.parametrize("fn, cheap", [
    (one_plus(P.erf), True),
    (lambda x: P.convert(P.erf(P.convert(x, torch.float32)), torch.float16), False),  # near 0 a relative error would be large
    (lambda x: P.convert(P.add(P.erf(P.convert(x, torch.float32)), 1e-3), torch.float16), False),
    (lambda x: P.add(P.erf(P.convert(x, torch.float32)), 1.0), False),  # a float32 result
    (lambda x: [one_plus(P.erf)(x), P.convert(P.erf(P.convert(x, torch.float32)), torch.float16)], False),
    (lambda x: P.convert(P.sub(1.0, P.mul(*[P.tanh(P.convert(x, torch.float32))] * 2)), torch.float16), True),
    (lambda x: P.convert(P.mul(*[P.tanh(P.convert(x, torch.float32))] * 2), torch.float16), False),
])
def test_only_beside_numbers_of_about_one(fn, cheap):
    assert ("one_plus" in text(fn, torch.zeros(100, dtype=torch.float16))) == cheap


def test_along_rows():
    """After a reduction, and as part of one."""
    def fn(x):
        v = P.convert(x, torch.float32)
        v = P.sub(v, P.broadcast_in_dim(P.sum(v, [1]), v.shape, [0]))
        w = P.add(P.erf(v), 1.0)
        return P.convert(w, torch.float16), P.convert(P.sum(w, [1]), torch.float16)
    x = torch.randn(5, 40).half()
    assert "one_plus_erf" in text(fn, x)
    v = x.double() - x.double().sum(1, keepdim=True)
    whole, total = run(fn, x)
    torch.testing.assert_close(whole.double(), 1 + torch.erf(v), rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(total.double(), (1 + torch.erf(v)).sum(1), rtol=1e-3, atol=1e-3)
    assert math.isfinite(float(total.sum()))


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_machine_code(capability):
    source = generated(lambda x: [gelu()(x), gelu("tanh")(x)], torch.zeros(1000, dtype=torch.bfloat16))[1]
    for made in triton_pool.submit([vars(p) for p in source.programs], capability):
        assert made.result()[0][:4] == b"\x7fELF"
