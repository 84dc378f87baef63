import torch
from torch import nn

import minipt2
from minipt2.aot_autograd.functionalize import functionalize
from minipt2.aot_autograd.trace import trace_joint
from minipt2.course.checks import same
from minipt2.prims import expand
from minipt2.prims.core import Prim


def graph_of(fn, *args):
    """A functional ATen graph; it returns (outputs, gradients)."""
    joint = trace_joint(fn, list(args))
    functionalize(joint.graph)
    joint.graph.eliminate_dead_code()
    joint.recompile()
    return joint


def targets(gm):
    return [n.target for n in gm.graph.nodes if n.op == "call_function"]


def agree(fn, *args):
    """The expanded graph computes what the graph did; returns it."""
    gm = graph_of(fn, *args)
    new = expand(gm)
    same(list(new(*args)[0]), list(gm(*args)[0]), rtol=1e-4, atol=1e-5)
    return new


def test_only_prims_remain():
    """Composites are gone."""
    x = torch.randn(2, 8)
    new = agree(lambda x: torch.nn.functional.gelu(torch.softmax(x, -1)) + torch.nn.functional.layer_norm(x, (8,)), x)
    assert all(isinstance(t, Prim) or "getitem" in str(t) for t in targets(new)), targets(new)


def test_multi_output_operators():
    """Both results of max over a dimension, and of var_mean."""
    agree(lambda x: [*torch.max(x, 1), *torch.var_mean(x, 0)], torch.randn(3, 4))


def test_arguments_in_lists():
    """cat and stack take lists of tensors."""
    agree(lambda x, y: [torch.cat([x, y, x], 1), torch.stack([y, x])], torch.randn(2, 3), torch.randn(2, 3))


def test_what_has_no_rule_stays():
    """With the reason in meta, and it computes as before."""
    new = agree(lambda x: torch.fft.rfft(x).abs() * 2, torch.randn(8))
    reasons = [n.meta["fallback"] for n in new.graph.nodes if n.meta.get("fallback")]
    assert reasons, "an operator without a rule, and no node says so"


def test_complex_falls_back():
    """Rules compute with real numbers."""
    new = agree(lambda x: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(x)), torch.randn(4, 2))
    assert any("complex" in str(n.meta.get("fallback")) for n in new.graph.nodes), [n.meta.get("fallback") for n in new.graph.nodes]


def test_a_rule_may_decline():
    """NoRule is a fallback with its reason; the table is an argument."""
    from minipt2.prims.decompositions.registry import NoRule

    def declines(*args, **kwargs):
        raise NoRule("not today")
    gm = graph_of(lambda x: torch.relu(x), torch.randn(3))
    new = expand(gm, {torch.ops.aten.relu.default: declines})
    same([n.meta.get("fallback") for n in new.graph.nodes if n.op == "call_function"], ["not today"])


def test_keeps_where_it_came_from():
    """meta of the old node goes to every new one."""
    gm = graph_of(lambda x: torch.softmax(x, -1), torch.randn(2, 3))
    for n in gm.graph.nodes:
        n.meta["stack"] = ("marked",)
    new = expand(gm)
    assert all(n.meta.get("stack") == ("marked",) for n in new.graph.nodes if n.op == "call_function")


def test_trains_a_model():
    """The whole compiler on your expansion."""
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3), nn.LogSoftmax(-1)), torch.randn(5, 4)
    net(x).square().mean().backward()
    expected = [p.grad for p in net.parameters()]
    net.zero_grad()
    minipt2.compile(net)(x).square().mean().backward()
    same([p.grad for p in net.parameters()], expected, rtol=1e-4, atol=1e-5)
