"""Graph breaks of every kind: what comes back, what was captured before and after, and that nothing runs twice."""
from __future__ import annotations

import contextlib

import pytest
import torch
from torch.utils._pytree import tree_flatten

import minipt2
from minipt2 import trace
from minipt2.config import config
from minipt2.dynamo import disable, optimize
from minipt2.errors import Unsupported


@pytest.fixture(autouse=True)
def strict():
    trace.reset()
    with config.patch(raise_internal_errors=True):
        yield


class Recorder:
    """A backend that keeps its graphs and runs them as they are."""

    def __init__(self):
        self.graphs = []

    def __call__(self, gm, examples):
        self.graphs.append(gm)
        return gm.forward

    def ops(self):
        return [sum(n.op in ("call_function", "call_method") for n in gm.graph.nodes) for gm in self.graphs]


def same(got, expected):
    got, got_spec = tree_flatten(got)
    expected, spec = tree_flatten(expected)
    assert got_spec == spec
    for a, b in zip(got, expected):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert type(a) is type(b) and a == b


def check(fn, *args, graphs=None, breaks=None, calls=2):
    """``fn`` compiled gives what it gives plain, on every call; returns the recorder."""
    recorder = Recorder()
    compiled = optimize(fn, recorder)
    for _ in range(calls):
        expected = fn(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        got = compiled(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])
        same(got, expected)
    assert trace.counters()["skipped_frames"] == 0
    if graphs is not None:
        assert len(recorder.graphs) == graphs
    if breaks is not None:
        assert trace.counters()["breaks"] == breaks
    return recorder


def test_straight_line():
    check(lambda x: torch.relu(x @ x + 1), torch.randn(3, 3), graphs=1, breaks=0)


def test_print_once_in_order(capsys):
    def f(x):
        y = x + 1
        print("hello", y.shape)
        return y * 2

    recorder = Recorder()
    compiled = optimize(f, recorder)
    x = torch.ones(2)
    assert torch.equal(compiled(x), f(x))
    assert capsys.readouterr().out.count("hello") == 2
    assert recorder.ops() == [1, 1]


def test_item():
    def f(x):
        n = x.sum().item()
        return x * n + 1

    check(f, torch.arange(4.0), breaks=0)


def test_branch_on_data_both_ways():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    recorder = Recorder()
    compiled = optimize(f, recorder)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        assert torch.equal(compiled(x), f(x))
    assert recorder.ops() == [3, 1, 1]


def test_branch_inside_expression():
    def f(x):
        return (x + 1, x.sum() > 0 and x - 1, x * (2 if x.max() > 0 else 3))

    for x in (torch.ones(3), -torch.ones(3)):
        check(f, x)


def test_nested_stack_survives():
    def g(x):
        return x.sum().item()

    def f(x):
        return [x + 1, {"a": x * 2, "b": (x - g(x), max(1, g(x)))}]

    check(f, torch.ones(2))


def test_unknown_call_inside_inlined_call():
    def inner(x):
        y = x + 1
        print(end="")
        return y * 2

    def f(x):
        return inner(x * 3) - 1

    recorder = check(f, torch.ones(2))
    assert recorder.ops() == [1, 1, 1, 1]


def test_side_effects_before_break_happen_once():
    log = []

    def inner(x, out):
        out.append(x + 1)
        print(end="")
        out.append(x + 2)
        return x * 2

    def f(x):
        out = [x]
        y = inner(x, out)
        log.append(len(out))
        return y, out

    check(f, torch.ones(2))
    assert log == [3] * 4


def test_break_in_no_grad():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print(end="")
            z = y + torch.is_grad_enabled()
        return z + x, torch.is_grad_enabled(), y.requires_grad

    x = torch.ones(2, requires_grad=True)
    recorder = Recorder()
    compiled = optimize(f, recorder)
    for _ in range(2):
        got, expected = compiled(x), f(x)
        assert torch.equal(got[0], expected[0]) and got[1:] == expected[1:]
        assert got[0].requires_grad and torch.is_grad_enabled()


def test_raise_inside_no_grad_restores():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print(end="")
            raise ValueError(y.shape[0])

    compiled = optimize(f, Recorder())
    for _ in range(2):
        with pytest.raises(ValueError, match="2"):
            compiled(torch.ones(2))
        assert torch.is_grad_enabled()


def test_break_in_autocast():
    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            print(end="")
            z = y @ x
        return y, z, x @ x

    check(f, torch.randn(4, 4))


def test_break_in_user_context():
    events = []

    class Ctx:
        def __enter__(self):
            events.append("enter")
            return 3

        def __exit__(self, *exc):
            events.append("exit")

    def f(x):
        with Ctx() as n:
            y = x + n
            print(end="")
            y = y * 2
        return y - 1

    check(f, torch.ones(2), calls=1)
    assert events == ["enter", "exit"] * 2


def test_break_in_unknown_context():
    @contextlib.contextmanager
    def manager(log):
        log.append("in")
        try:
            yield 2
        finally:
            log.append("out")

    def f(x):
        log = []
        with manager(log) as n:
            y = x * n
            print(end="")
            y = y + 1
        return y, log

    check(f, torch.ones(2))


def test_break_in_try_except():
    def f(x):
        y = x + 1
        try:
            print(end="")
            y = y * 2
            int("no")
        except ValueError:
            y = y - 3
        finally:
            y = y + 10
        return y

    check(f, torch.ones(2))


def test_exception_from_broken_call_is_caught():
    def fail(x):
        print(end="")
        raise KeyError("k")

    def f(x):
        y = x + 1
        try:
            y = fail(y)
        except KeyError as e:
            y = y + len(e.args)
        return y * 2

    check(f, torch.ones(2))


def test_break_in_except_handler():
    def f(x):
        y = x + 1
        try:
            raise KeyError("k")
        except KeyError:
            print(end="")
            y = y * 2
        return y + 1

    check(f, torch.ones(2))


def test_exceptions_within_the_graph():
    def inner(n):
        if n > 1:
            raise ValueError(n)
        return n

    def f(x):
        total = x
        for n in range(4):
            try:
                total = total + inner(n)
            except ValueError as e:
                total = total * e.args[0]
            else:
                total = total + 100
        return total

    check(f, torch.ones(2), graphs=1, breaks=0)


def test_for_loop_over_list():
    def f(x, items):
        out = []
        for i, item in enumerate(items):
            x = x + item
            print(end="")
            out.append(x * i)
        return out

    check(f, torch.ones(2), [1, 2.0, 3])


def test_for_loop_over_range():
    def f(x):
        for i in range(5):
            x = x + i
            if i % 2:
                print(end="")
            x = x * 2
        return x

    check(f, torch.ones(2))


def test_long_while_loop_keeps_the_stack_flat():
    def f(x):
        n = 0
        while x.sum() < 3000:
            x = x + 1
            n += 1
        return x, n

    check(f, torch.zeros(1), calls=1)


def test_a_loop_with_a_break_is_compiled_once():
    """The resume function of a resume function is the first one again."""
    def f(x, limit):
        while x.sum() < limit:
            x = x + 1
        return x

    compiled = minipt2.compile(f, backend="eager")
    assert torch.equal(compiled(torch.zeros(2), 20), f(torch.zeros(2), 20))
    assert minipt2.counters()["graphs"] <= 4 and minipt2.counters()["recompiles"] <= 2


def test_closure_cells():
    def f(x):
        n = 1

        def bump():
            nonlocal n
            n += 1
            return n

        y = x + bump()
        print(end="")
        y = y * bump()
        n = n + 5
        return y + bump(), n

    check(f, torch.ones(2))


def test_free_variable_of_the_frame():
    state = 0

    def f(x):
        nonlocal state
        state += 1
        print(end="")
        state += 1
        return x + 1

    compiled = optimize(f, Recorder())
    for n in range(1, 4):
        compiled(torch.ones(1))
        assert state == 2 * n


def test_identity_of_objects_is_kept():
    def f(x, box):
        box.append(x + 1)
        alias = box
        print(end="")
        alias.append(x + 2)
        return box, alias, x

    compiled = optimize(f, Recorder())
    box, x = [], torch.ones(1)
    a, b, c = compiled(x, box)
    assert a is box and b is box and c is x and len(box) == 2


def test_keyword_and_star_calls_break():
    def show(*args, **kwargs):
        print(end="")
        return len(args) + len(kwargs)

    show = disable(show)

    def f(x):
        y = x + show(x, 1, a=2)
        return y * show(*[x, y], **{"k": 1})

    check(f, torch.ones(2), breaks=2)


def test_generator_argument_loops():
    def f(x, gen):
        for t in gen:
            x = x + t
        return x

    recorder = Recorder()
    compiled = optimize(f, recorder)
    items = [torch.ones(2) * k for k in range(4)]
    assert torch.equal(compiled(torch.zeros(2), (t for t in items)), f(torch.zeros(2), items))


def test_comprehension_with_break():
    def g(v):
        print(end="")
        return v + 1

    def f(x):
        return [g(x * k) for k in range(3)]

    check(f, torch.ones(2))


def test_user_exception_shows_user_line():
    def f(x):
        y = x + 1
        return y.view(7, 7)

    compiled = optimize(f, Recorder())
    with pytest.raises(RuntimeError) as info:
        compiled(torch.ones(2))
    assert any(entry.lineno and "y.view(7, 7)" in str(entry.statement) for entry in info.traceback)


def test_fullgraph_raises_with_the_line():
    def f(x):
        print("no")
        return x

    with pytest.raises(Unsupported) as info:
        optimize(f, Recorder(), fullgraph=True)(torch.ones(1))
    assert 'print("no")' in str(info.value)


def test_break_is_announced():
    seen = []
    stop = trace.subscribe(lambda stage, name, payload: seen.append((stage, name, payload)))
    try:
        def f(x):
            return x + x.tolist()[0]

        optimize(f, Recorder())(torch.ones(20))
    finally:
        stop()
    (code, error), = [(name, p) for stage, name, p in seen if stage == "breaks"]
    assert code == "MP102" and "x.tolist()" in error.frames[-1].text


def test_what_a_break_left_on_the_stack_has_no_name_of_ours():
    seen = minipt2.explain(lambda x: torch.from_numpy(x.sin().numpy() * 2))(torch.randn(3))
    assert len(seen.breaks) > 1 and "Numpy" in str(seen) and "__minipt2_" not in str(seen)


def test_a_failing_backend_is_told_with_what_shows_its_traceback():
    def failing(gm, examples):
        raise ValueError("not today")
    with config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="not today.*raise_internal_errors = True"):
        assert minipt2.compile(torch.sin, backend=failing)(torch.zeros(2)).sum() == 0
        assert minipt2.compile(lambda x: x.sin(), backend=failing)(torch.zeros(2)).sum() == 0


def test_while_true_with_break_and_continue():
    def f(x):
        i = 0
        while True:
            i += 1
            if i == 2:
                continue
            if i > 4:
                break
            x = x + x.sum().item()
        return x

    check(f, torch.ones(2))


def test_unbound_local_after_break():
    def f(x, flag):
        if flag:
            z = x
        print(end="")
        y = x + 1
        if flag:
            return z + y
        return y

    check(f, torch.ones(2), True)
    check(f, torch.ones(2), False)


class Base:
    def scaled(self, x):
        return x * 3

    def shifted(self, x):
        return x + 1


class Derived(Base):
    def plain(self, x):
        print(end="")
        x = super().scaled(x * 2)
        print(end="")
        return super().shifted(x)

    def with_cells(self, x):
        again = lambda v: self.shifted(v)
        print(end="")
        for _ in range(3):
            x = super().scaled(again(x))
            print(end="")
        return x

    @classmethod
    def of_class(cls, x):
        print(end="")
        return super().scaled(cls, x) + 1


@pytest.mark.parametrize("method", [Derived().plain, Derived().with_cells, Derived.of_class])
def test_super_after_a_break(method):
    check(method, torch.ones(2))
