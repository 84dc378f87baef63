"""The first guess: what decides how much a program takes."""
import torch

from minipt2 import prims as P
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.codegen.triton_blocks import choose
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from tests.inductor.programs import graph_of


def blocks(fn, *tensors):
    plan = schedule(lower(graph_of(fn, *tensors)), GPU)
    return [choose(make_plan(k, plan), REFERENCE) for k in plan.kernels]


def empty(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def test_columns_are_as_wide_as_what_is_walked_is_narrow():
    """A vector of float32 beside columns of bfloat16 is read once: whole cache lines of the columns count."""
    def distances(u, mean):
        d = P.sub(P.convert(u, torch.float32), P.broadcast_in_dim(mean, u.shape, [1]))
        return P.sum(P.mul(d, d), [0])
    half, = blocks(distances, empty(200704, 64), empty(64, dtype=torch.float32))
    whole, = blocks(distances, empty(200704, 64, dtype=torch.float32), empty(64, dtype=torch.float32))
    assert half.x == 64 and whole.x == 32


def test_chunks_are_equally_long_where_few_programs_less_allow_it():
    shared, = blocks(lambda u: P.sum(P.convert(u, torch.float32), [0]), empty(200704, 64))
    assert shared.split > 1 and 200704 % (shared.split * shared.r) == 0
    odd, = blocks(lambda u: P.sum(P.convert(u, torch.float32), [0]), empty(200703, 64))
    assert odd.split > shared.split // 2


def test_positions_are_worked_out_once_for_a_row_of_channels():
    def pool(u):
        return P.max_pool(u, (3, 3), (2, 2), (1, 1), (1, 1), False)
    image = empty(64, 64, 56, 56)
    tiled, = blocks(pool, image.to(memory_format=torch.channels_last))
    assert (tiled.x, tiled.y) == (64, 16)
    assert blocks(pool, image)[0].y == 0
    thin, = blocks(pool, empty(64, 3, 56, 56).to(memory_format=torch.channels_last))
    assert thin.y == 0


def test_windows_do_not_join_reductions():
    """The gradient of a pooling is a kernel of its own, in rows of channels, beside the sums of the normalisation before it."""
    def backward(grad, offsets, x):
        g = P.convert(P.where(P.le(x, 0.0), 0.0, P.max_pool_backward(grad, offsets, (112, 112), (3, 3), (2, 2), (1, 1), (1, 1))), torch.float32)
        return P.convert(g, torch.bfloat16), P.sum(P.mul(g, P.convert(x, torch.float32)), [0, 2, 3])
    last = dict(memory_format=torch.channels_last)
    windows = empty(64, 64, 56, 56).to(**last), empty(64, 64, 56, 56, dtype=torch.int8).to(**last)
    gather, sums = blocks(backward, *windows, empty(64, 64, 112, 112).to(**last))
    assert gather.y and not gather.r and sums.split > 1
