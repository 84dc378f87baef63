"""The HTML report: every stage of the user's program, in one file that needs nothing else."""
import re

import pytest
import torch
from torch import nn

import minipt2
from minipt2.report.figures.frame import BLOCK, SHOWN, Figure, Line, Pane, script

from .test_figures import Nesting


class Nest(Nesting):
    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            super().handle_starttag(tag, attrs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = torch.relu(self.first(x))
        if h.sum() > -1e9:
            h = h * 2
        return torch.softmax(self.second(h), -1)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    minipt2.reset()
    net, x = Net(), torch.randn(2, 4)

    def step(x):
        return net(x).square().mean().backward()
    found = minipt2.explain(step)(x)
    page = found.to_html(tmp_path_factory.mktemp("report") / "report.html").read_text()
    minipt2.reset()
    return found, page


def pane(page: str, title: str) -> str:
    """The inside of the first pane whose title begins so."""
    return re.search(rf'<p class="mp-title">{title}[^<]*</p><pre[^>]*>(.*?)</pre>', page, re.S)[1]


def test_it_is_one_well_formed_file_that_fetches_nothing(report):
    found, page = report
    nest = Nest()
    nest.feed(page)
    assert not nest.open
    assert not re.findall(r'(?:src|href)="(?!#)', page) and "@import" not in page and "fetch(" not in page


def test_breaks_with_line_and_advice(report):
    found, page = report
    assert "MP101" in page and "if h.sum() &gt; -1e9:" in page and found.breaks[0].advice in page


def test_every_graph_has_its_stages(report):
    found, page = report
    assert len(found.stages.graphs) == len(found.reports) == page.count('id="graph-') > 1
    for title in ("source", "bytecode of the frame", "what runs instead", "captured", "forward: prims", "forward: C", "backward: prims", "backward: C",
                  "forward: wrapper", "backward: wrapper"):
        assert pane(page, title).strip()
    assert "torch.relu(self.first(x))" in pane(page, "source")
    assert page.count('data-figure="joint-') == len(found.reports)


def test_a_captured_call_lights_what_was_made_of_it_and_its_line(report):
    found, page = report
    lights = re.search(r'data-lights="([^"]*)">relu: ', pane(page, "captured"))[1].split()
    known_by = lambda text: {name for links in re.findall(r'data-links="([^"]*)"', text) for name in links.split()}  # noqa: E731
    for title in ("source", "forward: prims", "forward: C", "backward: prims"):
        assert known_by(pane(page, title)) & set(lights), title
    assert not known_by(pane(page, "captured")) & set(lights), "neighbours stay dark"


def test_each_kernel_has_a_time(report):
    found, page = report
    for title, part in (("forward", "_forward"), ("backward", "_backward")):
        kernels = next(p for name, p in found.stages.graphs[0].parts.items() if name.endswith(part)).plan.kernels
        assert len(re.findall(r"[\d.]+ µs", pane(page, rf"{title}: \d+ kernels"))) == len(kernels) > 0


def test_without_times_no_kernel_runs(report, tmp_path):
    found, _ = report
    assert "µs" not in found.to_html(tmp_path / "r.html", times=False).read_text()


def test_a_function_without_a_graph_has_a_report(tmp_path, fresh):
    def plain(n):
        return n + 1
    assert "0 graphs" in minipt2.explain(plain)(3).to_html(tmp_path / "r.html").read_text()


def test_long_panes_are_packed_and_nothing_is_lost():
    """The first lines stand in the page, the rest as text in blocks that the script unpacks."""
    lines = [Line(f"line {k} <&>", links=[f"l{k}"]) for k in range(3 * BLOCK)]
    plain, packed = (Figure("f", "t", "c", [Pane("long", lines), Pane("short", lines[:SHOWN])], packed=wanted).html() for wanted in (False, True))
    assert plain.count('<script type="text/html">') == 0 and packed.count('<script type="text/html">') == 1
    at_once, _, rest = packed.partition('<script type="text/html">')
    rest = rest.partition("</script>")[0]
    assert at_once.count('class="mp-line"') == SHOWN and rest.count('class="mp-line"') == 3 * BLOCK - SHOWN
    assert re.sub(r'<span class="mp-block">|</span>', "", pane(packed, "long")).replace('<script type="text/html">', "").replace("</script>", "") \
        == pane(plain, "long").replace("</span>", "")


def test_the_script_unpacks_before_it_links():
    text = script()
    assert text.index("unpack(pane);") < text.index("byLink.has(name)") and "beforeprint" in text and "requestIdleCallback" in text
