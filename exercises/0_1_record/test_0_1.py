import torch

from minipt2.course.checks import same
from minipt2.course.toy import Recorder, build, record

aten = torch.ops.aten


def recorded(fn, *args):
    with Recorder() as recorder:
        out = fn(*args)
    return recorder.calls, out


def test_operators_in_order():
    """Every operator, in the order they ran; composite functions arrive as what they are made of."""
    calls, _ = recorded(lambda x: torch.relu(x + 1) @ x.t(), torch.randn(3, 3))
    same([c.func for c in calls], [aten.add.Tensor, aten.relu.default, aten.t.default, aten.mm.default])


def test_keyword_arguments_are_kept():
    """``alpha=2`` and ``dtype=`` are part of what was computed."""
    calls, _ = recorded(lambda x: torch.add(x, x, alpha=3).sum(0, dtype=torch.float64), torch.randn(2, 2))
    same(dict(calls[0].kwargs), {"alpha": 3})
    same(dict(calls[1].kwargs), {"dtype": torch.float64})


def test_no_keyword_arguments_is_an_empty_dict():
    """Whoever reads the log need not ask for None."""
    calls, _ = recorded(lambda x: x * x, torch.randn(2))
    same(dict(calls[0].kwargs), {})


def test_the_result_is_the_object_logged():
    """Later calls find their arguments by identity."""
    calls, out = recorded(lambda x: (x * 2).cos(), torch.randn(2))
    assert calls[1].result is out, "the result that was returned is another object than the logged one"
    assert calls[1].args[0] is calls[0].result


def test_each_operator_runs_once():
    """An in-place operator that ran twice would count twice."""
    x = torch.zeros(3)
    calls, _ = recorded(lambda t: t.add_(1), x)
    same(x, torch.ones(3))
    same(len(calls), 1)


def test_several_results():
    """Some operators give a tuple."""
    calls, out = recorded(lambda x: x.max(0), torch.randn(3, 2))
    same(list(calls[0].result), list(out))


def test_a_recording_runs_again():
    """The rest of the toy on your log, with new numbers."""
    def fn(x, y):
        return torch.add(x * y, y, alpha=2).softmax(0)
    run = build(record(fn, [torch.randn(4, 3), torch.randn(4, 3)]))
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    same(run(x, y)[0], fn(x, y), rtol=1e-5, atol=1e-6)
