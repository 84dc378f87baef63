"""``explain``: one object with everything the call compiled; ``fullgraph`` says of a break what it says."""
import pytest
import torch
from torch import nn

import minipt2
from minipt2.errors import Unsupported


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        y = torch.relu(self.linear(x))
        if y.sum() > 0:
            y = y * 2
        return torch.linalg.qr(y)[0].sin()


@pytest.fixture
def net(fresh):
    torch.manual_seed(0)
    net = Net().eval()
    nn.init.constant_(net.linear.weight, 1.0)
    return net


X = torch.ones(2, 4)


def test_graphs_guards_kernels_and_eager_kernels(net):
    found = minipt2.explain(net)(X)
    assert found.graph_count == len(found.reports) == 2 == len(found.graphs)
    first, second = found.reports
    assert first.function.endswith("forward") and first.ops["linear"] == 1 and found.ops(0) == first.ops
    assert any("size (2, 4)" in guard for guard in first.guards)
    assert all(report.kernels >= 1 for report in found.reports)
    assert sum(report.kernels for report in found.reports) == found.counters["kernels"]
    assert any("qr" in text for text in second.eager_kernels) and not first.eager_kernels
    assert {"C compiler", "lowering", "capture", "backend"} <= set(found.seconds)
    assert [name for name, _ in found.code if name.startswith(first.name)]


def test_breaks_once_with_line_and_advice(net):
    found = minipt2.explain(net, backend="eager")(X)
    (reason,) = found.breaks
    assert (reason.code, reason.title) == ("MP101", "data-dependent branch")
    assert reason.frames[-1].file == __file__ and reason.frames[-1].text == "if y.sum() > 0:"
    for text in (str(found), found._repr_html_().replace("&gt;", ">")):
        assert "MP101" in text and "if y.sum() > 0:" in text and reason.advice in text and __file__ in text


def test_fullgraph_raises_the_same_text(net):
    (reason,) = minipt2.explain(net, backend="eager")(X).breaks
    with pytest.raises(Unsupported) as raised:
        minipt2.compile(net, backend="eager", fullgraph=True)(X)
    assert str(raised.value) == str(reason)


def test_frames_left_alone_and_compiled_again(fresh):
    def whole(x):
        path = [x + 1]
        path.append(path)
        return path

    found = minipt2.explain(whole, backend="eager")(X)
    ((name, reason),) = found.skipped
    assert name.endswith("whole") and reason.code == "MP900" and "contains itself" in str(reason)
    assert "runs eagerly" in str(found) and "MP900" in found._repr_html_()

    def twice(x):
        return inner(x) + inner(x[:1])

    def inner(x):
        print(end="")
        return x * 2
    found = minipt2.explain(twice, backend="eager")(torch.ones(3))
    assert any(name.endswith("inner") and "(3,)" in reason and "(1,)" in reason for name, reason in found.recompiles)
    assert "compiled again" in str(found)


def test_warnings_are_part_of_it(fresh):
    def shared(x, y):
        x.add_(1)
        return x + y
    memory = torch.zeros(4)
    with minipt2.config.patch(raise_internal_errors=False):
        found = minipt2.explain(shared, backend="aot_eager")(memory[:2], memory[1:3])
    (text,) = found.warnings
    assert "MP502" in text and f"warning: {text}" in str(found)


def test_html_escapes_what_it_shows(fresh):
    found = minipt2.explain(lambda x: (print("<b>", end=""), x + 1)[1], backend="eager")(X)
    assert "&lt;b&gt;" in found._repr_html_() and "<b>" not in found._repr_html_()


def test_training_counts_backward_kernels(net):
    def step(x):
        net(x).sum().backward()
    found = minipt2.explain(step)(X)
    assert any("backward" in name for name, _ in found.code)
    assert sum(report.kernels for report in found.reports) == found.counters["kernels"]


def test_a_module_is_named_by_its_forward(net):
    class Plain(nn.Linear):
        def forward(self, x):
            return super().forward(x) + 1

    found = minipt2.explain(Plain(4, 3), backend="eager")(X)
    (report,) = found.reports
    assert report.function.endswith("Plain.forward")
    assert "_caller" not in str(found) and "eval_frame" not in str(found)


@pytest.mark.parametrize("of", [lambda m: m, lambda m: minipt2.compile(m), lambda m: minipt2.compile(m).forward,
                                lambda m: minipt2.compile(m.forward), lambda m: minipt2.compile(minipt2.compile(m.forward))])
def test_what_is_compiled_already_is_explained_as_the_original(of, net):
    (expected,) = minipt2.explain(net, backend="eager")(X).breaks
    (reason,) = minipt2.explain(of(net), backend="eager")(X).breaks
    assert str(reason) == str(expected)


def test_arguments_given_too_early_are_told():
    def f(x):
        return x
    with pytest.raises(minipt2.InvalidArgument, match=r"explain\(f\)\(...\)"):
        minipt2.explain(f, X)


def test_guards_say_what_they_want_without_a_dangling_none(net):
    found = minipt2.explain(lambda x, k=None: x if k is not None else net.linear(x) + (k is None), backend="eager")(X)
    guards = [guard for report in found.reports for guard in report.guards]
    assert [guard for guard in guards if guard.endswith("None")] == ["L['k']: value None"]
    assert any(guard.endswith("no hooks and no forward of its own") for guard in guards)


def test_one_is_not_plural(fresh):
    text = str(minipt2.explain(lambda x: torch.sin(x))(X))
    assert "1 op:" in text and "; 1 kernel\n" in text


def test_sizes_that_become_dynamic_or_are_fixed_are_told_with_the_line(fresh):
    def f(x):
        return x.sum(0) * [1, 2, 3, 4][x.shape[1]]
    found = minipt2.explain(f, backend="eager", dynamic=True)(torch.ones(5, 3))
    ((name, text),) = found.dynamic
    assert text.startswith("L['x'].shape[1] stays 3") and "[1, 2, 3, 4][x.shape[1]]" in text and f"sizes: {name}: {text}" in str(found)
    assert any(guard.startswith("s1 == 3 with s1 = L['x'].shape[1]") and __file__ in guard for guard in found.reports[0].guards)
