import random

import pytest
import sympy
import torch

from minipt2 import prims as p
from minipt2.inductor.ir.interpret import evaluate
from minipt2.inductor.lowering import view_index
from minipt2.shapes import FloorDiv, Mod

from ..programs import calls, check, loops


def factorisation(n: int, rng: random.Random) -> list[int]:
    sizes = [1] * rng.randint(0, 2)
    while n > 1:
        d = rng.choice([d for d in range(2, n + 1) if n % d == 0])
        sizes.append(d)
        n //= d
    rng.shuffle(sizes)
    return sizes


def divides(buffer) -> bool:
    indices = [index for _, index in buffer.body.loads()] + [index for _, index, _ in buffer.body.stores()]
    return any(index.has(FloorDiv, Mod) for index in indices)


@pytest.mark.parametrize("seed", range(200))
def test_view_index(seed):
    rng = random.Random(seed)
    n = rng.choice([12, 24, 30, 36, 60])
    old, new = factorisation(n, rng), factorisation(n, rng)
    symbols = [sympy.Symbol(f"q{k}", integer=True, nonnegative=True) for k in range(len(new))]
    mapped = view_index(tuple(old), tuple(new))(symbols)
    values = torch.arange(n).reshape(old)
    grid = torch.cartesian_prod(*[torch.arange(k) for k in new]).reshape(-1, len(new))
    table = {s: grid[:, k] for k, s in enumerate(symbols)}
    found = values[tuple(torch.as_tensor(evaluate(e, table)).expand(n) for e in mapped)]
    assert torch.equal(found, torch.arange(n))


def test_chains():
    x = torch.randn(2, 3, 4)
    check(lambda x: p.exp(p.reshape(p.permute(x, (2, 0, 1)), (4, 6))), x)
    check(lambda x: p.reshape(p.permute(p.exp(x), (2, 0, 1)), (24,)), x)
    check(lambda x: p.permute(p.reshape(p.exp(x), (6, 4)), (1, 0)), x)
    check(lambda x: p.slice(p.exp(x), (0, 1, 0), (2, 3, 4), (1, 1, 2)), x)
    check(lambda x: p.slice(p.flip(x, (0, 2)), (0, 1, 0), (2, 3, 4), (1, 1, 2)), x)
    check(lambda x: p.add(p.broadcast_in_dim(p.exp(p.slice(x, (0, 0, 0), (1, 3, 1), (1, 1, 1))), (2, 3, 4), (0, 1, 2)), x), x)
    check(lambda x: p.broadcast_in_dim(p.sum(x, (1, 2)), (5, 2), (1,)), x)
    check(lambda x: p.reshape(p.exp(x), (2, 1, 12, 1)), x)
    check(lambda x: p.reshape(x, (0, 7)), torch.randn(7, 0))


def test_split_and_merge_leave_no_division():
    def fn(x):
        heads = p.permute(p.reshape(p.exp(x), (2, 5, 3, 4)), (0, 2, 1, 3))
        return p.reshape(p.permute(p.mul(heads, 2.0), (0, 2, 1, 3)), (2, 5, 12))
    program = check(fn, torch.randn(2, 5, 12))
    assert not any(divides(b) for b in loops(program))


def test_merging_a_permuted_tensor_copies_without_division():
    """The copy runs over the unmerged dimensions and is then looked at as merged."""
    def fn(x, w):
        return p.mm(p.reshape(p.permute(x, (0, 2, 1, 3)), (10, 12)), w)
    program = check(fn, torch.randn(2, 3, 5, 4), torch.randn(12, 6))
    assert len(loops(program)) == 1 and not divides(loops(program)[0])


def test_view_of_buffer_is_free():
    program = check(lambda x, w: p.mm(p.permute(p.exp(x), (1, 0)), w), torch.randn(4, 3), torch.randn(4, 2))
    assert len(loops(program)) == 1 and len(calls(program)) == 1
    assert program.buffers[1].args[0].layout.strides == (1, 3)


def test_outputs_stay_views():
    program = check(lambda x: (p.permute(p.exp(x), (1, 0)), p.exp(x)), torch.randn(4, 3))
    assert len(loops(program)) == 1


def test_heavy_value_is_not_repeated_by_broadcast():
    program = check(lambda x, v: p.mul(x, p.broadcast_in_dim(p.rsqrt(v), (8, 5), (1,))), torch.randn(8, 5), torch.rand(5) + 1)
    assert [b.body.sizes for b in loops(program)] == [(5,), (8, 5)]
