"""Which loops may share a nest, which do, and that the order in which they are offered does not matter."""
import itertools
import random

import pytest
import torch

from minipt2 import prims as P
from minipt2.config import config
from minipt2.inductor.ir import Computed
from minipt2.inductor.lowering import lower
from minipt2.inductor.scheduler import Group, can_fuse, fuse, schedule, why_not
from minipt2.inductor.scheduler.graph import Order, dependencies
from minipt2.inductor.scheduler.nodes import make_node
from tests.inductor.execute import check
from tests.inductor.programs import graph_of

A, B, V = torch.zeros(48, 64), torch.zeros(48, 64), torch.zeros(64)


def groups_of(fn, *tensors):
    """Every loop nest of the program as a group of its own."""
    program = lower(graph_of(fn, *tensors))
    buffers = program.by_name()
    fresh = itertools.count()
    nodes = {b.name: make_node(b, lambda n: buffers[n].layout.dtype.itemsize, fresh) for b in program.buffers if isinstance(b, Computed)}
    graph = Order(len(program.buffers), dependencies(program, program.buffers, nodes))
    return [Group.of(nodes[b.name], k, graph, fresh) for k, b in enumerate(program.buffers) if b.name in nodes]


def spread(v, like, dims):
    return P.broadcast_in_dim(v, like.shape, dims)


def through(x):
    """A value that must lie in memory: an output besides."""
    return x


def transpose_of_row(u):
    s = P.exp(u)
    return s, P.permute(P.mul(P.permute(s, [1, 0]), 2.0), [1, 0])


PAIRS = {
    "producer and consumer": (True, lambda u: (h := P.exp(u), P.mul(h, 2.0)), A),
    "siblings": (True, lambda u: (P.exp(u), P.mul(u, 2.0)), A),
    "transposed twice": (True, transpose_of_row, A),
    "reshaped": (True, lambda u: (h := P.exp(u), P.mul(P.reshape(h, (32, 96)), 2.0)), A),
    "row sum, then spread over its row": (True, lambda u: (s := P.sum(u, [1]), P.mul(u, spread(s, u, [0]))), A),
    "two sums of one tensor": (True, lambda u: (P.sum(u, [1]), P.amax(u, [1])), A),
    "sums over different dimensions": (False, lambda u: (P.sum(u, [1]), P.sum(u, [0])), A),
    "sum of a sum": (False, lambda u: (s := P.sum(u, [1]), P.sum(s, [0])), A),
    "sum, then per row": (True, lambda u: (s := P.sum(u, [1]), P.exp(s)), A),
    "element, then its row's sum": (True, lambda u: (h := P.exp(u), P.sum(h, [1])), A),
    "nothing in common": (False, lambda u, v: (P.exp(u), P.exp(v)), A, B),
    "different elements": (False, lambda u: (h := P.exp(u), P.mul(P.flip(h, [1]), 2.0)), A),
    "shifted": (False, lambda u: (h := P.exp(u), P.mul(P.slice(h, (0, 1), (48, 64), (1, 1)), 2.0)), A),
    "spread of a vector": (False, lambda v, u: (h := P.exp(v), P.mul(u, spread(h, u, [1]))), V, A),
    "tall column, then spread": (False, lambda u: (s := P.sum(u, [0]), P.mul(u, spread(s, u, [1]))), torch.zeros(8192, 64)),
    "short column, then spread": (True, lambda u: (s := P.sum(u, [0]), P.mul(u, spread(s, u, [1]))), A),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    expected, fn, *tensors = PAIRS[name]
    groups = groups_of(fn, *tensors)
    assert len(groups) == 2
    assert can_fuse(*groups) is expected, why_not(*groups)
    assert can_fuse(*groups[::-1]) is expected
    assert (why_not(*groups) == "") is expected


def mm(a, b):
    return P.mm(a, b)


def test_no_cycle_through_a_third_step():
    """exp -> matmul -> add: the two loops may not fuse around the matmul between them."""
    groups = groups_of(lambda u, w: (h := P.exp(u), P.add(mm(h, w), h)), A, torch.zeros(64, 64))
    assert not can_fuse(*groups) and "between" in why_not(*groups)


def test_overwriting_an_input_waits_for_its_readers():
    gm = graph_of(lambda u: (P.mul(u, 2.0), P.mul(P.flip(u, [0]), 3.0)), A)
    gm.meta["mutated_inputs"] = {0: 0}
    s = schedule(lower(gm))
    order = [n for k in s.kernels for n in k.writes()]
    assert len(s.kernels) == 2 and order[-1] == s.program.inputs[0].name


def kernels(fn, *tensors, **settings):
    with config.patch(**settings):
        return len(schedule(lower(graph_of(fn, *tensors))).kernels)


def softmax(u):
    e = P.exp(P.sub(u, P.broadcast_in_dim(P.amax(u, [1], True), u.shape, [0, 1])))
    return P.div(e, P.broadcast_in_dim(P.sum(e, [1], True), u.shape, [0, 1]))


def layer_norm(u, w):
    var, mean = P.var_mean(u, [1], 0.0, True)
    scale = P.rsqrt(P.add(var, 1e-5))
    return P.mul(P.mul(P.sub(u, P.broadcast_in_dim(mean, u.shape, [0, 1])), P.broadcast_in_dim(scale, u.shape, [0, 1])), spread(w, u, [1]))


def batch_norm_statistics(u):
    var, mean = P.var_mean(u, [0], 0.0, False)
    return P.add(P.mul(mean, 0.1), 1.0), P.mul(var, 0.1)


def layer_norm_gradients(g, u, mean, scale):
    h = P.mul(P.sub(u, spread(mean, u, [0])), spread(scale, u, [0]))
    rows = P.sum(P.mul(g, h), [1])
    return P.sub(g, P.mul(h, spread(rows, u, [0]))), P.sum(P.mul(g, h), [0]), P.sum(g, [0])


@pytest.mark.parametrize("fn,tensors,count", [
    (lambda u: softmax(P.add(P.mul(u, 2.0), 1.0)), [A], 1),
    (lambda u, w: layer_norm(P.add(u, P.exp(u)), w), [A, V], 1),
    (batch_norm_statistics, [torch.zeros(4096, 64)], 1),
    (layer_norm_gradients, [A, A, torch.zeros(48), torch.zeros(48)], 2),
    (lambda u: (P.relu(u), P.le(u, 0.0), P.sum(u, [0, 1])), [A], 1),
], ids=["softmax", "layer norm", "batch statistics", "layer norm backward", "siblings and a sum"])
def test_golden_counts(fn, tensors, count):
    assert kernels(fn, *tensors) == count


def test_fusion_off_gives_a_kernel_a_buffer():
    assert kernels(softmax, A, fusion=False) == 4
    with config.patch(max_fusion_size=2):
        sizes = [len(k.names) for k in schedule(lower(graph_of(softmax, A))).kernels]
    assert sum(sizes) == 4 and max(sizes) == 2


def test_the_order_of_groups_does_not_matter():
    def fn(u, v):
        h = P.exp(u)
        return h, P.mul(h, v), P.sum(h, [1]), P.sub(v, 1.0), softmax(v), P.sum(P.mul(h, v), [1])
    shapes = set()
    for seed in range(6):
        groups = groups_of(fn, A, B)
        random.Random(seed).shuffle(groups)
        shapes.add(frozenset(frozenset(n.name for n in g.nodes) for g in fuse(groups)))
    assert len(shapes) == 1


def test_cheap_intermediates_are_computed_where_they_are_read():
    """Three parts of (u + v) are copied: the sum itself is never stored."""
    def fn(u, v):
        h = P.add(u, spread(v, u, [1]))
        return tuple(P.exp(P.permute(P.slice(h, (0, k), (48, k + 16), (1, 1)), [1, 0])) for k in (0, 16, 32))
    s, _ = check(fn, torch.randn(48, 64), torch.randn(64))
    assert all(k.reads() <= {i.name for i in s.program.inputs} for k in s.kernels)


def test_a_reader_after_an_overwrite_is_not_given_the_new_value():
    """h is made from an input that is then overwritten: it may not be computed again afterwards."""
    def fn(u, w):
        h = P.mul(u, 2.0)
        return P.add(u, 1.0), P.mm(P.permute(h, [1, 0]), w), P.exp(P.flip(h, [0]))
    check(fn, torch.randn(48, 64), torch.randn(48, 8), mutated={0: 0}, rtol=1e-4)


def test_time_grows_with_the_number_of_steps_not_its_square():
    import time
    def chain(n):
        def fn(u, w):
            for _ in range(n):
                u = P.relu(P.add(P.mm(u, w), u))
            return u
        return lower(graph_of(fn, torch.zeros(16, 16), torch.zeros(16, 16)))
    def best(n):
        program, times = chain(n), []
        for _ in range(3):
            start = time.process_time()
            schedule(program)
            times.append(time.process_time() - start)
        return min(times)
    best(10)
    assert best(400) < 8 * best(100) + 0.1
