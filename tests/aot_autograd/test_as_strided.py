"""``as_strided`` looks at a storage: in compiled code a value's place in memory is not the one it has in eager."""
import pytest
import torch
import torch.nn.functional as F

import minipt2
from ..compare import check

X = torch.arange(48.0)
CASES = {
    "of a slice, from the storage's start": lambda x: (x + 1)[2:].as_strided((3,), (1,), 0) * 2,
    "of a slice, beyond it": lambda x: (x + 1)[2:5].as_strided((7,), (2,), 20) * 2,
    "of a slice, from its start": lambda x: (x + 1)[2:].as_strided((3,), (1,)) * 2,
    "overlapping windows": lambda x: (x * 2).as_strided((4, 3, 5), (8, 2, 1), 3) + 1,
    "of a permuted value": lambda x: (x * 2).reshape(6, 8).t().as_strided((4, 3, 5), (8, 2, 1), 3) + 1,
    "of an expanded value": lambda x: (x * 2).reshape(48, 1).expand(48, 3).as_strided((4, 3), (2, 1)) + 1,
    "of a channels-last result": lambda x: F.avg_pool2d(x.reshape(1, 4, 4, 3).permute(0, 3, 1, 2), 2).as_strided((2, 3), (2, 1)) + 1,
    "of a value with gaps": lambda x: (x * 2).reshape(6, 8)[:, :4].as_strided((5, 4), (8, 1), 8) + 1,
    "of a written value": lambda x: (y := x * 2, y[3:9].mul_(3), y[1:].as_strided((5, 3), (2, 1), 1) + 1)[2],
    "one element": lambda x: (x * 2).as_strided((), (), 7) + 1,
}


@pytest.mark.parametrize("case", CASES)
def test_value_made_by_the_graph(case):
    check(CASES[case], X.clone().requires_grad_(), grad=True)


def test_views_as_inputs():
    check(lambda x: x.as_strided((3,), (1,)) * 2, X[4:])
    for offset in (0, 2, 6):
        f = lambda x: x.as_strided((3,), (1,), offset) * 2
        torch.testing.assert_close(minipt2.compile(f)(X[4:]), f(X[4:]))
