"""Slices whose bounds a tensor holds: one graph for all bounds, with gradients."""
import pytest
import torch
from torch.utils import _pytree as pytree

import minipt2
from tests.compare import assert_same

PLACES = [[1, 3], [-3, -1], [4, 2], [10, -20], [0, 0], [5, 5]]


def slices(x, t):
    a, b = t.tolist()
    return x[a:b] * 2, x[:a].sum(1), x[:, b:].cumsum(1), x[1:b, a:]


def splits(x, t):
    return [p * 2 for p in torch.tensor_split(x, t)], x.tensor_split(t, dim=1)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [slices, splits])
def test_slices_between_places_that_are_data(fn, dynamic, fresh):
    """Negative places count from the end, all are cut to the tensor."""
    compiled = minipt2.compile(fn, dynamic=dynamic)
    for places in PLACES:
        x, t = torch.randn(5, 6, requires_grad=True), torch.tensor(places)
        expected, found = pytree.tree_leaves(fn(x, t)), pytree.tree_leaves(compiled(x, t))
        assert_same(expected, found, strides=False)
        gradients = [torch.autograd.grad(sum((o * o).sum() for o in outputs), x)[0] for outputs in (expected, found)]
        torch.testing.assert_close(*gradients)
    assert minipt2.counters()["graphs"] == 1 and minipt2.counters()["breaks"] == 0


def test_how_many_places_are_read_is_guarded(fresh):
    """With symbolic sizes too: the length of the list is not data, and another one is another graph."""
    fn = lambda x, t: [p * 2 for p in torch.tensor_split(x, t)]  # noqa: E731
    compiled = minipt2.compile(fn, dynamic=True, fullgraph=True)
    for rows, places in [(5, [1, 3]), (7, [2, -1]), (7, [1, 2, 3]), (6, [4]), (6, [])]:
        x, t = torch.randn(rows, 6), torch.tensor(places, dtype=torch.int64)
        assert_same(fn(x, t), compiled(x, t))
    assert minipt2.counters()["graphs"] <= 4


def test_a_number_of_parts_in_a_tensor_is_a_break(fresh):
    fn = lambda x, n: [p + 1 for p in torch.tensor_split(x, n)]  # noqa: E731
    x, n = torch.randn(5, 6), torch.tensor(3)
    assert_same(fn(x, n), minipt2.compile(fn)(x, n))
    assert minipt2.counters()["breaks"] == 1
