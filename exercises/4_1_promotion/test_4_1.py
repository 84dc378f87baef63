import itertools

import pytest
import torch

import minipt2
from minipt2.course.checks import same
from minipt2.prims.promote import computation_dtype

DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
          torch.complex64, torch.complex128]
NUMBERS = [True, 3, 2.5, 1j]


def agrees(*xs):
    """With what eager says of the same operands."""
    same(str(computation_dtype(*xs)), str(torch.result_type(*xs)), where=" and ".join(
        f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else repr(x) for x in xs))


def test_pairs_of_tensors():
    """All 144 pairs of dtypes, both with dimensions."""
    for a, b in itertools.product(DTYPES, DTYPES):
        agrees(torch.ones(2, dtype=a), torch.ones(2, dtype=b))


def test_pairs_of_a_tensor_and_a_0d_tensor():
    """A 0-d tensor changes the category at most; in either place."""
    for a, b in itertools.product(DTYPES, DTYPES):
        agrees(torch.ones(2, dtype=a), torch.ones((), dtype=b))
        agrees(torch.ones((), dtype=a), torch.ones(2, dtype=b))
        agrees(torch.ones((), dtype=a), torch.ones((), dtype=b))


def test_numbers():
    """Python numbers come last of all."""
    for a, n in itertools.product(DTYPES, NUMBERS):
        agrees(torch.ones(2, dtype=a), n)
        agrees(torch.ones((), dtype=a), n)
        agrees(n, torch.ones(2, dtype=a))


def test_three_operands():
    """A number against a 0-d tensor against a tensor, as in torch.where or addcmul."""
    found = computation_dtype(torch.ones(2, dtype=torch.bfloat16), torch.ones((), dtype=torch.float64), 2)
    same(str(found), "torch.bfloat16")
    same(str(computation_dtype(torch.ones(2, dtype=torch.int32), torch.ones((), dtype=torch.float16), 1j)), "torch.complex32")


def test_no_operand():
    """There is no dtype of nothing."""
    with pytest.raises(ValueError):
        computation_dtype()


def test_compiled_arithmetic():
    """The whole compiler on your rule: dtypes and numbers of mixed arithmetic as in eager."""
    def fn(x, scalar, wide):
        return x * scalar + 1.5, x / 2, wide - x, x * 2
    for a in (torch.int32, torch.bfloat16, torch.float32):
        args = torch.arange(1, 5).to(a), torch.tensor(3, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
        same(list(minipt2.compile(fn)(*args)), list(fn(*args)), rtol=2e-2)
