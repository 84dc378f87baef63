"""Where values come from and go to: views, transposes, padding, concatenation, gathers, scatters, in-place results."""
import pytest
import torch

from minipt2 import prims as P
from minipt2.inductor.codegen.c_openmp import generate
from minipt2.inductor.codegen.c_openmp_values import BAD_INDEX
from minipt2.inductor.ir import TensorRef
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import schedule
from tests.inductor.execute import check, execute, graph_of


def x(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


@pytest.mark.parametrize("shape", [(64, 64), (70, 45), (9, 300), (33, 8), (7, 7), (129, 17)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bfloat16, torch.float64], ids=str)
def test_transposes(shape, dtype):
    a = (x(*shape) * 9).to(dtype)
    b = (x(*shape[::-1]) * 5).to(dtype)
    check(lambda u, v: P.add(P.permute(P.mul(u, 2), [1, 0]), v), a, b)


def test_transposes_of_many_dimensions():
    a = x(3, 20, 9, 33)
    check(lambda u: (P.copy_strided(P.mul(u, 2.0), (20 * 9 * 33, 1, 33 * 20, 20)), P.permute(P.exp(u), [3, 1, 0, 2])), a)
    check(lambda u: P.add(u, P.permute(u, [0, 2, 1])), x(4, 50, 50))


def test_heads_merge_and_split():
    a = x(4, 24, 3 * 8 * 16)
    def qkv(u):
        parts = [P.slice(u, (0, 0, k * 128), (4, 24, (k + 1) * 128), (1, 1, 1)) for k in range(3)]
        return tuple(P.copy_strided(P.permute(P.reshape(p, (4, 24, 8, 16)), [0, 2, 1, 3]), (3072, 384, 16, 1)) for p in parts)
    s, source = check(qkv, a)
    assert len(s.kernels) == 1 and "/" not in source.text.split("void k0")[1]  # no division left in any index


def test_slices_flips_and_reshapes():
    a = x(12, 30)
    check(lambda u: (P.slice(u, (1, 3), (11, 29), (2, 3)), P.flip(u, [1]), P.reshape(P.permute(u, [1, 0]), (4, 90)),
                     P.reshape(P.exp(u), (5, 72)), P.flip(P.reshape(u, (6, 60)), [0, 1])), a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64], ids=str)
def test_pad_and_cat(dtype):
    a = x(5, 33) > 0 if dtype is torch.bool else (x(5, 33) * 4).to(dtype)
    b = x(5, 20) > 0 if dtype is torch.bool else (x(5, 20) * 4).to(dtype)
    check(lambda u, v: (P.pad(u, (1, 2), (0, 3), 1), P.pad(u, (-1, 4), (2, -3), 0), P.cat([u, v, u], 1), P.cat([u, u], 0)), a, b)


def test_cat_of_computed_parts_is_written_in_place():
    s, _ = check(lambda u, v: P.cat([P.exp(u), P.mul(v, 2.0)], 1), x(6, 40), x(6, 24))
    assert sum(len(k.names) for k in s.kernels) == 2


INDEX = torch.tensor([[3, 0, -1, 5], [2, 2, -6, 1]])


def test_gathers():
    table = x(6, 40)
    check(lambda t, i: (P.index_select(t, 0, P.reshape(i, (8,))), P.index(t, [i]), P.mul(P.index(t, [i]), 2.0)), table, INDEX % 6)
    check(lambda t, i: P.index(t, [i]), table, INDEX)
    columns = torch.randint(0, 40, (6, 9), generator=torch.Generator().manual_seed(0))
    check(lambda t, c: (P.gather(t, 1, c), P.index(t, [None, P.reshape(c, (54,))])), table, columns)


@pytest.mark.parametrize("accumulate", [False, True])
def test_scatters(accumulate):
    grad, rows = x(2, 4, 40), INDEX.clone()
    if not accumulate:
        rows = torch.tensor([[3, 0, -1, 4], [2, 1, 6, 7]])
    base = x(9, 40)
    check(lambda b, r, g: P.index_put(b, [r], g, accumulate), base, rows, grad)
    big = x(300, 256)
    many = torch.randint(0, 50, (300,), generator=torch.Generator().manual_seed(0))
    if accumulate:
        check(lambda b, r, g: P.index_put(P.mul(b, 0.0), [r], g, True), x(50, 256), many, big)
        columns = torch.randint(0, 40, (9, 40), generator=torch.Generator().manual_seed(0))
        check(lambda b, c: P.scatter_add(b, 1, c, P.mul(b, 3.0)), base, columns)


def test_index_out_of_range_sets_the_flag_and_reads_nothing_outside():
    table, rows = x(6, 40), torch.tensor([1, 6, -7])
    for fn in (lambda t, i: P.index(t, [i]), lambda t, i: P.sum(P.index(t, [i]), [1])):
        s = schedule(lower(graph_of(fn, table, rows)))
        _, error = execute(s, generate(s), [table, rows])
        assert error == BAD_INDEX


def test_interpolation_positions_are_computed_once():
    def up(u):
        at = P.convert(P.iota(64, 0, 1, torch.int64, torch.device("cpu")), torch.float32)
        at = P.convert(P.mul(P.add(at, 0.5), 0.5), torch.int64)
        return P.mul(P.index(u, [None, at]), 2.0)
    s, source = check(up, x(600, 33))
    assert "h" in source.text and len(s.kernels) == 1


def test_results_overwrite_operands_that_die():
    """The chain needs no memory beside its one intermediate; a transposed reader forbids overwriting."""
    def chain(u, m):
        h = torch.ops.aten.mm.default(u, m) if isinstance(u, torch.Tensor) else P.mm(u, m)
        g = P.exp(h)
        k = P.mm(g, m) if not isinstance(u, torch.Tensor) else g @ m
        return P.mul(k, 2.0)
    s, _ = check(chain, x(32, 32) / 8, x(32, 32) / 8)
    assert s.arena_bytes <= 2 * 32 * 32 * 4


def test_mutated_inputs():
    running = x(24)
    def step(r, u):
        mean = P.sum(u, [0])
        return P.add(P.mul(r, 0.9), P.mul(mean, 0.1)), P.sub(u, P.broadcast_in_dim(mean, u.shape, [1]))
    check(step, running, x(40, 24), mutated={0: 0})


def test_half_inputs_fuse_and_round_at_stores():
    a = x(33, 72).to(torch.bfloat16)
    check(lambda u: (P.mul(P.exp(u), 2.0), P.convert(P.sum(P.convert(u, torch.float32), [1]), torch.bfloat16)), a)


def test_scalars_and_size_one_dimensions():
    check(lambda u, v: P.add(P.broadcast_in_dim(u, (1, 5, 1), []), v), x(), x(1, 5, 1))
    check(lambda u: P.mul(u, 2.0), x())
    check(lambda u: P.sum(u, [0, 1, 2]), x(1, 1, 1))
    check(lambda u: P.mul(u, 2.0), torch.zeros(0, 4))


def test_views_of_outputs_keep_strides():
    s, _ = check(lambda u: P.permute(P.exp(u), [1, 0]), x(5, 9))
    assert isinstance(s.program.outputs[0].ref, TensorRef)
