import warnings

import torch

from minipt2.prims.lazy import Graph
from minipt2.shapes.env import ShapeEnv


class Named:
    def name(self):
        return "x.size()[0]"


def test_nodes_may_hold_symbols_without_a_warning():
    size = ShapeEnv().symbol(7, Named())
    graph = Graph()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = graph.placeholder("x")
        node = graph.call_function(torch.reshape, (x, (size, -1)), {"more": [size]})
        copied = Graph().node_copy(node, {x: x}.__getitem__)
    assert node.args[1][0] is size and node.kwargs["more"][0] is size and list(node.all_input_nodes) == [x]
    assert copied.args[1][0] is size
