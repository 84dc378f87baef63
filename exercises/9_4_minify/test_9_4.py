import math
import random

import pytest
import torch
from torch import fx

from minipt2.course.checks import same
from minipt2.report.minify import minify


def chain(n, odd=(), seed=0):
    """n operators on a few values; ``odd`` says at which places ``erf`` stands."""
    rng, graph = random.Random(seed), fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    for k in range(n):
        if k in odd:
            values.append(graph.call_function(torch.erf, (values[-1],)))
        else:
            values.append(graph.call_function(rng.choice([torch.add, torch.mul]), (values[-1], rng.choice(values[-3:]))))
    graph.output((values[-1],))
    return fx.GraphModule({}, graph)


class Bad:
    """Has ``count`` nodes of a kind; counts how often it is asked."""

    def __init__(self, target=torch.erf, count=1):
        self.target, self.count, self.runs = target, count, 0

    def __call__(self, part):
        self.runs += 1
        part(*part.meta["inputs"])
        return sum(n.target is self.target for n in part.graph.nodes) >= self.count


XS = [torch.randn(3), torch.randn(3)]


def calls(gm):
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("place", [0, 1, 150, 299])
def test_few_runs(place):
    """One odd node among three hundred: alone in the result, after 2 log2(n) + 8 runs at most."""
    bad = Bad()
    part = minify(chain(300, [place]), XS, bad)
    same(calls(part), [torch.erf])
    assert bad.runs <= 2 * math.log2(300) + 8, f"{bad.runs} runs"


def test_the_result_fails():
    """Always, with its own inputs."""
    for seed in range(6):
        rng = random.Random(seed)
        bad = Bad(count=2)
        part = minify(chain(40, rng.sample(range(40), 4), seed), XS, bad)
        assert bad(part), "the result passes"


def test_two_nodes():
    """A failure that needs both: nothing before the first, nothing behind the second."""
    part = minify(chain(60, [7, 51]), XS, Bad(count=2))
    same((calls(part)[0], calls(part)[-1], len(calls(part))), (torch.erf, torch.erf, 45))


def test_values_are_those_of_the_whole_run():
    """A wrong number depends on the numbers."""
    gm = chain(30, [15])
    values = {}

    class Keeper(fx.Interpreter):
        def run_node(self, n):
            values[n.name] = super().run_node(n)
            return values[n.name]
    Keeper(gm).run(*XS)
    part = minify(gm, XS, Bad())
    (source,) = [n.name for n in part.graph.nodes if n.op == "placeholder"]
    same(part.meta["inputs"][0], values[source])


def test_a_healthy_graph():
    """There is nothing to find."""
    with pytest.raises(ValueError):
        minify(chain(10), XS, Bad())
