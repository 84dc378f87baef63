import ctypes

import torch

from minipt2.course.checks import same
from minipt2.inductor.cudagraphs import MOST_RECORDINGS, Replayed


def at(tensor):
    """Memory by its address alone, as a recording knows it."""
    memory = (ctypes.c_char * (tensor.numel() * tensor.element_size())).from_address(tensor.data_ptr())
    return torch.frombuffer(memory, dtype=tensor.dtype).view(tensor.shape)


def record(fn, inputs):
    """A recorder for the CPU: results go, at each replay, where they went when it was recorded."""
    places = [at(a) if isinstance(a, torch.Tensor) else a for a in inputs]
    results = fn(inputs.copy())
    outs = [at(r) if isinstance(r, torch.Tensor) and all(r is not a for a in inputs) else None for r in results]

    def replay():
        for out, result in zip(outs, fn(places.copy())):
            if out is not None:
                out.copy_(result)
    return replay, results


def replayed(fn, static=(), shown=0):
    runs = []

    def counted(args):
        runs.append(1)
        return fn(args)
    return Replayed(counted, static, (), shown, "test", record), runs


def double(args):
    x, = args
    args.clear()
    return [x * 2, x.sum()]


def test_present_inputs():
    """Not those that were recorded."""
    call, _ = replayed(double)
    for k in range(6):
        args = [torch.full((3,), float(k))]
        y, total = call(args)
        same([y.clone(), total.clone()], [torch.full((3,), 2.0 * k), torch.tensor(3.0 * k)])
        same(args, [], where="the list, which the callee owns")
        del y, total


def test_the_first_call_is_not_recorded():
    """Kernels load, libraries make their workspaces; the second one is."""
    call, _ = replayed(double)
    call([torch.ones(2)])
    same([len(family) for family in call.recordings.values()], [0])
    call([torch.ones(2)])
    same([len(family) for family in call.recordings.values()], [1])
    call([torch.ones(2)])
    same([len(family) for family in call.recordings.values()], [1], where="recordings after a third call")


def test_earlier_results_survive():
    """They are still held: another recording is made."""
    call, _ = replayed(double)
    call([torch.ones(2)])
    kept = [call([torch.full((2,), float(k))])[0] for k in range(3)]
    same([t.clone() for t in kept], [torch.full((2,), 2.0 * k) for k in range(3)])


def test_too_many_held_results():
    """Then calls run as they are, and are right."""
    call, _ = replayed(double)
    kept = [call([torch.full((2,), float(k))])[0] for k in range(MOST_RECORDINGS + 3)]
    same([t.clone() for t in kept], [torch.full((2,), 2.0 * k) for k in range(MOST_RECORDINGS + 3)])


def scaled(args):
    w, x = args
    args.clear()
    return [w * x]


def test_parameters_that_move():
    """Read in place; at another address there is another recording."""
    call, _ = replayed(scaled, static=[0])
    w, moved = torch.full((2,), 3.0), torch.full((2,), 5.0)
    for k in range(4):
        same(call([w, torch.full((2,), float(k))])[0].clone(), torch.full((2,), 3.0 * k))
    for k in range(4):
        same(call([moved, torch.full((2,), float(k))])[0].clone(), torch.full((2,), 5.0 * k))
    w.fill_(7.0)
    same(call([w, torch.ones(2)])[0].clone(), torch.full((2,), 7.0), where="a parameter that was written in place")


def test_shown_results_are_copies():
    """What a user sees may be kept for ever, and written."""
    call, _ = replayed(double, shown=2)
    call([torch.ones(2)])
    kept = []
    for k in range(6):
        y, _ = call([torch.full((2,), float(k))])
        kept.append(y)
    same(kept, [torch.full((2,), 2.0 * k) for k in range(6)])
    same([len(family) for family in call.recordings.values()], [1])


def test_sizes_have_recordings_of_their_own():
    """Numbers among the arguments are part of what was recorded."""
    def power(args):
        x, n = args
        args.clear()
        return [x ** n]
    call, _ = replayed(power)
    for _ in range(3):
        for n in (2, 3):
            same(call([torch.full((2,), 2.0), n])[0].clone(), torch.full((2,), 2.0 ** n))
    same(sorted(call.recordings), [(2,), (3,)])
