import torch

import minipt2
from minipt2.course.checks import same
from minipt2.dynamo.cache import Meta, dynamic_dims


def meta(*shape):
    return Meta(shape, torch.empty(shape).stride())


def test_only_what_differs():
    """Grown or shrunk."""
    same(dynamic_dims(meta(4, 16), meta(4, 20)), {1})
    same(dynamic_dims(meta(4, 20), meta(4, 16)), {1})
    same(dynamic_dims(meta(8, 3, 5), meta(4, 3, 9)), {0, 2})


def test_nothing_differs():
    """Then something else was the reason."""
    same(dynamic_dims(meta(4, 16), meta(4, 16)), set())
    same(dynamic_dims(meta(), meta()), set())


def test_another_rank():
    """Nothing follows from it."""
    same(dynamic_dims(meta(4, 16), meta(16)), set())
    same(dynamic_dims(meta(4), meta(5, 16)), set())


def test_tensors_will_do():
    """Anything that has a shape."""
    same(dynamic_dims(torch.empty(2, 3), torch.empty(2, 4)), {1})


def test_eight_lengths_two_compilations():
    """The second length makes the length symbolic, falling or rising."""
    for lengths in (range(9, 17), range(16, 8, -1)):
        minipt2.reset()
        fn = minipt2.compile(lambda x: torch.tanh(x) * 2, backend="eager")
        for n in lengths:
            x = torch.randn(3, n)
            same(fn(x), torch.tanh(x) * 2)
        same(minipt2.counters()["graphs"], 2)


def test_the_rest_stays_static():
    """A dimension that never varied is a number in the graph."""
    shapes = []

    def backend(gm, inputs):
        shapes.append([n.meta["val"].shape for n in gm.graph.nodes if n.op == "placeholder" and hasattr(n.meta.get("val"), "shape")][-1])
        return gm.forward
    fn = minipt2.compile(lambda x: x * 2, backend=backend)
    for n in (9, 10):
        fn(torch.randn(3, n, 7))
    same([isinstance(s, int) for s in shapes[-1]][2], True, where="whether the last dimension is a number")
