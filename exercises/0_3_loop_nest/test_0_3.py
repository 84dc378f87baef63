import ctypes
import re

import pytest
import torch

from minipt2.course import toy
from minipt2.course.checks import fenced, same
from minipt2.course.toy import HEADER, Buf, emit, load, number, pointwise
from minipt2.inductor.cache import compile_c


def run(out, *xs, fmt="({0} * 2 + {1})"):
    """Compile one kernel and run it on the tensors' memory."""
    bufs = [Buf(f"x{k}", tuple(x.shape), x.stride(), x.dtype) for k, x in enumerate(xs)]
    value = pointwise(fmt, *map(load, bufs))
    text = emit("k", Buf("out", tuple(out.shape), out.stride(), out.dtype), value)
    compile_c(HEADER + text).k(*(ctypes.c_void_p(t.data_ptr()) for t in (out, *xs)))
    return out


def test_one_element_too_far_is_seen():
    """The buffers end where the process may not write: overrunning one is a crash, not luck."""
    x, y = fenced((7, 9)), fenced((7, 9))
    x.copy_(torch.randn(7, 9))
    y.copy_(torch.randn(7, 9))
    same(run(fenced((7, 9)), x, y), x * 2 + y)


def test_two_dimensions():
    """Contiguous in and out."""
    x, y = torch.randn(3, 5), torch.randn(3, 5)
    same(run(torch.empty(3, 5), x, y), x * 2 + y)


def test_a_permuted_output():
    """The output's strides decide where elements go, the inputs' where they come from."""
    x, y = torch.randn(3, 5), torch.randn(5, 3).t()
    same(run(torch.empty(5, 3).t(), x, y), x * 2 + y)
    same(run(torch.empty(2, 5, 3).permute(2, 0, 1), torch.ones(3, 2, 5), torch.ones(5)), torch.full((3, 2, 5), 3.0))


def test_broadcast_inputs():
    """A column and a row."""
    x, y = torch.randn(4, 1), torch.randn(3)
    same(run(torch.empty(4, 3), x, y), x * 2 + y)


@pytest.mark.parametrize("shape", [(1,), (1, 4), (4, 1, 2), ()])
def test_sizes_of_one(shape):
    """And a single number, which has no dimension at all."""
    x, y = torch.randn(shape), torch.randn(shape)
    same(run(torch.empty(shape), x, y), x * 2 + y)


def test_empty_tensors_touch_nothing():
    """Sizes of 0: no element, so no load and no store."""
    out = fenced((0, 3))
    run(out, fenced((0, 3)), fenced((3,)))


def test_double():
    """The type is that of the buffers."""
    x, y = torch.randn(6, dtype=torch.float64), torch.randn(6, dtype=torch.float64)
    same(run(torch.empty(6, dtype=torch.float64), x, y), x * 2 + y)


def test_memory_is_walked_in_order():
    """The innermost loop is the one over the dimension with the smallest stride."""
    text = emit("k", Buf("out", (8, 9), (1, 8), torch.float32), number(0.0))
    loops = re.findall(r"for \(long (i\d)", text)
    same(loops, ["i1", "i0"], where="loops from outside in, for strides (1, 8)")


def test_compiled_channels_last():
    """The rest of the toy on your loops."""
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    found = toy.compile(lambda x: torch.relu(x * 2 - 1))(x)[0]
    same(found, torch.relu(x * 2 - 1), stride=True)
