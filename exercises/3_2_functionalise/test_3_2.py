import pytest
import torch
from torch import nn

import minipt2
from minipt2.aot_autograd.functionalize import functionalize
from minipt2.aot_autograd.trace import trace_joint
from minipt2.course.checks import same


def agree(fn, *shapes):
    """Results and what is left in the arguments, as in eager; and no operator of the graph writes."""
    torch.manual_seed(0)
    args = [torch.randn(s) for s in shapes]
    mine, theirs = [a.clone() for a in args], [a.clone() for a in args]
    found, wanted = minipt2.compile(fn, backend="aot_eager")(*mine), fn(*theirs)
    same(found, wanted)
    same(mine, theirs, where="arguments afterwards")
    joint = trace_joint(fn, [a.clone() for a in args])
    mutations = functionalize(joint.graph)
    written = [n.target for n in joint.graph.nodes if n.op == "call_function" and getattr(n.target, "_schema", None) and n.target._schema.is_mutable]
    same(written, [], where="operators that still write")
    return mutations


def test_in_place_arithmetic():
    """A chain of writes to one argument: one write-back, of the last value."""
    def fn(x):
        y = x * 2
        x.add_(1)
        x.mul_(y)
        return x + y
    mutations = agree(fn, (3,))
    same(len(mutations), 1)


def test_writes_through_views():
    """A row, a slice of a transpose, an element: the base sees them all."""
    def fn(x):
        x[0].add_(10)
        x.t()[1:].mul_(2)
        x[2][1] = 7
        x.view(-1)[3:5].zero_()
        return x * 1
    agree(fn, (3, 4))


def test_views_see_later_writes():
    """A view taken, and even written, before another write shows that write too."""
    def fn(x):
        row, column = x[1], x[:, 1]
        row.add_(1)
        x.mul_(3)
        column.sub_(5)
        return row * 1, column * 1, x.sum()
    agree(fn, (3, 4))


def test_locals_need_no_write_back():
    """What the caller cannot see is a value like any other."""
    def fn(x):
        y = torch.zeros_like(x)
        y[1:] = x[:-1]
        y.relu_()
        return y
    same(agree(fn, (5,)), [])


def test_split_and_unbind():
    """Pieces of one tensor."""
    def fn(x):
        a, b = x.split(2, dim=1)
        a.add_(b)
        first, *_ = x.unbind(0)
        first.mul_(2)
        return a - b
    agree(fn, (3, 4))


def test_overlapping_views():
    """Where one element stands several times there is no inverse; strides decide."""
    def fn(x):
        x.unfold(0, 3, 1)[:, 0].add_(3)
        x.as_strided((2, 2), (1, 2), 1).add_(3)
        return x * 2
    agree(fn, (8,))


def test_batch_norm_moves_its_statistics():
    """Buffers of a module are arguments that get written."""
    net, twin = nn.BatchNorm1d(3), nn.BatchNorm1d(3)
    x = torch.randn(6, 3)
    compiled = minipt2.compile(net, backend="aot_eager")
    for _ in range(3):
        same(compiled(x), twin(x), rtol=1e-4, atol=1e-5)
    same([net.running_mean, net.running_var, net.num_batches_tracked], [twin.running_mean, twin.running_var, twin.num_batches_tracked])
    agree(lambda m: m.mul_(2), (3,))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs(seed):
    """Views and writes in any order."""
    import random

    def fn(x):
        rng = random.Random(seed)
        values = [x]
        for _ in range(8):
            v = rng.choice(values)
            kind = rng.randrange(6)
            if kind == 0 and v.dim() > 1:
                values.append(v.t())
            elif kind == 1 and v.shape[0] > 1:
                values.append(v[1:])
            elif kind == 2:
                v.add_(rng.choice([1.0, 2.0]))
            elif kind == 3:
                v.mul_(rng.choice([2.0, -1.0]))
            elif kind == 4 and v.dim() > 1:
                values.append(v[0])
            else:
                values.append(v * 1)
        return [v + 0 for v in values]
    agree(fn, (4, 4))
