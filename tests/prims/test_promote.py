"""Three-tier type promotion against eager's own."""
import itertools

import pytest
import torch

from minipt2.prims import Kind, result_dtype
from minipt2.prims.promote import lossless

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
          torch.float64, torch.complex64, torch.complex128]
NUMBERS = [True, 2, 2.5, 1 + 2j]


@pytest.mark.parametrize("a,b", list(itertools.product(DTYPES, DTYPES)))
def test_pairs_of_tensors(a, b):
    for shape_a, shape_b in [((2,), (2,)), ((), (2,)), ((2,), ()), ((), ())]:
        x, y = torch.empty(shape_a, dtype=a), torch.empty(shape_b, dtype=b)
        assert result_dtype(x, y) is torch.result_type(x, y)


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_tensor_and_number(a, number):
    for shape in [(2,), ()]:
        x = torch.empty(shape, dtype=a)
        assert result_dtype(x, number) is torch.result_type(x, number)
        assert result_dtype(number, x) is torch.result_type(number, x)


def test_kinds():
    ints, half = torch.ones(2, dtype=torch.int32), torch.ones(2, dtype=torch.float16)
    assert result_dtype(ints, 2, kind=Kind.INT_TO_FLOAT) is torch.float32
    assert result_dtype(half, ints, kind=Kind.INT_TO_FLOAT) is torch.float16
    assert result_dtype(ints, half, kind=Kind.BOOL) is torch.bool
    assert result_dtype(ints > 0, kind=Kind.BOOL_TO_INT) is torch.int64


@pytest.mark.parametrize("a,b", list(itertools.product(DTYPES[:10], DTYPES[:10])))
def test_lossless_claims_hold(a, b):
    if not lossless(a, b) or a is b:
        return
    if a.is_floating_point:
        info = torch.finfo(a)
        values = torch.tensor([info.max, info.min, info.tiny, 1 + info.eps], dtype=a)
    elif a is torch.bool:
        values = torch.tensor([True, False])
    else:
        info = torch.iinfo(a)
        values = torch.tensor([info.min, info.max, info.max - 1], dtype=a)
    assert torch.equal(values.to(b).to(a), values)
