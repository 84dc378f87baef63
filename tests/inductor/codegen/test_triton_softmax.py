"""One division a row in a softmax: where, and no less exact."""
import pytest
import torch

from minipt2 import prims as P
from tests.inductor.codegen.test_triton import generated, run
from tests.inductor.scheduler.test_fusion import softmax

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_a_softmax_multiplies_by_the_inverse():
    text = generated(softmax, torch.randn(70, 130))[1].text
    assert text.count(" / ") == 1 and "1.0 / v" in text


@pytest.mark.parametrize("length", [1, 130, 33000])
def test_no_less_exact(length):
    """Rows of one element, of -inf, with NaN and infinities; and against float64."""
    torch.manual_seed(0)
    x = torch.randn(6, length) * 20
    x[1, 0], x[2, -1], x[3] = float("nan"), float("inf"), float("-inf")
    x[4] = 3e38
    found, = run(softmax, x)
    exact, eager = torch.softmax(x.double(), -1), torch.softmax(x, -1)
    torch.testing.assert_close(found, eager, rtol=1e-6, atol=0.0 if length == 1 else 1e-9, equal_nan=True)
    assert (found.double() - exact)[[0, 4, 5]].norm() <= 1.5 * (eager.double() - exact)[[0, 4, 5]].norm() + 1e-7


def test_other_quotients_stay():
    """A sum that may be any number, and float64, which divides exactly."""
    mean = generated(lambda u: P.div(u, P.broadcast_in_dim(P.sum(u, [1]), u.shape, [0])), torch.randn(70, 130))[1].text
    assert "1.0 /" not in mean and " / " in mean
    assert "1.0 /" not in generated(softmax, torch.randn(70, 130, dtype=torch.float64))[1].text
