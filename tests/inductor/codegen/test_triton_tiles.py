"""Tiles with three sides: where they are chosen, where two are enough, and that grids stay within what a GPU launches."""
import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor.autotune.space import candidates
from minipt2.inductor.codegen.c_openmp_plan import make_plan
from minipt2.inductor.codegen.triton import Writer, walked_across
from minipt2.inductor.codegen.triton_blocks import MOST_Y, choose
from minipt2.inductor.codegen.triton_tiles import sides
from minipt2.inductor.hardware import REFERENCE
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import GPU, schedule
from tests.inductor.programs import graph_of


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def plan_of(fn, *tensors):
    found = schedule(lower(graph_of(fn, *tensors)), GPU)
    step, = found.kernels
    return make_plan(step, found)


def blocks(fn, *tensors):
    plan = plan_of(fn, *tensors)
    return choose(plan, REFERENCE, walked_across(plan))


def transposed(u, v):
    return P.add(P.permute(u, (0, 2, 1)), v)


def ways(u, v, w):
    return P.add(P.add(u, P.permute(v, (2, 0, 1))), P.permute(w, (1, 2, 0)))


def test_a_side_for_each_loop_that_operands_are_contiguous_along():
    found = blocks(ways, empty(64, 80, 96), empty(80, 96, 64), empty(96, 64, 80))
    assert (found.x, found.y, found.z, found.warps) == (32, 16, 16, 8)
    plan = plan_of(ways, empty(64, 80, 96), empty(80, 96, 64), empty(96, 64, 80))
    assert [len(side) for side in sides(plan, walked_across(plan), True)] == [1, 1, 1]


def test_two_sides_where_a_batch_hides_nothing():
    """Rows of 300 numbers of 2 bytes begin at multiples of 8 bytes only, wherever a tile begins."""
    for dtype in (torch.float32, torch.bfloat16):
        assert blocks(transposed, empty(16, 300, 500, dtype=dtype), empty(16, 500, 300, dtype=dtype)).z == 0


def sliced(n):
    def fn(u, v, w):
        cut = P.slice(u, [0, 0, 0], [16, 320, n], [1, 1, 1])
        return P.add(P.add(v, w), P.convert(P.permute(cut, (0, 2, 1)), torch.float32))
    return fn, empty(16, 320, 512, dtype=torch.bfloat16), empty(16, n, 320), empty(16, n, 320)


@pytest.mark.parametrize("n, y", [(300, 64), (500, 64), (100, 16), (256, 0), (512, 0)])
def test_one_iteration_of_a_batch_where_a_remainder_hides_vectors(n, y):
    """Of rows of 512 the first n: 16 bytes at a time, unless y % n could be anything. Tiles end where the rows do, or soon after."""
    found = blocks(*sliced(n))
    assert found.z == (y > 0) and (not y or found.y == y)


def test_grids():
    """A GPU takes 65535 programs along the second dimension of a grid."""
    plan = plan_of(transposed, empty(100000, 32, 32), empty(100000, 32, 32))
    for c in candidates(plan, REFERENCE, walked_across(plan)):
        grid = Writer(plan, c).write().grid
        assert grid[1] <= MOST_Y and grid[0] * grid[1] * c.x * c.y * max(c.z, 1) >= plan.rows
    assert {c.z for c in candidates(plan, REFERENCE, walked_across(plan))} == {0, 1}


def last(u, v):
    return P.add(P.permute(u, (0, 2, 1)), v)


@pytest.mark.parametrize("n, y", [(2, 0), (3, 4), (8, 8), (12, 16)])
def test_all_iterations_of_a_short_loop(n, y):
    """Channels that come last in one operand: each piece of its lines belongs to all of them."""
    found = blocks(last, empty(16, n, 4096), empty(16, 4096, n))
    assert (found.y, found.z) == (y, int(y > 0))
