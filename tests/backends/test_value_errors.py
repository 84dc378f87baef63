"""What eager raises because of the values of tensors: compiled code raises it too, and leaves inputs as eager leaves them."""
import warnings

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.config import config

ROWS = torch.tensor([0, 3])
OUTSIDE, NEGATIVE = torch.tensor([0, 9]), torch.tensor([0, -1])


@pytest.fixture(autouse=True)
def as_users_have_it():
    with config.patch(raise_internal_errors=False), warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", "The .grad attribute")  # torch's own, about fake copies of tensors that are no leaves
        yield


def outcome(f, args):
    try:
        return f(*args), None
    except Exception as error:
        return None, error


def same(f, *args):
    """Compiled ``f`` gives, raises and writes what ``f`` does; returns what was raised."""
    ours = [a.clone() for a in args]
    theirs = [a.clone() for a in args]
    expected, error = outcome(f, theirs)
    found, raised = outcome(minipt2.compile(f), ours)
    assert type(raised) is type(error) and str(raised) == str(error)
    torch.testing.assert_close((found, ours), (expected, theirs), equal_nan=True)
    return raised


def one_kernel(f, *args):
    """What ``same`` says of ``f``, with the whole of it compiled as one graph."""
    minipt2.reset()
    raised = same(f, *args)
    counted = minipt2.counters()
    assert (counted["graphs"], counted["breaks"], counted["fallbacks"]) == (1, 0, 0) and counted["kernels"] > 0
    return raised


# ------------------------------------------------------------------ operators that check values and return nothing
POSITIVE = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
CHECKED = {
    "inv": lambda a: torch.linalg.inv(a + 0) * 2,
    "cholesky": lambda a: torch.linalg.cholesky(a + 0) * 2,
    "solve": lambda a: torch.linalg.solve(a + 0, a.sin()) * 2,
    "lu_factor": lambda a: torch.linalg.lu_factor(a + 0)[0] * 2,
    "a result nobody reads": lambda a: (torch.linalg.cholesky(a), a + 1)[1],
}


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_linear_algebra_is_checked_in_compiled_graphs(name, mode):
    minipt2.reset()
    good, bad = (t.requires_grad_(mode == "training") for t in (POSITIVE.clone(), torch.zeros(2, 2)))
    assert same(CHECKED[name], good) is None
    assert isinstance(same(CHECKED[name], bad), RuntimeError)
    counted = minipt2.counters()
    assert counted.get("aot_fallbacks", 0) == 0 and counted["breaks"] == 0 and counted["kernels"] > 0


def test_gradients_through_checked_operators():
    a, b = POSITIVE.clone().requires_grad_(), POSITIVE.clone().requires_grad_()
    f = lambda t: torch.linalg.inv(t * 2).sin().sum()  # noqa: E731
    minipt2.compile(f)(a).backward()
    f(b).backward()
    torch.testing.assert_close(a.grad, b.grad)


def test_a_check_of_parameters_alone_is_made_anew_when_they_change():
    class Solver(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(POSITIVE.clone())

        def forward(self, x):
            return torch.linalg.solve(self.weight, x) + torch.linalg.inv(self.weight)

    module, x = Solver(), torch.ones(2, 2)
    compiled = minipt2.compile(module)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
        module.weight.zero_()
        with pytest.raises(torch.linalg.LinAlgError):
            compiled(x)
        module.weight.copy_(POSITIVE)
        torch.testing.assert_close(compiled(x), module(x))


def asserting(x):
    torch._assert_async((x > 0).all(), "must be positive")
    return x.sin() + 1


def asserting_by_operator(x):
    torch.ops.aten._functional_assert_async.msg(x.sum() > 0, "sum must be positive", x.new_empty(0))
    return x.sin() + 1


@pytest.mark.parametrize("f", [asserting, asserting_by_operator])
def test_assertions_on_tensors(f):
    assert one_kernel(f, torch.ones(3)) is None
    assert "must be positive" in str(one_kernel(f, -torch.ones(3)))


# ------------------------------------------------------------------ operators that became loops
VALUES = {
    "binary_cross_entropy input": (lambda x, t: F.binary_cross_entropy(x + 0, t), torch.tensor([0.5, 1.5]), torch.tensor([0.0, 1.0])),
    "binary_cross_entropy NaN": (lambda x, t: F.binary_cross_entropy(x + 0, t), torch.tensor([0.5, float("nan")]), torch.tensor([0.0, 1.0])),
    "binary_cross_entropy target": (lambda x, t: F.binary_cross_entropy(x + 0, t), torch.tensor([0.5, 0.5]), torch.tensor([0.0, -1.0])),
    "one_hot beyond": (lambda x, i: F.one_hot(i, 4) * x.sum(), torch.ones(2), OUTSIDE),
    "one_hot negative": (lambda x, i: F.one_hot(i, 4) * x.sum(), torch.ones(2), NEGATIVE),
    "masked_scatter": (lambda x, s: x.masked_scatter(x > 0, s) * 2, torch.ones(4), torch.ones(2)),
    "integer division": (lambda x, y: x // (y * 2), torch.tensor([1, 2]), torch.tensor([0, 1])),
    "embedding negative": (lambda x, i: F.embedding(i, x.reshape(4, 1)) * 2, torch.ones(4), NEGATIVE),
    "embedding beyond": (lambda x, i: F.embedding(i, x.reshape(4, 1)) * 2, torch.ones(4), OUTSIDE),
    "gather negative": (lambda x, i: x.gather(0, i) * 2, torch.ones(4), NEGATIVE),
    "index_select negative": (lambda x, i: x.index_select(0, i) * 2, torch.ones(4), NEGATIVE),
    "scatter negative": (lambda x, i: x.scatter(0, i, 1.0) * 2, torch.ones(4), NEGATIVE),
    "index beyond": (lambda x, i: x[i] * 2, torch.ones(4), OUTSIDE),
    "cross_entropy negative": (lambda x, i: F.cross_entropy(x.reshape(2, 2), i), torch.ones(4), NEGATIVE),
    "cross_entropy beyond": (lambda x, i: F.cross_entropy(x.reshape(2, 2), i), torch.ones(4), OUTSIDE),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_out_of_range(name):
    f, *args = VALUES[name]
    assert one_kernel(f, *args) is not None


@pytest.mark.parametrize("name, f, args", [
    ("one_hot", lambda i: F.one_hot(i, 4) * 2, [ROWS]),
    ("index", lambda x, i: x[i - 4] * 2, [torch.ones(4), ROWS]),
    ("masked_scatter", lambda x, s: x.masked_scatter(x > 0, s) * 2, [torch.tensor([1.0, -1.0, 2.0]), torch.tensor([5.0, 6.0])]),
    ("binary_cross_entropy", lambda x, t: F.binary_cross_entropy(x, t), [torch.tensor([0.0, 1.0]), torch.tensor([0.0, 1.0])]),
    ("ignored target", lambda x, i: F.cross_entropy(x, i), [torch.ones(2, 2), torch.tensor([0, -100])]),
])
def test_values_at_the_edge_of_their_range(name, f, args):
    assert one_kernel(f, *args) is None


def test_a_negative_power_of_integers():
    assert isinstance(same(lambda x: x ** -1, ROWS + 1), RuntimeError)
    assert same(lambda x: x ** 2 + 2 ** x, ROWS) is None


# ------------------------------------------------------------------ what is left behind
def write_read_write(written, x, rows):
    written.add_(1)
    y = x[rows]
    written.mul_(3)
    return y + 1


def write_sum(written, x, rows):
    written.add_(x[rows].sum())
    return x + 1


def write_at(written, x, rows):
    written[rows] = x[:2]
    return x + 1


def write_between(written, x, rows):
    written.add_(1)
    root = torch.linalg.cholesky(x.diag())
    written.add_(2)
    return root * 2


@pytest.mark.parametrize("f, x, rows", [
    (write_read_write, torch.ones(4), OUTSIDE), (write_sum, torch.ones(4), OUTSIDE), (write_at, torch.ones(4), OUTSIDE),
    (write_between, -torch.ones(4), ROWS), (write_read_write, torch.ones(4), ROWS),
])
def test_inputs_written_before_the_failure_and_no_others(f, x, rows):
    assert (same(f, torch.zeros(4), x, rows) is None) is (f is write_read_write and rows is ROWS)


def test_a_failure_after_inputs_were_written_keeps_its_type():
    norm = torch.nn.BatchNorm1d(4)
    f = minipt2.compile(lambda x, target: F.cross_entropy(norm(x), target))
    with pytest.raises(IndexError):
        f(torch.randn(8, 4), torch.full((8,), 9))
    assert norm.num_batches_tracked == 1


OUT_OF_RANGE = {
    "gather": lambda x, i: torch.gather(x, 0, i), "scatter": lambda x, i: torch.scatter(x, 0, i, 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i, torch.ones(2, 3)), "index_select": lambda x, i: torch.index_select(x, 0, i[0]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x, "amax"), "embedding": lambda x, i: torch.nn.functional.embedding(i, x),
}


@pytest.mark.parametrize("backend", ["inductor", "numpy"])
@pytest.mark.parametrize("bad", [-1, 2])
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_indices_out_of_range(name, bad, backend, fresh):
    """What eager's kernel raises, IndexError or RuntimeError; negative indices do not count from the end, written inputs or not."""
    def f(x, i):
        x.mul_(2)
        return OUT_OF_RANGE[name](x, i) * 2
    index = torch.tensor([[0, bad, 1], [0, 0, 0]])
    with pytest.raises((RuntimeError, IndexError)) as expected:
        f(torch.ones(2, 3), index)
    with pytest.raises(expected.type, match="index"):
        minipt2.compile(f, backend=backend)(torch.ones(2, 3), index)
