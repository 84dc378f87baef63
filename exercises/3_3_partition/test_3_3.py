import random

import pytest
import torch
from torch import nn

import minipt2
from minipt2.aot_autograd.partition import backward_nodes, needed_from_forward, split
from minipt2.aot_autograd.trace import trace_joint
from minipt2.course.checks import same


def joint_of(fn, *shapes):
    torch.manual_seed(0)
    primals = [torch.randn(s, requires_grad=True) for s in shapes]
    return trace_joint(fn, primals), primals


def mlp(x, w, v):
    return (torch.tanh(torch.tanh(x @ w) * 2) @ v).sum()


SHAPES = (4, 3), (3, 5), (5, 2)


def gradients(joint, saved, primals, tangent):
    """Outputs and gradients by way of two graphs."""
    forward, backward = split(joint, saved)
    count = forward.meta["outputs"]
    results = forward(*[p.detach() for p in primals])
    return list(results[:count]), list(backward(*results[count:], tangent))


def sufficient(joint):
    """A set from which every backward can start: what it reads directly."""
    return set(needed_from_forward(joint, backward_nodes(joint)))


def test_any_sufficient_set_gives_the_same_gradients():
    """More saved, less computed again; the gradients do not change."""
    joint, primals = joint_of(mlp, *SHAPES)
    tangent = torch.tensor(2.0)
    out = mlp(*primals)
    expected = torch.autograd.grad(outputs=out, inputs=primals, grad_outputs=tangent)
    candidates = [n for n in joint.graph.nodes if n not in backward_nodes(joint) and n.op != "output"]
    inputs = {n for n in candidates if n.op == "placeholder"}
    rng = random.Random(1)
    for saved in [sufficient(joint), inputs, set(candidates), *(inputs | set(rng.sample(candidates, 4)) for _ in range(4))]:
        outs, grads = gradients(joint, saved, primals, tangent)
        same(outs[0], out.detach())
        same(grads, list(expected), rtol=1e-4, atol=1e-5)


def test_saved_in_the_order_of_the_joint_graph():
    """Both sides count on it."""
    joint, _ = joint_of(mlp, *SHAPES)
    saved = sufficient(joint)
    forward, backward = split(joint, saved)
    names = [n.name for n in joint.graph.nodes if n in saved]
    output = next(iter(reversed(forward.graph.nodes)))
    same([n.name for n in output.args[0]][forward.meta["outputs"]:], names, where="what the forward returns behind its outputs")
    same([n.name for n in backward.graph.nodes if n.op == "placeholder"][:len(names)], names, where="what the backward takes first")


def test_the_forward_takes_no_tangents():
    """They belong to the backward, behind what was saved."""
    joint, _ = joint_of(mlp, *SHAPES)
    forward, backward = split(joint, sufficient(joint))
    same([n.name for n in forward.graph.nodes if n.op == "placeholder"], ["primals_1", "primals_2", "primals_3"])
    same([n.name for n in backward.graph.nodes if n.op == "placeholder"][-1], "tangents_1")


def test_nothing_useless_is_computed():
    """The forward drops what only the gradients needed, the backward what was saved."""
    joint, _ = joint_of(mlp, *SHAPES)
    saved = {n for n in joint.graph.nodes if n not in backward_nodes(joint) and n.op == "call_function"}
    inputs = {n for n in joint.graph.nodes if n.op == "placeholder" and not n.meta.get("tangent")}
    _, backward = split(joint, saved | inputs)
    tanhs = [n for n in backward.graph.nodes if n.target is torch.ops.aten.tanh.default]
    same(len(tanhs), 0, where="tanh in the backward although all of them were saved")


def test_an_input_that_is_overwritten():
    """Saved as a copy: the write comes before the backward."""
    joint, _ = joint_of(lambda x, y: (x * y).sum(), (3,), (3,))
    x = next(n for n in joint.graph.nodes if n.op == "placeholder")
    x.meta["mutated"] = True
    forward, _ = split(joint, sufficient(joint))
    output = next(iter(reversed(forward.graph.nodes)))
    kinds = [n.op for n in output.args[0][forward.meta["outputs"]:]]
    same(sorted(kinds), ["call_function", "placeholder"], where="kinds of saved values (x as a copy, y as it is)")


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_trains(budget):
    """The whole compiler on your graphs, at several memory budgets."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2)), torch.randn(5, 4)
    net(x).square().mean().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()
    minipt2.compile(net, backend="aot_eager", options={"memory_budget": budget})(x).square().mean().backward()
    same([p.grad for p in net.parameters()], expected, rtol=1e-4, atol=1e-5)
