"""Recordings that share memory: what one writes over, nobody holds. The pool is that of ``pool.py``, in which a replay leaves rubbish."""
from __future__ import annotations

import pytest
import torch

from minipt2.inductor import cudagraphs, recorder
from minipt2.inductor.cudagraphs import Replayed
from minipt2.inductor.recorder import Inputs, NotRecorded
from tests.inductor.pool import Pool

N = 1000


def forward(args):
    x, w = args
    args.clear()
    h = x * w
    g = h.tanh()
    return [g.sum(), h, g]


def backward(args):
    h, g, t = args
    args.clear()
    return [(1 - g * g) * t, h * t]


class Step:
    """A forward that saves two tensors and shows a sum, and its backward; ``grads`` as autograd calls them."""

    def __init__(self, pool, backward=backward):
        self.w = torch.randn(N)
        self.forward, self.backward = Replayed(forward, [1], (), 1, "forward", pool), Replayed(backward, (), (), 0, "backward", pool)

    def saved(self, x):
        loss, *saved = self.forward([x, self.w])
        torch.testing.assert_close(loss, (x * self.w).tanh().sum())
        return saved

    def grads(self, saved, t):
        inputs = [*saved, t]
        saved.clear()
        return self.backward(inputs)

    def right(self, x, t, grads):
        h = x * self.w
        torch.testing.assert_close(grads, [(1 - h.tanh() ** 2) * t, h * t])


def numbers():
    return torch.randn(N), torch.randn(N)


@pytest.fixture
def pool():
    yield Pool(scratch=64)
    cudagraphs._leaving.clear()


def test_a_backward_takes_over_what_its_forward_saved(pool):
    step = Step(pool)
    for k in range(5):
        x, t = numbers()
        step.right(x, t, step.grads(step.saved(x), t))
    back, = step.backward.recordings[()]
    assert len(back.lenders) == 1 and [i for i, _ in back.buffers] == [2] and pool.recorded == 2
    pool.give_back()
    assert len(pool.blocks) == 2 and pool.map.high < 4 * 4 * N + 256  # the gradients lie where saved tensors and the tangent lay
    assert len(step.forward.recordings[()]) == 1


def test_steps_of_two_models_lie_in_the_same_memory(pool):
    a, b = Step(pool), Step(pool)
    for k in range(3):
        x, t = numbers()
        a.right(x, t, a.grads(a.saved(x), t))
    high = pool.map.high
    for k in range(6):
        for step in (a, b):
            x, t = numbers()
            step.right(x, t, step.grads(step.saved(x), t))
    assert pool.map.high <= high + 2 * 4096 and pool.apart == 0  # each keeps its two gradients


@pytest.mark.parametrize("first", [0, 1])
def test_two_models_forwards_before_their_backwards(pool, first):
    a, b = Step(pool), Step(pool)
    for k in range(3):
        for step in (a, b):
            x, t = numbers()
            step.right(x, t, step.grads(step.saved(x), t))
    for k in range(5):
        (x, t), (y, s) = numbers(), numbers()
        of_a, of_b = a.saved(x), b.saved(y)
        for step, saved, x, t in [(a, of_a, x, t), (b, of_b, y, s)][::1 - 2 * first]:
            step.right(x, t, step.grads(saved, t))
    assert pool.apart and pool.recorded < 9


def test_two_forwards_of_one_model_before_their_backwards(pool):
    step = Step(pool)
    for k in range(3):
        x, t = numbers()
        step.right(x, t, step.grads(step.saved(x), t))
    for k in range(5):
        (x, t), (y, s) = numbers(), numbers()
        first, second = step.saved(x), step.saved(y)
        for saved, x, t in [(first, x, t), (second, y, s)][::1 - 2 * (k % 2)]:
            step.right(x, t, step.grads(saved, t))
    assert pool.recorded <= 6


def test_gradients_that_are_kept(pool):
    """Added to, as autograd does, or held while the next forward runs."""
    step = Step(pool)
    for k in range(6):
        (x, t), (y, s) = numbers(), numbers()
        kept = step.grads(step.saved(x), t)
        more = step.grads(step.saved(y), s)
        step.right(x, t, kept)
        step.right(y, s, more)
        del kept, more
    assert pool.recorded == 2 and pool.moved == 2  # once; then they are copied


def test_gradients_that_nobody_holds_are_not_moved(pool):
    step = Step(pool)
    for k in range(6):
        (x, t), (y, s) = numbers(), numbers()
        first, second = step.grads(step.saved(x), t)
        kept = [first, second.clone()]
        del first, second
        step.right(y, s, step.grads(step.saved(y), s))
        step.right(x, t, kept)
        del kept
    assert pool.recorded == 2 and pool.moved == 1


def test_saved_tensors_that_somebody_else_holds_are_not_taken_over(pool):
    step = Step(pool)
    for k in range(3):
        x, t = numbers()
        saved = step.saved(x)
        held = list(saved)
        step.right(x, t, step.grads(saved, t))
        torch.testing.assert_close(held[0], x * step.w)
        del held
    assert not step.backward.recordings[()][0].lenders


def test_saved_tensors_that_are_held_later_are_not_written_over(pool):
    """A graph that is retained: its backward runs twice."""
    step = Step(pool)
    for k in range(6):
        x, t = numbers()
        saved = step.saved(x)
        if k < 3:
            step.right(x, t, step.grads(saved, t))
            continue
        held = list(saved) if k % 2 else [s.view(-1) for s in saved]
        step.right(x, t, step.grads(saved, t))
        torch.testing.assert_close(held[0], x * step.w)
        again = [*held]
        held.clear()
        step.right(x, t, step.grads(again, t))


def test_an_object_that_a_hook_holds_keeps_the_forward_from_being_replayed(pool):
    step = Step(pool)
    for k in range(4):
        x, y = torch.randn(N), torch.randn(N)
        held = step.saved(x)  # only Python's references tell
        step.saved(y)
        torch.testing.assert_close(held[0], x * step.w)


def test_what_was_saved_is_right_where_recording_fails_behind_it(pool):
    step, record = Step(pool), pool.record

    def refuse(fn, inputs, *how):
        inputs.clear()
        raise RuntimeError("out of memory")
    for k in range(5):
        x, t = numbers()
        saved = step.saved(x)
        pool.record = refuse if k < 3 else record
        step.right(x, t, step.grads(saved, t))
        pool.record = record
    assert step.backward.recordings[()]


def test_nothing_is_recorded_over_what_is_held_in_free_memory(pool):
    """A graph met for the first time between a forward and its backward."""
    step, other = Step(pool), Step(pool)
    for k in range(3):
        x, t = numbers()
        step.right(x, t, step.grads(step.saved(x), t))
    other.saved(torch.randn(N))
    x, t = numbers()
    saved = step.saved(x)
    other.saved(torch.randn(N))
    assert other.forward.recordings[()][0].apart
    step.right(x, t, step.grads(saved, t))


def test_what_a_recording_saved_outlives_its_place_among_sizes(pool):
    def sized(args):
        n, x = args
        args.clear()
        return [x[:n].sum(), x[:n] * 2]
    first, back = Replayed(sized, (), (), 1, "forward", pool), Replayed(lambda args: [args.pop() + args.pop()], (), (), 0, "backward", pool)
    x = torch.randn(N)

    def saved(n):
        return first([n, x])[1:]
    for _ in range(3):
        assert torch.equal(back([1, *saved(5)])[0], x[:5] * 2 + 1)
    held = saved(5)
    for n in range(10, 10 + 3 * cudagraphs.MOST_SIZES):
        for _ in range(4):
            assert torch.equal(back([n, *saved(n)])[0], x[:n] * 2 + n)
    assert (5,) not in first.recordings
    assert torch.equal(held[0], x[:5] * 2)


def test_results_that_are_inputs_are_found_without_holding_them():
    x, y = torch.randn(3), torch.randn(3)
    named = Inputs([x, 3, y], [2])
    assert named.result(x) == (None, 0) and named.result(3) == (3, None)
    assert named.part(y[1:]) and not named.part(x[1:])
    del x, y
    z = torch.randn(3)
    assert named.result(z)[0] is z and not named.part(z)


def test_inputs_on_a_cpu_are_named():
    with pytest.raises(NotRecorded, match="cpu"):
        recorder.recorder_of([torch.ones(1)])
