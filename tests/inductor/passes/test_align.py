"""Padded products: graphs are made on a CPU and said to lie on a GPU; what the pass makes of them computes the same."""
import pytest
import torch
from torch import fx, nn

from minipt2.inductor.compile import compile_graph
from minipt2.inductor.passes import align
from minipt2.inductor.passes.align import align_products
from minipt2.inductor.passes.graphs import prim
from minipt2.prims import TensorMeta

from .graphs import inference_graph, run


def nodes(gm, *names):
    return [n for n in gm.graph.nodes if getattr(n.target, "name", "") in names]


def move(gm, device):
    for node in gm.graph.nodes:
        if (val := node.meta.get("val")) is not None and hasattr(val, "stride"):
            node.meta["val"] = TensorMeta(tuple(val.shape), val.dtype, torch.device(device), tuple(val.stride()))


def check(module, *inputs, static=False):
    """The shapes that products have after the rewrite, the graph; run as it is and compiled (for the CPU), it gives what it gave before."""
    gm, args = inference_graph(module.bfloat16(), *inputs)
    for node in gm.graph.nodes:
        if not static:
            node.meta.pop("static", None)
    before = run(gm, args)
    move(gm, "cuda")
    align_products(gm)
    products = nodes(gm, "mm", "bmm", "addmm", "baddbmm")
    shapes = [tuple(map(lambda x: tuple(x.meta["val"].shape), (*align._operands(p), p))) for p in products]
    move(gm, "cpu")
    torch.testing.assert_close(run(gm, args), before, rtol=2e-2, atol=2e-2)
    compiled = compile_graph(gm, args, inference=False)(list(args))
    torch.testing.assert_close(compiled, before, rtol=2e-2, atol=2e-2)
    assert [t.stride() for t in compiled] == [t.stride() for t in before]
    return shapes, gm


def bf16(*sizes):
    return torch.randn(sizes).to(torch.bfloat16) / 8


@pytest.fixture
def free(monkeypatch):
    """Copies and launches cost nothing, so that small products gain."""
    monkeypatch.setattr(align, "LAUNCH", 0)
    monkeypatch.setattr(align, "BANDWIDTH", float("inf"))


class Product(nn.Module):
    def forward(self, x, w):
        return (x @ w.t()).float()


def test_columns_of_a_result_are_padded(free):
    shapes, gm = check(Product(), bf16(16, 32), bf16(33, 32))
    assert shapes == [((16, 32), (32, 40), (16, 40))]
    pad, = nodes(gm, "pad")
    assert tuple(pad.meta["val"].shape) == (40, 32)  # the weight as it lies, not its transposed view


def test_aligned_products_stay(free):
    shapes, gm = check(Product(), bf16(15, 32), bf16(40, 32))
    assert shapes == [((15, 32), (32, 40), (15, 40))] and not nodes(gm, "pad")


def test_inner_sizes_are_padded_with_zeros_on_both_sides(free):
    shapes, _ = check(Product(), bf16(16, 33), bf16(24, 33))
    assert shapes == [((16, 40), (40, 24), (16, 24))]


def test_rows_are_padded_where_they_are_contiguous(free):
    class Turned(nn.Module):
        def forward(self, a, b):
            return (a.t() @ b).float()
    shapes, _ = check(Turned(), bf16(16, 33), bf16(16, 24))
    assert shapes == [((40, 16), (16, 24), (40, 24))]


def test_two_products_share_what_is_padded(free):
    class Gradients(nn.Module):
        def forward(self, grad, w, x):
            g = (grad * 2).to(torch.bfloat16).view(16, 33)
            return g @ w, g.t() @ x, g.float().sum(0)
    shapes, gm = check(Gradients(), torch.randn(2, 8, 33) / 8, bf16(33, 32), bf16(16, 32))
    assert shapes == [((16, 40), (40, 32), (16, 32)), ((40, 16), (16, 32), (40, 32))]
    assert len(nodes(gm, "pad")) == 2  # the gradient, the weight


@pytest.mark.parametrize("bias", [(33,), (1, 33), (16, 1), (16, 33)])
def test_bias(bias, free):
    class Biased(nn.Module):
        def forward(self, bias, a, b):
            return torch.addmm(bias, a, b)
    assert check(Biased(), bf16(*bias), bf16(16, 32), bf16(32, 33))[0] == [((16, 32), (32, 40), (16, 40))]


def test_a_result_that_leaves_keeps_eagers_strides(free):
    class Leaves(nn.Module):
        def forward(self, x, w):
            return (x @ w.t()).view(2, -1, 33)
    check(Leaves(), bf16(16, 32), bf16(33, 32))


def test_batches(free):
    class Batched(nn.Module):
        def forward(self, a, b):
            return (torch.bmm(a, b.transpose(1, 2)) * 2).float()
    assert check(Batched(), bf16(4, 16, 35), bf16(4, 33, 35))[0] == [((4, 16, 40), (4, 40, 40), (4, 16, 40))]


@pytest.mark.parametrize("sizes, changed", [
    (((2048, 768), (50257, 768)), 1),    # a language model's last layer
    (((2048, 1001), (2048, 1001)), 1),   # two inputs, copied
    (((8, 1001), (4096, 1001)), 0),      # the copy would take longer than the product gains
    (((64, 64), (33, 64)), 0),           # a launch would
])
def test_what_pays(sizes, changed):
    """Decided by sizes: nothing is run."""
    graph = fx.Graph()
    x, w = (graph.placeholder(name) for name in "xw")
    for node, size in zip((x, w), sizes):
        node.meta["val"] = TensorMeta(size, torch.bfloat16, torch.device("cuda"), (size[1], 1))
    product = prim(graph, "mm", (x, prim(graph, "permute", (w, (1, 0)), w)), x)
    graph.output((prim(graph, "convert", (product, torch.float32), x),))
    assert align_products(fx.GraphModule(nn.Module(), graph)) == changed


def test_parameters_are_padded_ahead_so_that_this_has_no_price():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(1024, 1001) / 8)

        def forward(self, x):
            return (x @ self.w).float()
    assert check(Layer(), bf16(520, 1024), static=True)[0] == [((520, 1024), (1024, 1008), (520, 1008))]
