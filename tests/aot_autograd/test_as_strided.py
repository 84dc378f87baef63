"""``as_strided`` looks at a storage: in compiled code a value's place in memory is not the one it has in eager."""
import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.aot_autograd import aot_eager
from minipt2.config import config
from minipt2.errors import Unsupported

from ..compare import check
from .lifting import graph_of

X = torch.arange(48.0)
CASES = {
    "of a slice, from the storage's start": lambda x: (x + 1)[2:].as_strided((3,), (1,), 0) * 2,
    "of a slice, beyond it": lambda x: (x + 1)[2:5].as_strided((7,), (2,), 20) * 2,
    "of a slice, from its start": lambda x: (x + 1)[2:].as_strided((3,), (1,)) * 2,
    "overlapping windows": lambda x: (x * 2).as_strided((4, 3, 5), (8, 2, 1), 3) + 1,
    "of a permuted value": lambda x: (x * 2).reshape(6, 8).t().as_strided((4, 3, 5), (8, 2, 1), 3) + 1,
    "of an expanded value": lambda x: (x * 2).reshape(48, 1).expand(48, 3).as_strided((4, 3), (2, 1)) + 1,
    "of a channels-last result": lambda x: F.avg_pool2d(x.reshape(1, 4, 4, 3).permute(0, 3, 1, 2), 2).as_strided((2, 3), (2, 1)) + 1,
    "of a value with gaps": lambda x: (x * 2).reshape(6, 8)[:, :4].as_strided((5, 4), (8, 1), 8) + 1,
    "of a written value": lambda x: (y := x * 2, y[3:9].mul_(3), y[1:].as_strided((5, 3), (2, 1), 1) + 1)[2],
    "one element": lambda x: (x * 2).as_strided((), (), 7) + 1,
}


@pytest.mark.parametrize("case", CASES)
def test_value_made_by_the_graph(case):
    check(CASES[case], X.clone().requires_grad_(), grad=True)


def test_views_as_inputs():
    check(lambda x: x.as_strided((3,), (1,)) * 2, X[4:])
    for offset in (0, 2, 6):
        f = lambda x: x.as_strided((3,), (1,), offset) * 2
        torch.testing.assert_close(minipt2.compile(f)(X[4:]), f(X[4:]))


def pairs(x):
    return torch.view_as_complex(x.view(-1, 2))


WRITTEN = {
    "through windows of a part that was written": lambda x: (y := x * 2, p := y.view(4, 3)[2:], p.mul_(2), p.unfold(0, 1, 1).add_(1), y)[-1:],
    "through an expanded part that was written": lambda x: (y := x * 2, p := y[4:], p.mul_(2), p.expand(2, 8)[0].add_(1), y)[-1:],
    "of a part seen as complex": lambda x: (c := pairs(x * 2)[1:], c.as_strided((2, 2), (1, 1), 0) * 1, c.as_strided((2, 2), (1, 1), 2) * 1)[1:],
    "of a written part seen as complex": lambda x: (y := x * 2, c := pairs(y)[1:5], c.mul_(2), c.as_strided((2, 2), (1, 2), 1).mul_(3), y)[-1:],
    "of a copy of an input": lambda x: (y := torch.zeros(x.shape), y.copy_(x), y.as_strided((2,), (1,), 1) * 1)[2:],
    "of an input, before it is written": lambda x: (v := x.as_strided((2, 2), (1, 2), x.storage_offset() + 1), x.mul_(2), v * 1)[2:],
    "of a written input": lambda x: (x.mul_(2), x.as_strided((2, 2), (4, 1), x.storage_offset() + 1) * 1)[1:],
    "of a part of an input, writing there": lambda x: (x[2:].as_strided((2,), (1,), x.storage_offset() + 4).fill_(7), x * 1)[1:],
    "from the start of a part of an input, writing there": lambda x: (x[2:].as_strided((2,), (2,)).fill_(7), x * 1)[1:],
}


def part(memory, offset, stride=1):
    return memory.as_strided((12,), (stride,), offset)


@pytest.mark.parametrize("case", WRITTEN)
def test_written(case):
    """Compiled for an input that lies somewhere in its storage, called with one there and with one elsewhere."""
    fn = WRITTEN[case]
    for example in (0, 5):
        with config.patch(raise_internal_errors=True):
            run = aot_eager(graph_of(lambda x: fn(x), 1), [part(X.clone(), example)])
        ours, eager = X.clone(), X.clone()
        torch.testing.assert_close(run(part(ours, example)), fn(part(eager, example)))
        assert torch.equal(ours, eager)


def test_an_input_that_begins_elsewhere_in_its_storage_runs_eagerly():
    fn = lambda x: (x.mul_(2), x.as_strided((2,), (1,), 6) * 1)[1:]  # noqa: E731
    with config.patch(raise_internal_errors=True):
        run = aot_eager(graph_of(fn, 1), [part(X.clone(), 5)])
    for offset in (5, 0, 6):
        ours, eager = X.clone(), X.clone()
        torch.testing.assert_close(run(part(ours, offset)), fn(part(eager, offset)))
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("offset, stride, fn", [
    (5, 1, lambda x: (x.mul_(2), x.as_strided((2,), (1,), 0) * 1)[1:]),  # in front of the input
    (0, 1, lambda x: (x.as_strided((2,), (1,), 11).zero_(), x * 1)[1:]),  # behind it
    (0, 2, lambda x: (v := x.as_strided((2,), (1,), 0), x.mul_(2), v * 1)[2:]),  # in its gaps
    (0, 2, lambda x: (x.as_strided((2,), (1,)).zero_(), x * 1)[1:]),
])
def test_memory_that_is_not_the_input_s_is_left_to_eager(offset, stride, fn):
    with config.patch(raise_internal_errors=True), pytest.raises(Unsupported, match="MP502"):
        aot_eager(graph_of(fn, 1), [part(X.clone(), offset, stride)])


def test_gradients_of_a_view_that_autograd_makes_anew_are_left_to_eager():
    def fn(x):
        part = x.view(6, 2)[:, 0]
        strided = part.as_strided((2,), (1,), 0)
        with torch.no_grad():
            part.add_(1)
        return (strided,)
    with config.patch(raise_internal_errors=True), pytest.raises(Unsupported, match="MP502"):
        aot_eager(graph_of(fn, 1), [part(X.clone(), 0).clone().requires_grad_()])


@pytest.mark.parametrize("fn", [
    lambda x: (y := x * 2, v := y[:3].as_strided((2, 2), (1, 2), 2), y.zero_(), v)[3:],  # its gradient
    lambda x: (x.view(3, 4).diagonal().unfold(0, 2, 1).sin_(), x * 1)[1:]])  # its value
def test_what_eager_does_in_its_own_way_is_left_to_eager(fn):
    with config.patch(raise_internal_errors=True), pytest.raises(Unsupported, match="MP502"):
        aot_eager(graph_of(fn, 1), [part(X.clone(), 0)])
