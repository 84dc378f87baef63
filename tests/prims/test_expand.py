"""Expanding keeps meaning, layout, aliasing and metadata; what can be simplified is."""
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import minipt2
from minipt2 import prims
from minipt2.config import config
from minipt2.errors import UserFrame
from minipt2.prims import Prim, expand, kind

from .tracing import trace

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def verify():
    with config.patch(verify_ir=True):
        yield


def expanded(fn, *xs):
    """The expanded graph of ``fn``, after checking its results and their strides against eager."""
    gm, eager = trace(fn, *xs)
    strides = [e.stride() for e in eager]
    graph = expand(gm)
    for ours, theirs, stride in zip(graph(*xs), eager, strides, strict=True):
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == stride or ours.numel() == 0
    return graph


def targets(gm):
    return [n.target.name if isinstance(n.target, Prim) else str(n.target) for n in gm.graph.nodes if n.op == "call_function"]


def test_only_prims_remain():
    def block(x, w, b, g, h):
        x = F.gelu(F.layer_norm(x, (8,), g, h), approximate="tanh") @ w + b
        return x.softmax(-1), x.transpose(0, 1).contiguous(), torch.cat([x, x.relu()], 1)

    gm = expanded(block, torch.randn(4, 8), torch.randn(8, 8), torch.randn(8), torch.randn(8), torch.randn(8))
    assert all(isinstance(n.target, Prim) or n.target is operator.getitem for n in gm.graph.nodes if n.op == "call_function")


def test_multiple_outputs_reach_their_users():
    gm = expanded(lambda x: x.max(1) + torch.var_mean(x, 0), torch.randn(5, 7))
    assert {"amax", "argmax", "var_mean"} <= set(targets(gm))


def test_fallbacks_stay_with_a_reason():
    gm = expanded(lambda x: x.sort()[0] + 1, torch.randn(5))
    (node,) = [n for n in gm.graph.nodes if n.target is aten.sort.default]
    assert node.meta["fallback"] and node.meta["val"][0].shape == (5,)


def test_random_numbers_are_drawn_as_in_eager():
    gm, _ = trace(lambda x: (x + torch.rand_like(x), aten.native_dropout(x, 0.5, True)[0]), torch.ones(6))
    graph = expand(gm)
    assert [kind(n) for n in graph.graph.nodes if "fallback" in n.meta and n.target is not operator.getitem] == ["random", "random"]
    torch.manual_seed(1)
    ours = graph(torch.ones(6))
    torch.manual_seed(1)
    assert torch.equal(ours[0], 1 + torch.rand(6))


def test_metadata_is_kept():
    gm, _ = trace(lambda x, w: F.layer_norm(x, (4,), w) * 2, torch.randn(2, 4), torch.randn(4))
    line = (UserFrame("model.py", 3, "forward", "x = norm(x)"),)
    for node in gm.graph.nodes:
        node.meta["stack"] = line
    placeholder = next(n for n in gm.graph.nodes if n.name == "arg1")
    placeholder.meta["static"] = True
    gm.meta["mutated_inputs"] = {0: 1}
    graph = expand(gm)
    assert graph.meta["mutated_inputs"] == {0: 1}
    assert [n.name for n in graph.graph.nodes if n.op == "placeholder"] == ["arg0", "arg1"]
    assert all(n.meta["stack"] == line for n in graph.graph.nodes)
    assert next(n for n in graph.graph.nodes if n.name == "arg1").meta["static"]
    graph.graph.lint()


def test_expanding_twice_changes_nothing():
    gm = expanded(lambda x: F.gelu(x).sum(0).softmax(0), torch.randn(3, 4))
    assert targets(expand(gm)) == targets(gm)


def test_own_table():
    gm, _ = trace(lambda x: x.exp().tanh(), torch.randn(3))
    graph = expand(gm, {aten.exp.default: prims.exp})
    assert targets(graph) == ["exp", "aten.tanh.default"]


@pytest.mark.parametrize("fn,expected", [
    (lambda x: x.float() * 1 / 1 - 0, []),
    (lambda x: x.double().float(), []),
    (lambda x: x.bfloat16().float(), ["convert", "convert"]),
    (lambda x: x.view(12).view(2, 6).view(3, 4), []),
    (lambda x: x.t().t().expand(3, 4), []),
    (lambda x: (x + 1) * (x + 1), ["add", "mul"]),
    (lambda x: x * torch.full((4,), 2.0), ["mul"]),
    (lambda x: x + 0.0, ["add"]),
    (lambda x: x * 1 + x * 1.0, ["add"]),
    (lambda x: -(-x), []),
    (lambda x: x.sum(1, keepdim=True).sum(1), ["sum", "reshape"]),
    (lambda x: x ** 2, ["mul"]),
    (lambda x: torch.cat([x, x[:0]]), []),
], ids=str)
def test_simplifications(fn, expected):
    names = targets(expanded(fn, torch.randn(3, 4)))
    if names[-1:] == ["copy_strided"]:  # the result of a copy in eager is not its input
        names.pop()
    assert names == expected


def test_equal_numbers_of_other_types_are_not_shared():
    gm = expanded(lambda x: (torch.full((2,), 1), torch.full((2,), 1.0), x * 0.0, x * -0.0), torch.randn(2))
    assert targets(gm).count("full") == 2 and targets(gm).count("mul") == 2


def test_outputs_do_not_become_aliases():
    x = torch.randn(3, 4)
    gm = expanded(lambda x: (x.clone(), x * 1, x.view(4, 3).clone(), x.t()), x)
    a, b, c, d = gm(x)
    pointers = [t.data_ptr() for t in (x, a, b, c)]
    assert len(set(pointers)) == 4 and d.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("fn", [
    lambda x: x.relu() + 1, lambda x: x.mean((2, 3), keepdim=True) * x, lambda x: torch.cat([x, x], 1), lambda x: F.pad(x, (1, 1, 1, 1)),
    lambda x: x.contiguous() * 2, lambda x: x.flip(2), lambda x: x.clone(memory_format=torch.contiguous_format),
    lambda x: F.batch_norm(x, None, None, training=True), lambda x: x.masked_fill(x > 0, 0.0), lambda x: x.sum(1), lambda x: x.half(),
])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_memory_format(fn, layout):
    expanded(fn, torch.randn(2, 3, 4, 5).to(memory_format=layout))


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1, 1), (4, 3)])
def test_scalars_and_empty_tensors(shape):
    x = torch.randn(shape)
    expanded(lambda x: (x + 1, x.sum(), x.softmax(-1), x.mean(-1) if x.numel() else x, x.cumsum(-1), x.prod(), x > 0.5, F.gelu(x)), x)


def test_low_precision_is_rounded_where_eager_rounds():
    x = torch.randn(64, 64).bfloat16()
    def fn(x):
        return F.gelu(x), F.layer_norm(x, (64,)), x.softmax(-1), x.mean(0), F.silu(x), (x * 0.1 + x) * x, x.sum(0), F.log_softmax(x, 0)
    gm, eager = trace(fn, x)
    exact = fn(x.double())
    for ours, theirs, truth in zip(expand(gm)(x), eager, exact, strict=True):
        assert ours.dtype is torch.bfloat16
        assert (ours.double() - truth).abs().max() <= 1.5 * (theirs.double() - truth).abs().max() + 1e-9


def test_layer_norm_far_from_zero():
    """The two-pass variance: E[x*x] - E[x]**2 would lose everything at 1e4."""
    x = torch.randn(8, 256) + 1e4
    gm, (eager, *_) = trace(lambda x: F.layer_norm(x, (256,)), x)
    truth = F.layer_norm(x.double(), (256,))
    assert (expand(gm)(x)[0] - truth).abs().max() <= 3 * (eager - truth).abs().max()


def test_complex_falls_back():
    gm = expanded(lambda x: (x * x).abs().sum() * 2, torch.randn(3, dtype=torch.complex64))
    assert "aten.mul.Tensor" in targets(gm) and "mul" in targets(gm)


def test_kinds():
    gm, _ = trace(lambda x, w: (aten.native_dropout(x @ w, 0.5, True)[0].view(-1), (x + 1).sum(), x[torch.tensor([1])], x.sort()), torch.randn(3, 3), torch.randn(3, 3))
    kinds = {str(n.target).split(".")[1]: kind(n) for n in gm.graph.nodes if n.op == "call_function" and n.target is not operator.getitem}
    expected = dict(mm="contraction", view="view", add="pointwise", sum="reduction", index="index", sort="extern", native_dropout="random")
    assert all(kinds[name] == expected[name] for name in kinds if name in expected) and len(kinds) >= 7


def test_prims_survive_copying():
    import copy
    import pickle
    assert copy.deepcopy(prims.exp) is prims.exp and pickle.loads(pickle.dumps(prims.exp)) is prims.exp


def test_code_is_written_when_asked_for():
    gm, _ = trace(lambda x: x.exp(), torch.randn(3))
    graph = expand(gm)
    assert isinstance(graph, fx.GraphModule) and "minipt2_prims_exp" in graph.code
    assert torch.equal(graph(torch.ones(3))[0], torch.ones(3).exp())


def test_foreach_is_the_plain_rule_for_each():
    xs, ys = [torch.rand(3), torch.rand(2, 2)], [torch.rand(3), torch.rand(2, 2)]

    def step(a, b, c, d):
        p, g = [a, b], [c, d]
        m = torch._foreach_lerp(p, g, 0.1)
        v = torch._foreach_addcmul(torch._foreach_mul(p, 0.9), g, g, 0.1)
        denominator = torch._foreach_add(torch._foreach_sqrt(v), [1e-8, 1e-6])
        p = torch._foreach_addcdiv(p, m, denominator, [-0.1, -0.2])
        return torch._foreach_div(torch._foreach_sub(p, g), 2.0) + torch._foreach_maximum(p, g) + torch._foreach_norm(g)

    gm = expanded(step, *xs, *ys)
    assert not [n for n in targets(gm) if "foreach" in n]


def test_every_rule_can_be_called():
    assert all(callable(fn) for fn in prims.decompositions.values())


@pytest.mark.parametrize("fn", [torch.max, torch.min, lambda x: x.max(0)[0], lambda x: x.min(0)[0]])
def test_extrema_of_nothing_are_left_to_eager(fn):
    compiled = minipt2.compile(lambda x: fn(x) + 1)
    with pytest.raises((RuntimeError, IndexError), match="reduction dim"):
        compiled(torch.empty(0, 3))


def test_max_of_bools_is_any_and_the_first_true():
    x = torch.tensor([[False, True, True], [False, False, False]])
    gm, eager = trace(lambda x: (*x.max(1), *x.min(1)), x)
    ours = expand(gm)
    assert not [n for n in ours.graph.nodes if "fallback" in n.meta]
    assert all(torch.equal(a, b) for a, b in zip(ours(x), eager, strict=True))
