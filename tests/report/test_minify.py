"""The minifier finds a planted operation, in few questions, and what it returns still fails."""
import math

import pytest
import torch
from torch import fx

from minipt2.report.minify import minify


def chain(n: int, wrong: int) -> fx.GraphModule:
    """n operations of which number ``wrong`` is a hyperbolic sine; later ones read earlier ones too."""
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for k in range(n):
        args = (values[-1],) if k % 3 else (values[-1], values[len(values) // 2])
        target = torch.sinh if k == wrong else torch.tanh if k % 3 else torch.add
        values.append(graph.call_function(target, args if target in (torch.add, torch.tanh) else args[:1]))
    graph.output((values[-1], values[len(values) // 2]))
    return fx.GraphModule({}, graph)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 100])
def test_finds_a_planted_operation_in_few_questions(n):
    for wrong in {0, n // 3, n // 2, n - 1}:
        asked = []

        def bad(part: fx.GraphModule) -> bool:
            asked.append(part)
            part(*part.meta["inputs"])
            return any(node.target is torch.sinh for node in part.graph.nodes)
        found = minify(chain(n, wrong), [torch.randn(3), torch.randn(3)], bad)
        assert [node.target for node in found.graph.nodes if node.op == "call_function"] == [torch.sinh]
        assert bad(found) and len(asked) - 1 <= 1 + 2 * math.ceil(math.log2(n))


def test_values_at_the_cut_are_those_of_the_whole_run():
    gm, xs = chain(20, 11), [torch.randn(3), torch.randn(3)]
    found = minify(gm, xs, lambda part: any(node.target is torch.sinh for node in part.graph.nodes))
    expected, node = fx.Interpreter(gm), next(n for n in gm.graph.nodes if n.target is torch.sinh)
    outputs = {}
    expected.run_node = lambda n: outputs.setdefault(n, fx.Interpreter.run_node(expected, n))
    expected.run(*xs)
    assert torch.equal(found(*found.meta["inputs"])[0], outputs[node])


def test_a_fault_of_two_operations_keeps_both():
    def bad(part: fx.GraphModule) -> bool:
        targets = [node.target for node in part.graph.nodes]
        return torch.sinh in targets and torch.add in targets
    found = minify(chain(12, 7), [torch.randn(3), torch.randn(3)], bad)
    assert bad(found) and sum(n.op == "call_function" for n in found.graph.nodes) < 4


def test_a_graph_that_is_fine_is_refused():
    with pytest.raises(ValueError, match="does not show the fault"):
        minify(chain(3, 1), [torch.randn(3), torch.randn(3)], lambda part: False)


def test_in_place_operations_do_not_change_what_was_recorded():
    graph = fx.Graph()
    x = graph.placeholder("x")
    a = graph.call_function(torch.add, (x, 1))
    b = graph.call_method("mul_", (a, 2))
    graph.output((graph.call_function(torch.sinh, (b,)), graph.call_function(torch.tanh, (a,))))
    found = minify(fx.GraphModule({}, graph), [torch.ones(2)], lambda part: any(n.target == "mul_" for n in part.graph.nodes))
    assert torch.equal(found.meta["inputs"][0], torch.full((2,), 2.0))
