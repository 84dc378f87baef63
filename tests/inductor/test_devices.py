"""Graphs on several devices: which pieces they fall into, and that the pieces compute what the graph does.

Without a GPU: graphs say ``cuda``, and once they are split their pieces are told to be on the CPU, where Triton's interpreter runs those
that were for the GPU.
"""
import importlib

import pytest
import torch
from torch import fx

import minipt2
from minipt2 import config, trace
from minipt2 import prims as P
from minipt2.inductor import compile_graph, devices
from minipt2.inductor.load import Recipe
from minipt2.prims import portable
from minipt2.prims.core import Recorder, TensorMeta
from minipt2.prims.meta import contiguous_strides
from minipt2.shapes import ShapeEnv

from .symbolic import Named

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
compiler = importlib.import_module("minipt2.inductor.compile")


def to(x, device):
    """A copy to another device, as the graph has it."""
    if isinstance(x, torch.Tensor):
        return x.clone()
    meta = TensorMeta(x.shape, x.dtype, device, x.strides)
    recorder = _recorders[-1]
    return recorder.bind(recorder.graph.call_function(torch.ops.aten._to_copy.default, (x.node,), {"device": device}), meta)


_recorders: list[Recorder] = []


def graph_of(fn, inputs, symbols=()):
    """``inputs``: (shape, device), or a symbol."""
    recorder = Recorder()
    _recorders.append(recorder)
    with recorder:
        for symbol in symbols:
            recorder.graph.placeholder(str(symbol.node.expr)).meta["val"] = symbol
        values = [recorder.bind(recorder.graph.placeholder(f"x{k}"), TensorMeta(shape, torch.float32, device, contiguous_strides(shape)))
                  for k, (shape, device) in enumerate(inputs)]
        made = fn(*values)
        recorder.graph.output(tuple(getattr(v, "node", v) if isinstance(v, TensorMeta) else v for v in made))
    _recorders.pop()
    return fx.GraphModule({}, recorder.graph)


def home(gm: fx.GraphModule) -> fx.GraphModule:
    """The same graph on the CPU."""
    def here(value):
        if isinstance(value, torch.device):
            return CPU
        return TensorMeta(value.shape, value.dtype, CPU, value.strides) if isinstance(value, TensorMeta) else value
    for node in gm.graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = here(node.meta["val"])
        node.args = fx.node.map_aggregate(node.args, here)
        node.kwargs = fx.node.map_aggregate(node.kwargs, here)
    gm.recompile()
    return gm


@pytest.fixture
def at_home(monkeypatch, fresh):
    """Pieces for the GPU run in Triton's interpreter, those for the CPU as C; returns the devices of the pieces that were compiled."""
    compiled, seen = compiler._compiled, []

    def here(gm, device, inference, name):
        seen.append(device.type)
        with config.patch(triton_interpret=device.type == "cuda"):
            return compiled(home(gm), CPU, inference, name)
    split = devices.split

    def split_here(gm):
        pieces = split(gm)
        for piece in pieces.steps:
            if piece.device is None:
                home(piece.graph)
        return pieces
    monkeypatch.setattr(compiler, "_compiled", here)
    monkeypatch.setattr(compiler, "split", split_here)
    monkeypatch.setattr(compiler, "triton_version", lambda: "3")
    return seen


def check(fn, inputs, *tensors, symbols=(), values=()):
    gm = graph_of(fn, inputs, symbols)
    recipes = []
    call = compile_graph(gm, None, inference=False, keep=recipes.append)
    for _ in range(2):
        for e, f in zip(fn(*tensors), call([*values, *tensors]), strict=True):
            torch.testing.assert_close(f, e, rtol=1e-6, atol=1e-6)
    return recipes[0]


def spread(s, like):
    return P.broadcast_in_dim(s, like.shape, [])


def scaled(x, s):
    return P.mul(P.relu(x), spread(P.mul(s, 2.0), x)), P.add(s, 1.0)


def there_and_back(x, y):
    a = to(P.exp(P.mul(x, 0.5)), GPU)
    b = P.relu(P.add(a, y))
    c = P.add(to(b, CPU), x)
    return P.mul(c, 3.0), b


def apart(x, y):
    """Nothing passes between the devices."""
    return P.sum(P.exp(x), [1]), P.sum(P.relu(y), [0]), P.mul(P.exp(x), 2.0)


def test_a_number_on_the_cpu_is_copied_as_one_element(at_home):
    recipe = check(scaled, [((4, 8), GPU), ((), CPU)], torch.randn(4, 8), torch.tensor(1.5))
    kinds = [p.device and p.device.type for p in recipe.pieces.steps]
    assert sorted(filter(None, kinds)) == ["cpu", "cuda"] and kinds.count(None) == 1
    copy = next(p.graph for p in recipe.pieces.steps if p.device is None)
    assert [tuple(n.meta["val"].shape) for n in copy.graph.nodes if n.op == "call_function"] == [()]


def test_copies_between_pieces(at_home):
    recipe = check(there_and_back, [((4, 8), CPU), ((4, 8), GPU)], torch.randn(4, 8), torch.randn(4, 8))
    assert [p.device and p.device.type for p in recipe.pieces.steps] == ["cpu", None, "cuda", None, "cpu"]
    assert at_home == ["cpu", "cuda", "cpu"]


def test_what_is_apart_is_two_pieces(at_home):
    recipe = check(apart, [((4, 8), CPU), ((4, 8), GPU)], torch.randn(4, 8), torch.randn(4, 8))
    assert len(recipe.pieces.steps) == 2 and all(isinstance(p.graph, Recipe) for p in recipe.pieces.steps)


def test_sizes_that_vary(at_home):
    env = ShapeEnv()
    n = env.symbol(5, Named("s0"), marked=True)
    gm = graph_of(lambda x, s: (*scaled(x, s), n * 2), [((n, 8), GPU), ((), CPU)], [n])
    call = compile_graph(gm, None, inference=False)
    for size in (5, 7, 40):
        x, s = torch.randn(size, 8), torch.tensor(0.3)
        product, more, twice = call([size, x, s])
        torch.testing.assert_close(product, x.relu() * 0.6)
        assert more == 1.3 and twice == 2 * size


def test_values_are_let_go_when_nobody_needs_them():
    pieces = devices.split(graph_of(there_and_back, [((4, 8), CPU), ((4, 8), GPU)]))
    kept = {r for r in pieces.results if isinstance(r, int)}
    dead = [place for p in pieces.steps for place in p.dead]
    assert sorted(dead + list(kept)) == list(range(pieces.places)) and len(set(dead)) == len(dead)


def test_results_of_mixed_operands_are_on_the_gpu():
    a, b = (TensorMeta((2,), torch.float32, d, (1,)) for d in (CPU, GPU))
    assert P.TABLE["add"].meta(a, b).device == P.TABLE["mul"].meta(b, a).device == GPU
    assert P.TABLE["where"].meta(TensorMeta((2,), torch.bool, GPU, (1,)), a, a).device == GPU


def test_pieces_are_kept_on_disk(at_home):
    recipe = check(scaled, [((4, 8), GPU), ((), CPU)], torch.randn(4, 8), torch.tensor(1.5))
    again = portable.loads(portable.dumps(recipe))
    from minipt2.inductor import load
    x = torch.randn(4, 8)
    assert len(again.pieces.steps) == len(recipe.pieces.steps)
    with config.patch(triton_interpret=True):
        torch.testing.assert_close(load(again)([x, torch.tensor(2.0)])[0], x.relu() * 4)
