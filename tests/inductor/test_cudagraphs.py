"""Replaying of recorded runs: the logic of it, with a recorder for the CPU that replays into the memory of the recorded results."""
from __future__ import annotations

import ctypes
import threading

import pytest
import torch

from minipt2 import trace
from minipt2.inductor import cudagraphs
from minipt2.inductor.cudagraphs import MOST_RECORDINGS, MOST_SIZES, Replayed


def at(tensor):
    """Memory by its address alone, as a recording knows it."""
    memory = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


def record(fn, inputs):
    """As a CUDA graph: what ``fn`` computes goes, at each replay, where it went when it was recorded."""
    places = [at(a) if isinstance(a, torch.Tensor) else a for a in inputs]
    results = fn(inputs.copy())
    fresh = [isinstance(r, torch.Tensor) and all(r is not a for a in inputs) for r in results]
    outs = [at(r) if new else None for r, new in zip(results, fresh)]

    def replay():
        for out, result in zip(outs, fn(places.copy())):
            if out is not None:
                out.copy_(result)
    return replay, results


def replayed(fn, static=(), written=(), shown=0):
    return Replayed(fn, static, written, shown, "test", record)


@pytest.fixture
def told():
    reasons = []
    unsubscribe = trace.subscribe(lambda stage, name, reason: reasons.append(reason), "cudagraphs")
    yield reasons
    unsubscribe()


def double(args):
    x, = args
    args.clear()
    return [x * 2, x.sum()]


def test_results_are_those_of_the_present_inputs():
    call = replayed(double)
    for k in range(6):
        x = torch.full((3,), float(k))
        args = [x]
        y, total = call(args)
        assert args == [] and y.tolist() == [2.0 * k] * 3 and total == 3 * k
        del y, total
    assert len(call.recordings[()]) == 1


def test_results_that_are_held_are_not_overwritten(told):
    call = replayed(double)
    held = [call([torch.full((3,), float(k))])[0] for k in range(MOST_RECORDINGS + 4)]
    assert [h[0].item() for h in held] == [2.0 * k for k in range(MOST_RECORDINGS + 4)]
    assert len(call.recordings[()]) == MOST_RECORDINGS
    assert len(told) == 3 and "still held" in told[0]
    held.clear()
    assert call([torch.ones(3)])[0][0] == 2 and len(told) == 3


def test_a_view_of_a_result_holds_it():
    call = replayed(double)
    call([torch.ones(3)])
    views = [call([torch.full((3,), float(k))])[0][1:] for k in range(3)]
    assert [v[0].item() for v in views] == [0.0, 2.0, 4.0]


def test_parameters_are_read_where_they_are():
    weight = torch.ones(3)
    call = replayed(lambda args: [args[0] * args[1]], static=[1])
    for k in range(4):
        weight.fill_(k)
        assert call([torch.ones(3), weight])[0][0] == k
    assert len(call.recordings[()]) == 1
    moved = torch.full((3,), 7.0)
    assert call([torch.ones(3), moved])[0][0] == 7
    assert call([torch.ones(3), weight])[0][0] == 3 and len(call.recordings[()]) == 2


def test_what_another_recording_made_is_read_in_place():
    forward, backward = replayed(double), replayed(lambda args: [args[0] + args[1]])
    for k in range(5):
        y, total = forward([torch.full((3,), float(k))])
        assert backward([y, torch.ones(3)])[0][0] == 2 * k + 1
        del y, total
    recording, = backward.recordings[()]
    assert [i for i, _ in recording.fixed] == [0] and [i for i, _ in recording.buffers] == [1]


def test_two_forwards_before_their_backwards():
    forward, backward = replayed(double), replayed(lambda args: [args[0] + 1])
    for k in range(4):
        a, b = forward([torch.full((3,), 1.0 + k)])[:1], forward([torch.full((3,), 10.0 + k)])[:1]
        assert backward(b)[0][0] == 21 + 2 * k and backward(a)[0][0] == 3 + 2 * k
        del a, b
    assert len(forward.recordings[()]) == 2


def test_gradients_may_be_kept_and_added_to():
    """As autograd does: takes over the first gradient's memory, adds the next to it."""
    call = replayed(lambda args: [args[0] * 3])
    for step in range(4):
        kept = call([torch.ones(2)])[0]
        for _ in range(3):
            kept += call([torch.ones(2)])[0]
        assert kept.tolist() == [12.0, 12.0]


def test_written_parameters_and_buffers():
    def fn(args):
        args[0].mul_(2)
        return [args[0], args[0] + 1]
    buffer = torch.ones(2)
    call = replayed(fn, static=[0], written=[0])
    for _ in range(4):
        own, more = call([buffer])
        assert own is buffer and torch.equal(more, buffer + 1)


def test_written_inputs_are_not_recorded(told):
    def fn(args):
        args[0].add_(1)
        return [args[0]]
    call = replayed(fn, written=[0])
    for _ in range(3):
        x = torch.zeros(2)
        assert call([x])[0] is x and x.tolist() == [1.0, 1.0]
    assert "input 0" in told[0]


def test_an_input_that_is_saved_is_the_callers():
    call = replayed(lambda args: [args[0] * 2, args[0]])
    for k in range(4):
        x = torch.full((2,), float(k))
        y, saved = call([x])
        assert saved is x and y[0] == 2 * k
        del y
    assert len(call.recordings[()]) == 1


def test_sizes_have_recordings_of_their_own(told):
    call = replayed(lambda args: [args[1][:args[0]] * 2])
    x = torch.arange(20.0)
    for _ in range(3):
        for n in range(2, MOST_SIZES + 4):
            assert call([n, x])[0].tolist() == [2.0 * i for i in range(n)]
    assert len(call.recordings) == MOST_SIZES and "tuples of sizes" in told[0]


def test_sizes_that_are_used_again_take_the_place_of_those_that_are_not(told):
    call = replayed(lambda args: [args[1][:args[0]] * 2])
    x = torch.arange(100.0)
    for _ in range(20):
        for n in range(1, MOST_SIZES + 1):
            call([n, x])
    for _ in range(20):
        assert call([50, x])[0].tolist() == [2.0 * i for i in range(50)]
    assert len(call.recordings[(50,)]) == 1 and (1,) not in call.recordings and len(told) == 1


def test_a_cache_that_grows_does_not_record_for_nothing():
    """Each size comes once a text: after a few recordings that nobody replayed, calls run as they are."""
    made = []

    def counted(fn, inputs):
        made.append(1)
        return record(fn, inputs)
    call = Replayed(lambda args: [args[1][:args[0]] * 2], (), (), 0, "test", counted)
    x = torch.arange(200.0)
    for _ in range(12):
        for n in range(100, 200):
            assert call([n, x])[0][-1] == 2 * (n - 1)
    assert len(made) < 10 * MOST_SIZES


def test_what_an_earlier_call_did_wrong_is_raised_before_a_replay():
    wrong = []

    def check():
        if wrong:
            raise wrong.pop()
    call = Replayed(double, (), (), 0, "test", record, check)
    for _ in range(3):
        call([torch.ones(2)])
    wrong.append(IndexError("index out of range in self"))
    with pytest.raises(IndexError, match="out of range"):
        call([torch.ones(2)])
    assert call([torch.ones(2)])[0].tolist() == [2.0, 2.0]


def test_nothing_and_numbers_are_results_too():
    call = replayed(lambda args: [None, 3, args[0] + 1])
    for _ in range(3):
        assert call([torch.zeros(1)])[:2] == [None, 3]


def test_what_cannot_be_recorded_runs_and_says_why(told):
    def refuse(fn, inputs):
        raise RuntimeError("operation not permitted when stream is capturing")
    call = Replayed(double, (), (), 0, "test", refuse)
    for _ in range(3):
        assert call([torch.ones(2)])[0][0] == 2
    assert len(told) == 2 and "not permitted" in told[0]


def test_what_cannot_be_recorded_is_tried_more_and_more_seldom(told):
    tries = []

    def refuse(fn, inputs):
        tries.append(1)
        if len(tries) < 4:
            raise RuntimeError("out of memory")
        return record(fn, inputs)
    call = Replayed(double, (), (), 0, "test", refuse)
    for k in range(20):
        assert call([torch.full((2,), float(k))])[0][0] == 2 * k
    assert len(tries) == 4 and len(told) == 1 + 2 + 4 + 8 - 1 and len(call.recordings[()]) == 1


def test_results_without_memory_of_their_own_are_not_recorded(told):
    """Sparse gradients, say."""
    call = replayed(lambda args: [args[0].to_sparse()])
    for k in range(3):
        assert call([torch.full((2,), 1.0 + k)])[0].to_dense().tolist() == [1.0 + k] * 2
    assert told


def test_errors_of_the_function_are_its_own():
    def fn(args):
        raise ValueError("mine")
    call = replayed(fn)
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            call([torch.ones(2)])


def test_a_second_thread_runs_plainly(told):
    entered, leave = threading.Event(), threading.Event()

    def fn(args):
        if args[0][0] == 5:
            entered.set()
            leave.wait(10)
        return [args[0] * 2]
    call = replayed(fn)
    call([torch.ones(1)])
    results = []
    thread = threading.Thread(target=lambda: results.append(call([torch.full((1,), 5.0)])[0]))
    thread.start()
    assert entered.wait(10)
    assert call([torch.ones(1)])[0][0] == 2 and told == ["another thread is in it"]
    leave.set()
    thread.join()
    assert results[0][0] == 10


def test_recordings_are_forgotten_with_their_function():
    call = replayed(double)
    call([torch.ones(3)])
    call([torch.ones(3)])
    before = len(cudagraphs._results)
    del call
    assert len(cudagraphs._results) == before - 2


def test_what_is_shown_is_copied():
    """A loss that is held does not keep the saved tensors' recording from being used."""
    call = replayed(lambda args: [args[0].sum(), args[0] * 2], shown=1)
    losses = []
    for k in range(6):
        loss, saved = call([torch.full((2,), float(k))])
        assert saved[0] == 2 * k
        losses.append(loss)
        del saved
    assert [loss.item() for loss in losses] == [2.0 * k for k in range(6)] and len(call.recordings[()]) == 1
