import pytest
import torch
from torch import nn

import minipt2
from minipt2.aot_autograd.trace import trace_joint
from minipt2.course.checks import same


def placeholders(joint):
    return [n for n in joint.graph.nodes if n.op == "placeholder"]


def run(fn, primals, tangents):
    """The joint graph on real data: outputs and gradients."""
    joint = trace_joint(fn, primals)
    outputs, grads = joint(*primals, *tangents)
    return list(outputs), list(grads)


def eager(fn, primals, tangents):
    leaves = [p.detach().clone().requires_grad_(p.requires_grad) for p in primals]
    out = fn(*leaves)
    wanted = [p for p in leaves if p.requires_grad]
    grads = torch.autograd.grad(out, wanted, tangents, allow_unused=True)
    found = iter(grads)
    return [o.detach() for o in out], [next(found) if p.requires_grad else None for p in leaves]


def leaf(*shape):
    return torch.randn(*shape, requires_grad=True)


CASES = {
    "mlp": (lambda x, w, v: [torch.relu(x @ w) @ v], [(4, 3), (3, 5), (5, 2)]),
    "two outputs": (lambda x, y: [x * y, (x + y).sum(0)], [(3, 4), (3, 4)]),
    "softmax": (lambda x: [x.softmax(-1).log()], [(2, 6)]),
    "views": (lambda x: [x.t().reshape(-1)[2:]], [(3, 4)]),
}


@pytest.mark.parametrize("name", CASES)
def test_runs_on_real_data(name):
    """Outputs and gradients of the graph equal autograd's, for any tangents."""
    torch.manual_seed(0)
    fn, shapes = CASES[name]
    primals = [leaf(*s) for s in shapes]
    tangents = [torch.randn_like(o) for o in fn(*primals)]
    (outs, grads), (outs_e, grads_e) = run(fn, primals, tangents), eager(fn, primals, tangents)
    same([o.detach() for o in outs], outs_e)
    same(grads, grads_e, rtol=1e-4, atol=1e-5)


def test_tangents_are_inputs():
    """One placeholder an output, behind the primals, marked."""
    joint = trace_joint(lambda x, y: [x * 2, y + 1], [leaf(3), leaf(2)])
    nodes = placeholders(joint)
    same([n.name for n in nodes], ["primals_1", "primals_2", "tangents_1", "tangents_2"])
    same([bool(n.meta.get("tangent")) for n in nodes], [False, False, True, True])


def test_frozen_parameters():
    """No gradient for what does not require one: None, in its place."""
    primals = [torch.randn(3), leaf(3), torch.randn(3)]
    _, grads = run(lambda a, b, c: [a * b + c], primals, [torch.ones(3)])
    same(len(grads), 3)
    assert grads[0] is None and grads[2] is None
    same(grads[1], primals[0])


def test_an_unused_input():
    """Nothing depends on it: None as well."""
    _, grads = run(lambda a, b: [a * 3], [leaf(2), leaf(2)], [torch.ones(2)])
    same(grads[0], torch.full((2,), 3.0))
    assert grads[1] is None


def test_tangents_lie_as_outputs_do():
    """Dense outputs hand their strides to the tangents."""
    joint = trace_joint(lambda x: [x.t() * 2], [leaf(3, 4)])
    val = placeholders(joint)[-1].meta["val"]
    same((tuple(val.shape), val.stride()), ((4, 3), (1, 4)))


def test_trains_a_model():
    """The whole compiler on your joint graph."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 1)), torch.randn(5, 4)
    net[0].bias.requires_grad_(False)
    net(x).square().mean().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()
    minipt2.compile(net, backend="aot_eager")(x).square().mean().backward()
    for p, wanted in zip(net.parameters(), expected):
        assert (p.grad is None) == (wanted is None)
        if wanted is not None:
            same(p.grad, wanted, rtol=1e-4, atol=1e-5)
