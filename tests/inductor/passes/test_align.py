"""Aligned rows: graphs are made on a CPU and said to lie on a GPU; what the pass makes of them computes the same."""
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
    """The rewritten graph, how much changed; run as it is and compiled (for the CPU), it gives what it gave before."""
    gm, args = inference_graph(module.bfloat16(), *inputs)
    for node in gm.graph.nodes:
        if not static:
            node.meta.pop("static", None)
    before = run(gm, args)
    move(gm, "cuda")
    changed = align_products(gm)
    layouts = {n: n.meta["layout"] for n in nodes(gm, "mm", "bmm", "addmm") if "layout" in n.meta}
    move(gm, "cpu")
    torch.testing.assert_close(run(gm, args), before)
    compiled = compile_graph(gm, args, inference=False)(list(args))
    torch.testing.assert_close(compiled, before, rtol=2e-2, atol=2e-2)
    assert [t.stride() for t in compiled] == [t.stride() for t in before]
    return gm, changed, list(layouts.values())


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


class Plain(nn.Module):
    def forward(self, a, b):
        return (a @ b).float()


def test_rows_of_a_result_are_padded(free):
    _, changed, layouts = check(Product(), bf16(16, 32), bf16(33, 32))
    assert changed == 1 and layouts == [(40, 1)]


def test_aligned_products_stay(free):
    assert check(Product(), bf16(16, 32), bf16(40, 32))[1] == 0


def test_what_is_computed_is_stored_in_aligned_rows_for_all_readers(free):
    class Gradients(nn.Module):
        def forward(self, grad, w, x):
            g = (grad * 2).to(torch.bfloat16).view(16, 33)
            return g @ w, g.t() @ x, g.float().sum(0)
    gm, changed, layouts = check(Gradients(), torch.randn(2, 8, 33) / 8, bf16(33, 32), bf16(16, 32))
    copies = nodes(gm, "copy_strided")
    assert changed == 1 and len(copies) == 1 and tuple(copies[0].meta["val"].stride()) == (320, 40, 1) and not layouts


def test_inputs_are_copied(free):
    gm, changed, _ = check(Product(), bf16(16, 33), bf16(24, 33))
    assert changed == 2 and [tuple(c.meta["val"].stride()) for c in nodes(gm, "copy_strided")] == [(40, 1), (40, 1)]


def test_a_column_major_operand_is_copied_as_it_lies(free):
    gm, changed, _ = check(Plain(), bf16(16, 33), bf16(24, 33).t())
    read = nodes(gm, "mm")[0].args[1]
    assert changed == 2 and tuple(read.args[0].meta["val"].stride()) == (40, 1)


def test_a_result_that_leaves_keeps_eagers_strides(free):
    class Leaves(nn.Module):
        def forward(self, x, w):
            return (x @ w.t()).view(2, -1, 33)
    _, changed, layouts = check(Leaves(), bf16(16, 32), bf16(33, 32))
    assert changed == 1 and layouts == [(40, 1)]


def test_batches(free):
    class Batched(nn.Module):
        def forward(self, a, b):
            return (torch.bmm(a, b) * 2).float()
    _, changed, layouts = check(Batched(), bf16(4, 16, 32), bf16(4, 32, 33))
    assert changed == 2 and layouts == [(16 * 40, 40, 1)]


def test_one_row_may_lie_anywhere(free):
    assert check(Plain(), bf16(1, 33), bf16(33, 40))[1] == 0


@pytest.mark.parametrize("sizes, changed", [
    (((2048, 768), (50257, 768)), 1),    # a language model's last layer
    (((2048, 1001), (2048, 1001)), 2),   # two inputs, copied
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


def test_parameters_are_copied_ahead_so_that_their_copy_has_no_price():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(1024, 1001) / 8)

        def forward(self, x):
            return (x @ self.w).float()
    assert check(Layer(), bf16(520, 1024), static=True)[1] == 2
