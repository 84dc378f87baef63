"""Sizes and numbers that depend on data: in the graph where nothing asks for them, a break where something does."""
from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.errors import Unsupported

from tests.compare import assert_same


def item_as_a_size(x):
    return torch.zeros(x[0].long().abs().item()) + x.sum()


def positions(x):
    y = x.relu()
    return y.nonzero() * 2, y + 1


def masked(x):
    y = x[x > 0]
    return torch.cat([y, y * 3]), y.shape[0], y.numel() * 2


def unique(x):
    values, where = torch.unique(x.detach().round(), return_inverse=True)
    return values.sin(), where + 1


def repeated(x):
    return torch.repeat_interleave(x, (x > 0).long() + 1).exp()


def scaled_by_a_float(x):
    return x / x.abs().max().item()


def checked(x):
    n = x[0].long().abs().item()
    torch._check(n >= 1)
    torch._check(n <= x.shape[0])
    return x[:n] * 2, n


def without_gradients(x):
    with torch.no_grad():
        chosen = (x > x.mean()).nonzero().squeeze(-1)
    return x[chosen] * 2


def several_in_a_row(x):
    y = x[x > -1]
    z = y[y < 1] + 1
    return (z * int(z.detach().sum() * 0 + 2)).sum(), y.sum() * float(y.detach().sum())


def compared_as_wholes(x):
    positive = (x > 0).all().item()
    return torch.equal(x, x * 1), x.allclose(x + 1), torch.equal(x, x[1:]), positive, x * positive


def counted(x):
    return torch.bincount(x.detach().abs().long(), minlength=3) * 2, torch.bincount(x.detach().abs().long(), x.detach()).sin()


def aligned(x):
    """A sum over alignments of targets whose lengths are in a tensor."""
    log_probs = (x[:, None, None] * torch.arange(12.0).view(1, 3, 4)).log_softmax(-1)
    lengths = x.detach()[:3].abs().long().clamp(1, 3)
    targets = torch.ones(3, 3, dtype=torch.long)
    return torch.nn.functional.ctc_loss(log_probs, targets, torch.tensor([7, 7, 7]), lengths), x + lengths.sum()


def solved(x):
    a = x[:6].view(3, 2)
    return torch.linalg.lstsq(a, a * 2 + 1), torch.linalg.lstsq(a.detach(), a.detach() + 1, driver="gelsd")


def under_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = torch.outer(x, x) @ torch.outer(x, x)
        z = y[y[:, 0] > 0]
        with torch.no_grad():
            where = (z.sum(1) > 0).nonzero().squeeze(-1)
        z = z[where] @ y.t()
        with torch.autocast("cpu", enabled=False):
            w = torch.outer(x, x) @ x[x > -100].sum().expand(x.shape)
    return z, w, torch.outer(x, x) @ x


def read_one_by_one(x):
    a, b = x[:2].long().abs().tolist()
    return torch.zeros(a), torch.ones(b) + x.sum(), x[:1].detach().tolist(), x.sum().detach().tolist()


def split_as_data_say(x):
    first = x[0].long().abs()
    sizes = torch.stack([first, x.numel() - first]).tolist()
    return [part.sum() for part in x.split(sizes)], x.split_with_sizes(sizes)[1] * 2


def one_hot_of_unknown_width(x):
    return F.one_hot(x.detach().long().abs()).sum(0), F.one_hot(x.detach().long().abs() % 3, 3) * x[:, None]


CAPTURED = [compared_as_wholes, counted, aligned, solved, item_as_a_size, positions, masked, unique, repeated, scaled_by_a_float, checked, without_gradients, several_in_a_row, under_autocast,
            read_one_by_one, split_as_data_say, one_hot_of_unknown_width]


def inputs(seed: int, size: int = 7, grad: bool = True) -> torch.Tensor:
    torch.manual_seed(seed)
    x = torch.randn(size) * 4
    x[0] = 2.5 + seed  # within what is checked
    return x.requires_grad_(grad)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", CAPTURED)
def test_one_graph_serves_whatever_comes_of_the_data(fn, backend, fresh):
    compiled = minipt2.compile(fn, backend=backend, fullgraph=True)
    for seed in range(3):
        x, y = inputs(seed), inputs(seed)
        want, got = fn(x), compiled(y)
        assert_same(want, got)
        if any(isinstance(w, torch.Tensor) and w.requires_grad for w in torch.utils._pytree.tree_leaves(want)):
            for result in (want, got):
                sum(t.sum() for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad).backward()
            torch.testing.assert_close(y.grad, x.grad)
    assert minipt2.counters()["recompiles"] == 0 and minipt2.counters().get("aot_fallbacks", 0) == 0


def branch(x):
    n = x[0].long().item()
    if n > 3:
        return x + 1
    return x - n


def loop(x):
    for k in range(x[0].long().item()):
        x = x + k
    return x


def subscript(x):
    return x * [1, 2, 3, 4, 5, 6][x[0].long().item()]


def view_that_may_not_fit(x):
    return x.view(x[0].long().item() + 5, -1)  # 7 rows for the sizes below


@pytest.mark.parametrize("fn, asked", [(branch, "u0 > 3"), (loop, "range of number u0"), (subscript, "u0"), (view_that_may_not_fit, "u0")])
def test_where_a_number_is_asked_for_the_graph_breaks(fn, asked, fresh):
    x = inputs(0, grad=False)
    with pytest.raises(Unsupported, match="depends on (a tensor's|tensor) data") as caught:
        minipt2.compile(fn, backend="eager", fullgraph=True)(x)
    assert asked in caught.value.reason and caught.value.frames[-1].file == __file__
    compiled = minipt2.compile(fn, backend="eager")
    for seed in (0, 2):
        x = inputs(seed, 7 + seed, grad=False)
        assert_same(fn(x), compiled(x))


def test_many_numbers_are_read_at_once_outside_the_graph(fresh):
    f = lambda x: x * sum(torch.cat([x, x, x]).tolist())
    compiled = minipt2.compile(f, backend="eager")
    assert_same(f(inputs(0, grad=False)), compiled(inputs(0, grad=False)))
    assert minipt2.counters()["breaks"] == 1


def test_a_width_of_classes_that_varies_with_a_size(fresh):
    f = lambda x, y: F.one_hot(x, y.shape[0]) + 1
    compiled = minipt2.compile(f, backend="aot_eager", fullgraph=True)
    for n in (5, 6, 7, 9):
        assert_same(f(torch.tensor([3, 0, n - 1]), torch.ones(n)), compiled(torch.tensor([3, 0, n - 1]), torch.ones(n)))
    assert minipt2.counters()["graphs"] == 2
    for wrong in (-1, 9):
        with pytest.raises(RuntimeError):
            compiled(torch.tensor([3, 0, wrong]), torch.ones(9))


def test_facts_are_checked_when_the_code_runs(fresh):
    compiled = minipt2.compile(checked, backend="aot_eager")
    compiled(inputs(0))
    with pytest.raises(RuntimeError, match="Expected"):
        compiled(torch.full((7,), 9.0))


def test_negative_sizes_are_refused(fresh):
    compiled = minipt2.compile(lambda x: torch.zeros(x[0].long().item()) + 1, backend="aot_eager")
    assert compiled(inputs(0)).shape == (2,)
    with pytest.raises(RuntimeError, match="u0 >= 0"):
        compiled(-inputs(0, grad=False))


def test_dynamic_false_breaks(fresh):
    compiled = minipt2.compile(masked, backend="eager", dynamic=False)
    assert_same(masked(inputs(0)), compiled(inputs(0)))
    assert minipt2.counters()["breaks"] == 1


def test_an_equality_that_is_relied_on_is_checked_too(fresh):
    def f(x, y):
        n = x[0].long().item()
        torch._check(n == y.shape[0], lambda: "the first number says how many")
        return torch.ones(n) + y

    compiled = minipt2.compile(f, backend="aot_eager", fullgraph=True, dynamic=True)
    for n in (3, 5):
        assert_same(f(torch.full((4,), float(n)), torch.randn(n) * 0), compiled(torch.full((4,), float(n)), torch.zeros(n)))
    with pytest.raises(RuntimeError, match="the first number says how many"):
        compiled(torch.full((4,), 6.0), torch.zeros(5))
    assert minipt2.counters()["graphs"] == 1


def test_a_size_that_shows_in_a_sum_only(fresh):
    def f(x):
        classes = torch.nn.functional.pad(x[x > 0], (1, 2))
        return classes, classes.shape[0] - 3

    compiled = minipt2.compile(f, backend="aot_eager", fullgraph=True)
    assert_same(f(inputs(1, grad=False)), compiled(inputs(1, grad=False)))


def test_sizes_that_do_not_add_up_are_refused(fresh):
    compiled = minipt2.compile(lambda x, sizes: x.split(sizes.tolist())[0] + 1, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(7), torch.tensor([3, 4])).shape == (3,)
    with pytest.raises(RuntimeError, match="u0 \\+ u1 == 7|== 7"):
        compiled(torch.ones(7), torch.tensor([3, 5]))
    with pytest.raises(RuntimeError):
        compiled(torch.ones(7), torch.tensor([-1, 8]))
    assert minipt2.counters()["graphs"] == 1
