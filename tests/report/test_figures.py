"""Figures show what the package did: their numbers are its own."""
import html.parser
import json
import re

import torch

import minipt2
from minipt2.report import figures
from minipt2.report.figures import Figure, Line, Pane, State
from minipt2.report.figures.loops import schedules

VOID = {"input"}


class Nesting(html.parser.HTMLParser):
    """Every element that opens is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        """Opens nothing."""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def payload(figure: Figure) -> dict:
    """What the page's script will read."""
    text = figure.html()
    nesting = Nesting()
    nesting.feed(text)
    assert not nesting.open and "NaN" not in text
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text, re.S)[1])


def doubled(x, n):
    y = x * n
    return torch.relu(y)


def block(x, w):
    return torch.softmax(x * 2 + 1, -1) @ w


def test_states_name_lines_that_exist_and_the_first_is_drawn():
    figure = Figure("f", "T", "c <&>", [Pane("p", [Line("a<b", "one"), Line("b", "two", goto=1)])], [State("x", {"now": ["one"]}), State("y")], "range")
    text = figure.html()
    assert '<span class="mp-line now" data-name="one">a&lt;b' in text and "c &lt;&amp;&gt;" in text and "</script" not in text[: text.index("<script")]
    assert payload(figure)["states"][0]["marks"] == {"now": ["one"]}


def test_script_cannot_be_ended_by_data():
    assert payload(Figure("f", "T", "", [], [State("</script><b>")]))["states"][0]["label"] == "</script><b>"


def test_stepper_has_the_interpreters_stack(fresh):
    figure = figures.stepper(doubled, (torch.ones(3), 2))
    assert len(figure.states) == len(figure.data["stack"]) == len(figure.data["nodes"])
    for state, depth in zip(figure.states, figure.data["stack"]):
        assert depth == (0 if state.slots["stack"] == "(empty)" else len(state.slots["stack"].splitlines()))
    assert figure.data["nodes"] == sorted(figure.data["nodes"]) and figure.data["nodes"][-1] == 3
    names = {line.name for pane in figure.panes for line in pane.lines}
    assert all(set(state.marks["now"]) <= names for state in figure.states)
    payload(figure)


def test_guard_tree_lights_the_check_that_failed(fresh):
    calls = [(torch.ones(3), 2), (torch.ones(3), 2), (torch.ones(3, dtype=torch.float64), 2), (torch.ones(3), 5)]
    figure = figures.guard_tree(doubled, calls)
    assert figure.data["ran"] == [0, 0, 1, 2]
    assert figure.data["failed"][1] == [None] and "dtype" in figure.data["failed"][2][0] and "L['n']" in figure.data["failed"][3][0]
    (bad,) = figure.states[2].marks["bad"]
    (line,) = [line for pane in figure.panes for line in pane.lines if line.name == bad]
    assert "dtype torch.float32" in line.text
    payload(figure)


def test_joint_graph_saves_less_under_a_smaller_budget(fresh):
    def f(x, w):
        return torch.softmax(torch.nn.functional.gelu(x @ w) @ w.t(), -1)
    figure = figures.joint_graph(f, (torch.randn(64, 8, requires_grad=True), torch.randn(8, 64, requires_grad=True)))
    sizes = figure.data["bytes"]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1]
    assert f"{sizes[0]:,} bytes" in figure.states[0].label
    payload(figure)


def test_explorer_counts_what_each_stage_has(fresh):
    figure = figures.explorer({"softmax": (lambda x: torch.softmax(x, -1), (torch.randn(2, 8),))})
    captured, aten, prims = figure.data["softmax"]
    assert (captured, aten) == (1, 1) and prims == len(figure.states[0].slots["prims"].splitlines()) == 7
    payload(figure)


def test_census_sums_to_the_graph(fresh):
    figure = figures.census(block, (torch.randn(4, 16), torch.randn(16, 8)))
    assert figure.data["torch"] == {"mul": 1, "add": 1, "softmax": 1, "matmul": 1} and figure.data["prims"]["exp"] == 1


def test_fusion_pairs_say_what_the_scheduler_says(fresh):
    args = torch.randn(4, 16), torch.randn(16, 8)
    figure = figures.fusion(block, args)
    assert figure.data["kernels"][0] > figure.data["kernels"][1] == 1
    assert figure.data["bytes"] == [sum(p.bytes_moved() for p in schedules(block, args, fusion=f)) for f in (False, True)]
    assert any("may share" in said for said in figure.pairs.values()) and any("stay apart" in said for said in figure.pairs.values())
    payload(figure)


def test_every_instruction_has_its_line_of_c_and_of_triton(fresh):
    figure = figures.beside(block, (torch.randn(4, 16), torch.randn(16, 8)))
    ir, *targets = figure.panes
    for target in targets:
        written = {link for line in target.lines for link in line.links}
        for line in ir.lines[1:]:
            assert set(line.links) <= written or "constant" in line.text, (target.title, line.text)
    c, triton = ("".join(line.text for line in target.lines) for target in targets)
    assert "#pragma omp simd" in c and "@triton.jit" in triton and "test_figures.py" in c and "test_figures.py" in triton and "Kernel(" not in triton
    payload(figure)


def test_pipeline_links_a_source_line_to_its_c(fresh):
    with torch.no_grad():
        figure = figures.pipeline(doubled, (torch.randn(8), 3))
    source, captured, prims, loops, c = figure.panes
    (line,) = [line for line in source.lines if "torch.relu" in line.text]
    for pane in (captured, prims, loops, c):
        assert any(set(line.lights) & set(other.links) for other in pane.lines), pane.title
    payload(figure)


def test_number_line_shrinks_to_what_the_guards_allow():
    figure = figures.number_line(8, [("n % 4 == 0", lambda n: bool(n % 4 == 0)), ("n % 2 == 0", lambda n: bool(n % 2 == 0)), ("n <= 12", lambda n: bool(n <= 12))])
    assert figure.data["possible"][1:] == [[4, 8, 12, 16, 20, 24], [4, 8, 12, 16, 20, 24], [4, 8, 12]]
    assert figure.data["guards"][1] == figure.data["guards"][2] and ["no guard" in line.text for line in figure.panes[1].lines] == [False, False, True, False]
    payload(figure)


def test_rounds_are_the_measurement(fresh):
    figure = figures.rounds({"a": lambda: sum(range(4000)), "b": lambda: sum(range(1000))}, count=9)
    median, low, high = figure.data["ratio"]
    assert low <= median <= high and median > 1 and len(figure.states) == 9 == len(figure.data["a"])
    payload(figure)


def test_observing_changes_nothing(fresh):
    figures.stepper(doubled, (torch.ones(3), 2))
    assert torch.equal(minipt2.compile(doubled, backend="eager")(torch.ones(3), 2), torch.full((3,), 2.0))
    assert not minipt2.trace.listening("instruction", "scheduler", "aot")


def test_races_show_the_kernel_of_what_is_picked():
    race = figures.Race("softmax", ["guess", "better"], [10.0, 8.0], 1, ["text of guess", "text of better"])
    figure = figures.races([race, race], "caption")
    assert figure.data == {"relative": [[1.0, 0.8]] * 2, "best": [1, 1]}
    assert figure.start == 1 and figure.states[3].slots["code"] == "text of better" and "0.80" in figure.states[3].label
    html = figure.html()
    assert html.count("<circle") == len(figure.states) == 4 and 'data-name="r1.1" data-goto="3"' in html
