"""Symbolic sizes in capture: what becomes dynamic, what stays fixed, how many versions are compiled, and what guards they have."""
import copy
import math

import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2 import FixedSize, InvalidArgument
from minipt2.dynamo.cache import Meta, dynamic_dims

from dynamic_cases import run
from tests.compare import assert_same

pytestmark = pytest.mark.usefixtures("fresh")


def rows(sizes, width=3):
    return [(torch.randn(n, width),) for n in sizes]


# -- policy ------------------------------------------------------------------------------------------------------------
def test_the_sizes_that_differ_become_dynamic():
    meta = [Meta(shape, (1,) * len(shape)) for shape in ((2, 3, 4), (2, 5, 4), (2, 3), (1, 3, 9))]
    assert dynamic_dims(meta[0], meta[1]) == {1}
    assert dynamic_dims(meta[0], meta[3]) == {0, 2}
    assert dynamic_dims(meta[0], meta[2]) == dynamic_dims(meta[0], meta[0]) == set()
    assert dynamic_dims(torch.ones(2, 3), torch.ones(4, 3)) == {0}


def test_eight_sizes_take_two_versions():
    versions = run(lambda x: x.view(-1) * x.shape[0], rows(range(2, 10)))
    assert versions.guards == [[], ["s0 >= 2"]]
    assert versions.dynamic == ["L['x'].shape[0] is dynamic from now on: it was 2, then 3"]


def test_one_and_zero_are_sizes_of_their_own():
    def f(x):
        return x + x.shape[0]

    assert len(run(f, rows([1, 2, 3, 4]))) == 2
    assert len(run(f, rows([2, 3, 4, 1]))) == 3
    assert len(run(f, rows([3, 0, 4, 5]))) == 3


def test_dynamic_from_the_start():
    f = lambda x, n: x.sum(0) + n
    calls = [(torch.randn(a, b), n) for a, b, n in ((2, 3, 4), (5, 7, 9), (8, 2, -3))]
    assert len(run(f, calls, dynamic=True)) == 1
    assert len(run(f, calls, dynamic=False)) == 3
    assert len(run(f, [(torch.randn(1, 3), 1), (torch.randn(2, 4), 5)], dynamic=True)) == 2


def test_parameters_stay_static():
    def f(x, linear):
        return linear(x)

    calls = [(torch.randn(n, 4), torch.nn.Linear(4, width)) for n, width in ((2, 3), (5, 6), (7, 8))]
    versions = run(f, calls)
    assert len(versions) == 3 and not any("_parameters" in text for text in versions.dynamic)


def test_equal_sizes_share_a_symbol_and_are_guarded():
    f = lambda x, y: x + y
    versions = run(f, [(torch.randn(n), torch.randn(m)) for n, m in ((2, 2), (3, 3), (5, 5), (6, 1), (7, 1))])
    assert versions.guards[1] == ["s0 >= 2", "L['y'].shape[0] == s0"]
    assert len(versions) == 3


def test_another_rank_is_another_version():
    f = lambda x: x * 2
    versions = run(f, [(torch.randn(shape),) for shape in ((2, 3), (4,), (5, 3), (6,), (7, 3), (8,))])
    assert len(versions) == 4


# -- marks -------------------------------------------------------------------------------------------------------------
def test_marked_dimension_is_dynamic_at_once():
    calls = rows([4, 6, 1, 9])
    minipt2.mark_dynamic(calls[0][0], 0)
    versions = run(lambda x: x.relu() + x.shape[0], calls)
    assert versions.guards[0] == ["s0 >= 2"] and len(versions) == 2


def test_a_mark_after_a_fixed_version_compiles_one_that_serves_it():
    calls = [(torch.randn(3, 4),) for _ in range(4)] + [(torch.randn(5, 4),)]
    for k in (1, 2):
        minipt2.mark_dynamic(calls[k][0], 0)
    minipt2.mark_dynamic(calls[3][0], 1)
    versions = run(lambda x: x + 1, calls)
    assert versions.guards == [[], ["s0 >= 2"], ["s0 >= 2"]], versions.guards  # nothing, rows, columns: rows serve the last
    assert len(run(lambda x: x + 1, [(calls[k][0],) for k in (0, 1, 2)], dynamic=False)) == 1


def test_log_says_that_a_mark_was_not_served(caplog):
    minipt2.set_logs("recompiles")
    x = torch.randn(3)
    compiled = minipt2.compile(lambda x: x + 1, backend="eager")
    compiled(x)
    minipt2.mark_dynamic(x, 0)
    try:
        compiled(x)
    finally:
        minipt2.set_logs()
    assert "L['x']: another dimension was marked dynamic" in caplog.text


def test_marked_range_is_guarded():
    calls = rows([4, 8, 9, 2])
    minipt2.mark_dynamic(calls[0][0], 0, min=4, max=8)
    versions = run(lambda x: x.relu(), calls)
    assert versions.guards[0] == ["4 <= s0 <= 8"]
    assert len(versions) == 2


def test_marks_of_torch_compile_count():
    calls = rows([4, 6])
    torch._dynamo.mark_dynamic(calls[0][0], 0)
    assert len(run(lambda x: x.relu(), calls)) == 1
    static = rows([4, 6])
    torch._dynamo.mark_static(static[1][0], 0)
    assert len(run(lambda x: x.relu(), [*static, *rows([8])])) == 3


def test_static_dimensions_stay():
    calls = [(torch.randn(n, n + 1),) for n in (2, 3, 4)]
    for (x,) in calls:
        minipt2.mark_static(x, 0)
    versions = run(lambda x: x.relu(), calls)
    assert len(versions) == 3 and versions.guards[1] == ["s0 >= 2"]
    for (x,) in calls:
        minipt2.mark_static(x)
    assert run(lambda x: x.relu(), calls).guards == [[], [], []]


def test_marks_are_checked():
    x = torch.randn(3)
    with pytest.raises(InvalidArgument, match="no dimension 1"):
        minipt2.mark_dynamic(x, 1)
    with pytest.raises(InvalidArgument, match="size 3"):
        minipt2.mark_dynamic(x, 0, min=4)


def test_a_marked_size_that_is_fixed_is_an_error_with_the_line():
    def f(x):
        total = x[0]
        for k in range(1, x.shape[0]):
            total = total + x[k]
        return total

    x = torch.randn(4, 3)
    minipt2.mark_dynamic(x, 0)
    for _ in range(2):
        with pytest.raises(FixedSize, match="marked dynamic, but this line can only run for size 4") as error:
            minipt2.compile(f, backend="eager")(x)
        assert error.value.code == "MP217" and "range(1, x.shape[0])" in str(error.value)
    assert len(run(f, rows([4]))) == 1


# -- arithmetic and control flow ---------------------------------------------------------------------------------------
def test_numbers_made_of_sizes():
    def f(x):
        b, n = x.shape
        return (
            n * 2, n // 2, n % 3, n / 2, -n, n**2, max(n, 5), min(n, b), n + b - 1, float(n), int(n / 2), x.numel(), divmod(n, 2), n - 20,
            (n - 20) // 3, (n - 20) % 7, round(n * 0.3), math.ceil(n / 2), math.floor(n * 1.5), math.sqrt(n), abs(b - n), x.shape, x.size(1),
            x.stride(), len(x), x.shape[-1:], 1 < n, n == b, n != b, x.shape + (1,), [*x.shape], x.shape.numel(), sum(x.shape), bool(n), int(n),
            isinstance(n, int), n is None, n in (2, 100), torch.Size([n, 2]), torch.broadcast_shapes(x.shape, (1,)), round(n), n * 1.5 + 0.1,
            math.log(n) if n < 0 else None, x.shape == (4, -1), x.nelement() * x.element_size(), n // -2, n % -3, 2.0**n, 7 // n, math.trunc(n / 3),
        )  # fmt: skip

    versions = run(f, [(torch.randn(4, n),) for n in range(3, 12)])
    assert not versions.breaks and len(versions) <= 4, versions.guards


def test_branches_split_the_range():
    def f(x):
        return x * 2 if x.shape[0] > 5 else x - 1

    versions = run(f, rows([3, 4, 5, 2, 8, 9, 6, 100]))
    assert versions.guards == [[], ["2 <= s0 <= 5"], ["s0 >= 6"]]


def test_what_needs_the_number_fixes_it():
    def f(x):
        n = x.shape[0]
        return [10, 20, 30, 40, 50, 60][n], {n: 1}, f"{n}", x + n

    versions = run(f, rows([2, 3, 4, 3, 2]))
    assert versions.guards == [[], ["s0 == 3"], ["s0 == 4"]] and not versions.breaks


def test_loops_are_unrolled():
    def f(x):
        for k in range(x.shape[0]):
            x = x + k
        return x

    assert run(f, rows([2, 3, 4])).guards == [[], ["s0 == 3"], ["s0 == 4"]]


def test_sizes_cross_graph_breaks():
    def f(x):
        b, n = x.shape
        y = x * n
        print(end="")
        y = y.view(n, b) + n
        half = n // 2
        print(end="")
        return y[:half], half

    versions = run(f, [(torch.randn(4, n),) for n in range(4, 10)])
    assert len(versions) == 7  # the last part meets its int one call later than its tensor


def test_sizes_in_objects_closures_and_containers():
    class Box:
        pass

    def f(x, box):
        n = x.shape[0]
        seen = {"n": n, "all": [n, n + 1]}

        def scaled(y):
            return y * n

        box.n, box.seen = n, seen
        box.total = getattr(box, "total", 0) + 0 * n
        return scaled(x), seen

    boxes = [Box() for _ in range(4)]
    versions = run(f, [(x, box) for (x,), box in zip(rows([2, 3, 5, 7]), boxes)])
    assert [box.n for box in boxes] == [2, 3, 5, 7] and boxes[2].seen == {"n": 5, "all": [5, 6]} and type(boxes[2].n) is int
    assert not versions.breaks


# -- numbers -----------------------------------------------------------------------------------------------------------
def test_ints_and_floats_that_vary():
    f = lambda x, k, scale: (x * k + scale, k + 1, scale * 0.5, 0.9**k)
    versions = run(f, [(torch.ones(2), k, k * 0.1) for k in range(8)])
    assert versions.guards == [[], []] and not versions.breaks
    assert versions.dynamic == ["L['k'] is dynamic from now on: it was 0, then 1", "L['scale'] is dynamic from now on: it was 0.0, then 0.1"]


def test_bools_and_odd_floats_stay_constant():
    f = lambda x, flag, bound: x.clamp(max=bound) if flag else -x
    calls = [(torch.ones(2), flag, bound) for flag, bound in ((True, 1.5), (False, 1.5), (True, math.inf), (True, 2.5), (False, 3.5))]
    assert len(run(f, calls)) == 4


def test_counter_on_a_module():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls, self.decay = 0, 0.9

        def forward(self, x):
            self.calls += 1
            self.decay = self.decay * 0.5
            return x * self.calls + self.decay

    module = Counting()
    compiled = minipt2.compile(module, backend="eager")
    found = [compiled(torch.ones(1)).item() for _ in range(8)]
    assert found == [pytest.approx(k + 0.9 * 0.5**k) for k in range(1, 9)]
    assert module.calls == 8 and minipt2.counters()["recompiles"] == 1


def test_tuples_of_sizes_as_arguments():
    f = lambda x, size: (torch.zeros(size), x.view(size).sum(0), size)
    versions = run(f, [(torch.arange(a * b), (a, b)) for a, b in ((2, 3), (4, 5), (6, 7), (3, 2))])
    assert len(versions) == 2 and not versions.breaks
    g = lambda x, like: x.expand(like)
    assert len(run(g, [(torch.ones(1, 3), torch.Size((n, 3))) for n in (2, 3, 4, 5)])) == 2


def test_division_by_a_number_that_may_be_zero():
    def f(x, k):
        try:
            return x * (6 // k)
        except ZeroDivisionError:
            return -x

    versions = run(f, [(torch.ones(2), k) for k in (3, 2, 1, 0, -4, 5)])
    assert len(versions) <= 5 and not versions.breaks


# -- strides -----------------------------------------------------------------------------------------------------------
LAYOUTS = {
    "contiguous": lambda b, n: torch.randn(b, n, 3, 4), "transposed": lambda b, n: torch.randn(b, 3, n, 4).transpose(1, 2),
    "channels_last": lambda b, n: torch.randn(b, 3, n, n).contiguous(memory_format=torch.channels_last),
    "part": lambda b, n: torch.randn(b, n, 3, 12)[..., 4:8], "prefix": lambda b, n: torch.randn(b, 64, 3, 4)[:, :n],
    "expanded": lambda b, n: torch.randn(1, n, 3, 1).expand(b, n, 3, 4), "every second": lambda b, n: torch.randn(b, 2 * n, 3, 4)[:, ::2],
    "all but one": lambda b, n: torch.randn(b, n + 1, 3, 4)[:, :-1],
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout):
    calls = [(LAYOUTS[layout](b, n),) for b, n in ((2, 5), (3, 6), (4, 9), (7, 5), (2, 8))]
    versions = run(lambda x: (x * 2 + x.shape[0], x.flatten(), x.transpose(0, 1)), calls)
    assert len(versions) == 2 and not versions.breaks, versions.guards
    wrong = [(x.transpose(-1, -2).contiguous().transpose(-1, -2),) for (x,) in calls[2:4]]
    run(lambda x: (x * 2, x.stride(), x.is_contiguous()), [*calls, *wrong])


# -- operators whose sizes are computed --------------------------------------------------------------------------------
def test_interpolate():
    def f(x):
        return (F.interpolate(x, scale_factor=2.0, mode="bilinear"), F.interpolate(x, scale_factor=(0.7, 1.3)), F.interpolate(x, size=(5, 4), mode="bicubic"),
                F.interpolate(x, x.shape[2] * 2))  # fmt: skip

    versions = run(f, [(torch.randn(b, 2, h, w),) for b, h, w in ((2, 4, 6), (3, 5, 5), (4, 7, 3), (2, 9, 8))])
    assert len(versions) == 2 and not versions.breaks


@pytest.mark.parametrize("fn", [lambda x: F.glu(x, 1), lambda x: torch.dist(x, x + 1, 2), lambda x: torch.narrow_copy(x, 1, 1, 2),
                                lambda x: x.renorm(2, 1, 0.5), lambda x: torch.dist(x, -x, math.inf)])
def test_operators_whose_shapes_upstream_s_python_knows(fn):
    """Their meta kernels ask ``statically_known_true`` of our sizes."""
    versions = run(fn, [(torch.randn(n, 6),) for n in (3, 4, 5)], fullgraph=True)
    assert len(versions) == 2
    assert len(run(fn, [(torch.randn(3, 4),), (torch.randn(5, 6),)], fullgraph=True, dynamic=True)) == 1


def test_the_batch_is_dynamic_with_the_length():
    f = lambda x: x.softmax(-1)
    assert len(run(f, [(torch.randn(b, n),) for b, n in ((4, 5), (4, 6), (5, 7), (6, 6), (7, 7))])) == 2


def test_torch_functions_of_numbers_alone():
    def f(x):
        chunks = torch.div(x.shape[1], 2, rounding_mode="trunc")
        return x.view(x.shape[0], chunks, 2) + chunks

    assert len(run(f, [(torch.randn(b, 8),) for b in (2, 3, 4)])) == 2


@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
def test_a_learning_rate_schedule_takes_two_versions(kind):
    def training(compile):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        step = compile(lambda: optimizer.step())
        for _ in range(5):
            model.zero_grad()
            model(torch.ones(2, 3)).square().sum().backward()
            step()
            schedule.step()
        return [p.detach() for p in model.parameters()]

    found = training(lambda fn: minipt2.compile(fn, backend="eager"))
    assert minipt2.counters()["graphs"] == 2 and minipt2.counters()["breaks"] == 0
    for a, b in zip(training(lambda fn: fn), found):
        torch.testing.assert_close(a, b)


# -- guards exactly as strong as needed --------------------------------------------------------------------------------
WAYS = {
    "parity": lambda a, b: a % 2, "order": lambda a, b: (a > b) - (a < b), "quarter": lambda a, b: a % 4 == 0 and b > 6, "sum": lambda a, b: (a + b) // 8,
    "product": lambda a, b: a * b > 40, "none": lambda a, b: a < 1,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_versions_serve_the_sizes_that_take_their_way(way):
    """One version for each way through the code (and one for the first sizes), whatever the order in which sizes come."""
    which = WAYS[way]

    def f(x):
        taken = which(*x.shape)
        for k in range(12):
            if taken == k:
                return x + k
        return x - 1

    sizes = [(a, b) for a in range(2, 9) for b in range(2, 10)]
    order = torch.randperm(len(sizes), generator=torch.Generator().manual_seed(1)).tolist()
    calls = [(torch.randn(sizes[k]),) for k in order]
    versions = run(f, calls)
    assert len(versions) <= 1 + len({(which(a, b), way == "quarter" and a % 4 == 0) for a, b in sizes}), versions.guards


def test_log_names_the_line_that_needs_a_size(caplog):
    minipt2.set_logs("guards")
    try:
        run(lambda x: x * len(range(x.shape[0])), rows([2, 3]))
    finally:
        minipt2.set_logs()
    assert "s0 == 3 with s0 = L['x'].shape[0] (" in caplog.text and "range(x.shape[0])" in caplog.text


def test_marks_within_compiled_code_change_nothing():
    def f(x):
        minipt2.mark_dynamic(x, 0)
        minipt2.mark_static(x)
        return x + 1

    versions = run(f, rows([2, 3, 4]))
    assert not versions.breaks


class Recurrent(torch.nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.inner, self.rnn = torch.nn.Linear(4, 4), kind(4, 5, **options)
        self.outer = torch.nn.Linear(5 * (1 + self.rnn.bidirectional), 2)

    def forward(self, x):
        y, last = self.rnn(self.inner(x).relu())
        return self.outer(y).tanh(), last * 2


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("kind, options", [
    (torch.nn.GRU, dict(batch_first=True)), (torch.nn.GRU, dict(num_layers=2, bidirectional=True, dropout=0.3)),
    (torch.nn.RNN, dict(nonlinearity="relu", batch_first=True)), (torch.nn.RNN, {}),
], ids=["gru", "deep gru", "relu", "tanh"])
def test_recurrent_layers_serve_every_length(kind, options, backend):
    minipt2.reset()
    plain = Recurrent(kind, **options)
    model = copy.deepcopy(plain)
    fn = minipt2.compile(model, backend=backend)
    for length in (6, 8, 11, 7):
        x = torch.randn((3, length, 4) if plain.rnn.batch_first else (length, 3, 4))
        results = []
        for call, module in ((plain, plain), (fn, model)):
            torch.manual_seed(0)
            given = x.clone().requires_grad_()
            y, last = call(given)
            (y.sum() + last.pow(2).sum()).backward()
            results.append((y, last, given.grad, [p.grad for p in module.parameters()]))
        assert_same(*results)
    assert minipt2.counters()["graphs"] == 2 and minipt2.counters()["breaks"] == 0
