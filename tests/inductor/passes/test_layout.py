import pytest
import torch
from torch import nn

from minipt2 import prims
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.config import config
from minipt2.inductor.autotune import gradients
from minipt2.inductor.passes import choose_layouts

from .graphs import inference_graph, lift, run, targets



def strides(gm):
    return [tuple(n.meta["val"].stride()) for n in gm.graph.nodes if n.op == "output" for n in n.all_input_nodes]


def network():
    return nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 16, 1), nn.Sigmoid())


def test_one_copy_in_and_one_out():
    gm, args = inference_graph(network(), torch.randn(2, 8, 12, 12))
    before, at = run(gm, args), strides(gm)
    choose_layouts(gm)
    assert strides(gm) == at
    assert targets(gm)["copy_strided"] <= 3
    convolutions = [n for n in gm.graph.nodes if getattr(n.target, "name", "") == "convolution"]
    assert all(n.meta["val"].stride()[1] == 1 for n in convolutions)
    after = run(gm, args)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


def test_values_say_where_tensors_really_lie():
    gm, args = inference_graph(network(), torch.randn(2, 8, 12, 12))
    choose_layouts(gm)

    class Check(torch.fx.Interpreter):
        def run_node(self, n):
            result = super().run_node(n)
            if isinstance(result, torch.Tensor) and n.op == "call_function" and prims.kind(n) == "contraction":
                assert result.stride() == tuple(n.meta["val"].stride()), n
            return result
    with torch.no_grad():
        Check(gm).run(*args)


@pytest.mark.parametrize("padding, frozen, moved", [(3, True, False), (0, True, True), (0, False, False)])
def test_stem_with_large_window_stays_unless_its_rows_are_packed(padding, frozen, moved):
    gm, _ = inference_graph(nn.Conv2d(3, 64, 7, stride=2, padding=padding), torch.randn(1, 3, 32, 32))
    with config.patch(packed_products=frozen):
        choose_layouts(gm)
    assert (targets(gm)["copy_strided"] > 0) == moved


def moved_to_gpu(module, x, dtype):
    """The graph of ``module`` as it would be traced on a GPU."""
    gm, _ = inference_graph(module, x)
    for node in gm.graph.nodes:
        if hasattr(node.meta.get("val"), "device"):
            val = prims.TensorMeta.of(node.meta["val"])
            val.device, val.dtype = torch.device("cuda", 0), dtype
            node.meta["val"] = val
    return gm


def test_on_tensor_cores_all_are_moved_and_weights_too():
    net = nn.Sequential(nn.Conv2d(3, 16, 7), nn.ReLU(), nn.Conv2d(16, 16, 3))
    for dtype, tf32, moved in [(torch.bfloat16, False, True), (torch.float32, True, True), (torch.float32, False, False), (torch.float64, True, False)]:
        with torch.backends.cudnn.flags(allow_tf32=tf32):
            gm = moved_to_gpu(net, torch.randn(1, 3, 32, 32), dtype)
            with config.patch(onednn=False):  # as for a GPU
                choose_layouts(gm)
        convolutions = [n for n in gm.graph.nodes if getattr(n.target, "name", "") == "convolution"]
        for n in convolutions:
            assert all((v.meta["val"].stride()[1] == 1) == moved for v in (n, n.args[0], n.args[1])), (dtype, tf32)


def test_switch():
    gm, _ = inference_graph(network(), torch.randn(2, 8, 12, 12))
    with config.patch(channels_last=False):
        choose_layouts(gm)
    assert targets(gm)["copy_strided"] == 0


def training(module, x):
    gm, state = lift(module, 1)
    joint = []

    def decompose(graph):
        joint.append(choose_layouts(prims.expand(graph)))
        return joint[0]
    f = aot_compile(gm, [*state, x], fw_compiler=run_eagerly, decompose=decompose)
    out = f(*state, x)[0]
    out.square().sum().backward()
    return joint[0], out


@pytest.fixture(autouse=True)
def only_layouts(monkeypatch):
    """Whether gradients become matrix products is timed, and another file's matter."""
    monkeypatch.setattr(gradients, "worth_unfolding", lambda problem: False)


def check_training(module):
    reference = [p.clone().detach().requires_grad_() for p in module.parameters()]
    x = torch.randn(2, 8, 12, 12)
    expected = torch.func.functional_call(module, dict(zip(dict(module.named_parameters()), reference)), (x,))
    expected.square().sum().backward()
    joint, out = training(module, x)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    assert out.stride() == expected.stride()
    for p, q in zip(module.parameters(), reference):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-4, atol=1e-4)
        assert p.grad.stride() == q.grad.stride()
    return joint


def test_training_moves_depthwise_networks():
    joint = check_training(nn.Sequential(nn.Conv2d(8, 32, 1), nn.ReLU(), nn.Conv2d(32, 32, 3, groups=32), nn.ReLU(), nn.Conv2d(32, 8, 1)))
    convolutions = [n for n in joint.graph.nodes if getattr(n.target, "name", "") == "convolution"]
    assert all(n.meta["val"].stride()[1] == 1 for n in convolutions)


def test_training_leaves_dense_networks():
    joint = check_training(nn.Sequential(nn.Conv2d(8, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3)))
    assert targets(joint)["copy_strided"] == 0
