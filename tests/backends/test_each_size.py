"""Backends from outside that take no symbols of ours."""
import operator
import warnings

import pytest
import torch
from torch import fx

import minipt2
from minipt2.backends.each_size import KEPT, with_sizes
from tests.compare import assert_same


class Picky:
    """A backend that needs every size as a number, as those on upstream's AOTAutograd do."""

    def __init__(self):
        self.seen = []

    def __call__(self, gm, example_inputs):
        if any(isinstance(x, torch.SymInt) or x._has_symbolic_sizes_strides for x in example_inputs if not isinstance(x, int)):
            raise AttributeError("'Node' object has no attribute '_value_hash'")
        self.seen.append(tuple(tuple(x.shape) for x in example_inputs if isinstance(x, torch.Tensor)))
        for node in gm.graph.nodes:
            assert not isinstance(node.meta.get("val"), torch.SymInt)
        return gm.forward


def rows(x, n):
    return x.view(x.shape[0] * n, -1).sum(0), x[: x.shape[0] // 2] * n


def test_a_graph_for_each_tuple_of_sizes(fresh):
    backend = Picky()
    compiled = minipt2.compile(rows, backend=backend, dynamic=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for length in (4, 6, 4, 10, 6):
            x = torch.randn(length, 6, requires_grad=True)
            assert_same(rows(x, 2), compiled(x, 2))
    assert backend.seen == [((4, 6),), ((6, 6),), ((10, 6),)] and minipt2.counters()["graphs"] == 1


def test_code_for_sizes_used_last_is_kept(fresh):
    backend = Picky()
    compiled = minipt2.compile(lambda x: x * 2 + x.shape[0], backend=backend, dynamic=True)
    for length in (*range(2, KEPT + 3), 2):
        compiled(torch.ones(length))
    assert len(backend.seen) == KEPT + 2


def test_autocast_and_grad_mode_stay(fresh):
    """Regions inside the graph are entered while its sizes are put in, and left."""
    def fn(x, w):
        with torch.autocast("cpu"):
            y = x @ w
        with torch.no_grad():
            z = y * x.shape[0]
        return y, z
    backend = Picky()
    compiled = minipt2.compile(fn, backend=backend, dynamic=True)
    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    assert_same(fn(x, w), compiled(x, w))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and len(backend.seen) == 1


def test_a_backend_that_takes_no_sizes_at_all(fresh):
    def broken(gm, example_inputs):
        raise ValueError("never")
    compiled = minipt2.compile(rows, backend=broken, dynamic=True)
    x = torch.randn(4, 6)
    with pytest.warns(UserWarning, match="never.*nor for those at hand"):
        assert_same(rows(x, 2), compiled(x, 2))


def test_numbers_of_the_graph_are_put_in(fresh):
    """Before: ``n = s0 * 8``; after: 24 where n stood."""
    graphs = []
    minipt2.compile(lambda x: x.reshape(x.shape[0] * x.shape[1]) + 1, backend=lambda gm, inputs: graphs.append(gm) or gm.forward, dynamic=True)(torch.randn(5, 8))
    gm, = graphs
    args = [torch.randn(3, 8) if not isinstance(n.meta["val"], torch.SymInt) else {5: 3, 8: 8}[n.meta["val"].node.hint]
            for n in gm.graph.find_nodes(op="placeholder")]
    known, inputs = with_sizes(gm, args)
    assert not any(n.target in (operator.mul, torch.ops.aten.sym_size.int) for n in known.graph.nodes) and isinstance(known, fx.GraphModule)
    assert_same(gm(*args), known(*args))
    assert [tuple(x.shape) for x in inputs if isinstance(x, torch.Tensor)] == [(3, 8)]
