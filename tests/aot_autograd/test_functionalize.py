"""Functionalisation: random programs of views and in-place operators, against eager, aliasing of the outputs included."""
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from minipt2.aot_autograd import aot_eager, trace_joint
from minipt2.aot_autograd.functionalize import functionalize
from minipt2.aot_autograd.ops import functional_variant, info, writes_now
from minipt2.config import config

from .lifting import copies, graph_of
from .observing import storages

aten = torch.ops.aten
VIEWS = {
    "t": lambda x, k: x.transpose(k % x.dim(), (k + 1) % x.dim()) if x.dim() else x,
    "select": lambda x, k: x.select(k % x.dim(), k % x.shape[k % x.dim()]) if x.dim() and x.numel() else x,
    "slice": lambda x, k: x.narrow(k % x.dim(), k % 2, max(x.shape[k % x.dim()] - 1, 1)) if x.dim() and x.shape[k % x.dim()] > 1 else x,
    "step": lambda x, k: x[k % 2::2] if x.dim() and x.shape[0] > 1 else x,
    "unsqueeze": lambda x, k: x.unsqueeze(k % (x.dim() + 1)) if x.dim() < 4 else x,
    "squeeze": lambda x, k: x.squeeze(),
    "flat": lambda x, k: x.view(-1) if x.is_contiguous() else x.reshape(-1),
    "diagonal": lambda x, k: x.diagonal() if x.dim() == 2 else x,
    "split": lambda x, k: x.split(1)[k % x.shape[0]] if x.dim() and x.shape[0] else x,
    "unbind": lambda x, k: x.unbind(0)[-1] if x.dim() and x.shape[0] else x,
    "strided": lambda x, k: x.as_strided((2,), (1,), x.storage_offset()) if x.numel() > 2 and x.is_contiguous() else x,
    "detach": lambda x, k: x.detach(),
    "expand": lambda x, k: x.expand(2, *x.shape) if x.dim() < 3 else x,
    "unfold": lambda x, k: x.unfold(0, 2, 2) if x.dim() and x.shape[0] >= 2 else x,
    "clone": lambda x, k: x.clone(),
    "plus": lambda x, k: x + k,
}
WRITES = {
    "add": lambda x, y, k: x.add_(y.sum()),
    "mul": lambda x, y, k: x.mul_(0.5),
    "fill": lambda x, y, k: x.fill_(k),
    "zero": lambda x, y, k: x.zero_(),
    "copy": lambda x, y, k: x.copy_(y.sum() + torch.arange(x.numel()).view(x.shape)),
    "index": lambda x, y, k: x.index_fill_(0, torch.tensor([0]), k) if x.dim() and x.shape[0] else x,
    "clamp": lambda x, y, k: x.clamp_(-k, k),
    "unsqueeze": lambda x, y, k: x.masked_fill_(x > 1, k),
    "out": lambda x, y, k: torch.add(x.clone(), 1, out=x),
}
step = st.tuples(st.sampled_from(sorted(VIEWS) + sorted(WRITES)), st.integers(0, 7), st.integers(0, 7), st.integers(0, 4))


def program(steps, keep):
    def fn(a, b):
        values = [a, b, a * 2, torch.zeros(2, 3).t()]
        for name, i, j, k in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if name in VIEWS:
                values.append(VIEWS[name](x, k))
            elif not any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape)):  # eager refuses to write into expanded tensors
                WRITES[name](x, y, k)
        return [values[i % len(values)] for i in keep]
    return fn


@settings(max_examples=60, deadline=None)
@given(st.lists(step, min_size=1, max_size=10), st.lists(st.integers(0, 13), min_size=1, max_size=4))
def test_random_programs(steps, keep):
    fn = program(steps, keep)
    inputs = [torch.arange(6.0).view(2, 3), torch.arange(4.0).view(4, 1)]
    eager, ours = copies(inputs), copies(inputs)
    expected = fn(*eager)
    with config.patch(raise_internal_errors=True):
        found = aot_eager(graph_of(fn, 2), copies(inputs))(*ours)
    for e, f in zip([*eager, *expected], [*ours, *found]):
        torch.testing.assert_close(f, e, check_stride=e.numel() > 0)
    assert storages([*ours, *found]) == storages([*eager, *expected])
    for e, f in zip(expected, found):  # still aliased in the same places: write into each and look at all
        if not any(s == 0 and n > 1 for s, n in zip(e.stride(), e.shape)):
            e.add_(1)
            f.add_(1)
    for e, f in zip([*eager, *expected], [*ours, *found]):
        torch.testing.assert_close(f, e)


def test_batch_norm_statistics_are_mutations():
    def fn(x, mean, var):
        return torch.nn.functional.batch_norm(x, mean, var, training=True)
    joint = trace_joint(fn, [torch.randn(4, 3), torch.zeros(3), torch.ones(3)])
    mutations = functionalize(joint.graph)
    assert [m.input.name for m in mutations] == ["primals_2", "primals_3"]
    assert all(not writes_now(n.target, n.args, n.kwargs) for n in joint.graph.nodes if isinstance(n.target, torch._ops.OpOverload))


def test_write_backs_see_the_last_value():
    def fn(x):
        x.add_(1)
        y = x * 2
        x[0].mul_(y[1])
        return y
    joint = trace_joint(fn, [torch.ones(3)])
    (mutation,) = functionalize(joint.graph)
    order = list(joint.graph.nodes)
    assert order.index(mutation.value) > max(order.index(u) for u in mutation.input.users)


@pytest.mark.parametrize("op, twin", [
    (aten.add_.Tensor, aten.add.Tensor), (aten.add.out, aten.add.Tensor), (aten.bernoulli_.float, aten.bernoulli.p),
    (aten.normal_.default, aten.normal_functional.default), (aten._foreach_add_.List, aten._foreach_add.List),
    (aten.index_put_.default, aten.index_put.default), (aten.uniform_.default, aten.uniform.default),
    (aten.sum.IntList_out, aten.sum.dim_IntList), (aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)])
def test_functional_twins(op, twin):
    assert functional_variant(op) is twin


def test_mutable_operator_without_twin():
    with torch.library._scoped_library("minipt2_test", "DEF") as lib:
        lib.define("bump(Tensor(a!) x, Tensor y) -> Tensor")
        lib.impl("bump", lambda x, y: (x.add_(y), x * 2)[1].clone(), "CompositeExplicitAutograd")
        op = torch.ops.minipt2_test.bump.default
        assert functional_variant(op) is None and info(op).writes == (0,)

        def fn(a, b):
            c = op(a, b)
            return a * c, c
        with config.patch(raise_internal_errors=True):
            run = aot_eager(graph_of(fn, 2), [torch.ones(2), torch.ones(2)])
        a, b = torch.ones(2), torch.ones(2)
        product, c = run(a, b)
        assert (product.tolist(), c.tolist(), a.tolist()) == ([8, 8], [4, 4], [2, 2])


def test_stacks_follow_forward_and_backward():
    graph = torch.fx.Graph()
    a = graph.placeholder("a")
    b = graph.call_function(torch.sin, (a,))
    c = graph.call_function(torch.softmax, (b, 0))
    b.meta["stack"], c.meta["stack"] = ("line 1",), ("line 2",)
    graph.output((c,))
    joint = trace_joint(torch.fx.GraphModule(torch.nn.Module(), graph), [torch.randn(3, requires_grad=True)])
    stacks = {n.target: n.meta["stack"] for n in joint.graph.nodes if n.op == "call_function"}
    assert stacks[aten.sin.default] == stacks[aten.cos.default] == ("line 1",)
    assert stacks[aten._softmax.default] == stacks[aten._softmax_backward_data.default] == ("line 2",)
