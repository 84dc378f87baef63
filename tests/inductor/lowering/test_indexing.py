import pytest
import torch

from minipt2 import prims as p

from ..programs import check


def test_gather_and_select():
    x = torch.randn(5, 6)
    check(lambda x, i: p.gather(p.exp(x), 1, i), x, torch.randint(0, 6, (5, 3)))
    check(lambda x, i: p.gather(x, 0, i), x, torch.randint(0, 5, (2, 4)))
    check(lambda x, i: p.mul(p.index_select(x, 0, i), 2.0), x, torch.tensor([4, 0, 0]))
    check(lambda x, i: p.index_select(p.permute(x, (1, 0)), 1, i), x, torch.tensor([4, 0, 0]))


def test_index():
    x = torch.randn(4, 5, 6)
    i, j = torch.tensor([[0, -1], [2, 3]]), torch.tensor([[1, 1], [-5, 4]])
    check(lambda x, i: p.index(x, [i]), x, i)
    check(lambda x, i, j: p.index(x, [i, j]), x, i, j)
    check(lambda x, i, j: p.index(x, [i, None, j]), x, i, j)
    check(lambda x, j: p.index(x, [None, j]), x, j)


def test_out_of_range():
    with pytest.raises(IndexError):
        check(lambda x, i: p.index_select(x, 0, i), torch.randn(3, 2), torch.tensor([3]))


@pytest.mark.parametrize("fn, index", [
    (lambda x, i: p.index_select(x, 0, i), torch.tensor([0, 0])), (lambda x, i: p.gather(x, 0, i), torch.zeros(2, 3, dtype=torch.int64)),
    (lambda x, i: p.scatter(x, 0, i, p.full((2, 3), 1.0, x.dtype, x.device)), torch.zeros(2, 3, dtype=torch.int64)),
    (lambda x, i: p.index(x, [i]), torch.tensor([0])),
])
def test_nothing_to_pick_from(fn, index):
    """There is no element 0 to take for a wrong position: a loop would read, or write, where no memory is."""
    with pytest.raises((IndexError, RuntimeError)):
        check(fn, torch.zeros(0, 3), index)
    check(fn, torch.zeros(0, 3), index[:0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_scatter(dtype):
    x, src = torch.arange(12).reshape(3, 4).to(dtype), torch.arange(20, 32).reshape(3, 4).to(dtype)
    unique = torch.stack([torch.randperm(4) for _ in range(3)])
    check(lambda x, i, s: p.scatter(x, 1, i, s), x, unique, src)
    check(lambda x, i, s: p.scatter(x, 1, i, p.mul(s, 2)), x, unique[:, :2], src)
    check(lambda x, i, s: p.scatter_add(x, 1, i, s), x, torch.randint(0, 4, (3, 4)), src)
    check(lambda x, i, s: p.scatter_add(p.full((3, 4), 0, x.dtype, x.device), 0, i, s), x, torch.randint(0, 3, (3, 4)), src)


def test_index_put():
    x, i = torch.randn(4, 5), torch.tensor([0, 2])
    check(lambda x, i, v: p.index_put(x, [i], v, False), x, i, torch.randn(2, 5))
    check(lambda x, i, v: p.index_put(x, [None, i], v, True), x, torch.tensor([1, 1]), torch.randn(4, 2))
    check(lambda x, i, v: p.index_put(x, [i, i], v, True), x, torch.tensor([1, 1, -1]), torch.randn(3))
    check(lambda x, i, v: p.index_put(x, [i], v, True), x, torch.zeros(0, dtype=torch.int64), torch.randn(0, 5))


def test_embedding_backward():
    def fn(tokens, grad):
        zeros = p.full((7, 3), 0.0, torch.float32, grad.device)
        return p.index_put(zeros, [tokens], grad, True)
    check(fn, torch.randint(0, 7, (2, 4)), torch.randn(2, 4, 3))
