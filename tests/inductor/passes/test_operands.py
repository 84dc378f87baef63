import torch
from torch import nn

from minipt2.inductor.passes.operands import order_operands

from .graphs import inference_graph, run


class Scores(nn.Module):
    def forward(self, q, k):
        q, k = (t.view(2, 16, 4, 8).transpose(1, 2) for t in (q, k))
        return q @ k.transpose(-1, -2)


def nodes(gm, name):
    return [n for n in gm.graph.nodes if getattr(n.target, "name", "") == name]


def check(module, *inputs):
    gm, args = inference_graph(module, *inputs)
    before = run(gm, args)
    changed = order_operands(gm)
    after = run(gm, args)
    torch.testing.assert_close(after, before)
    assert [t.stride() for t in after] == [t.stride() for t in before]
    return gm, changed


def test_keys_are_copied_in_their_own_order():
    gm, changed = check(Scores(), torch.randn(2, 16, 32), torch.randn(2, 16, 32))
    assert changed == 1
    for copy in nodes(gm, "copy_strided"):
        source, copied = copy.args[0].meta["val"].stride(), copy.meta["val"].stride()
        assert (source[-1] < source[-2]) == (copied[-1] < copied[-2])
    product, = nodes(gm, "bmm")
    assert tuple(product.args[1].meta["val"].stride()) == (128, 1, 8)


def test_a_copy_that_others_read_keeps_its_order():
    class Both(nn.Module):
        def forward(self, x, y):
            t = x.transpose(1, 2).contiguous()
            return torch.bmm(y, t), t
    _, changed = check(Both(), torch.randn(2, 5, 6), torch.randn(2, 3, 6))
    assert changed == 0


def test_product_copied_transposed_is_computed_transposed():
    class Turned(nn.Module):
        def forward(self, a, b):
            return torch.bmm(a, b).transpose(1, 2).contiguous()
    gm, changed = check(Turned(), torch.randn(2, 5, 6), torch.randn(2, 6, 7))
    assert changed == 1 and nodes(gm, "bmm")[0].meta["val"].shape == (2, 7, 5)


def test_product_whose_reader_takes_any_order_stays():
    class Turned(nn.Module):
        def forward(self, a, b):
            return torch.bmm(a, b).transpose(1, 2).exp()
    _, changed = check(Turned(), torch.randn(2, 5, 6), torch.randn(2, 6, 7))
    assert changed == 0
