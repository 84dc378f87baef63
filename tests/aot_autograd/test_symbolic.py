"""Graphs with symbolic sizes: traced at one size, right at others, with as few guards as they need."""
from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F

from minipt2.aot_autograd import aot_compile, aot_eager, make_plan
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.aot_autograd.sizes import Formula, evaluated
from minipt2.backends import lookup
from minipt2.prims import portable
from minipt2.shapes import LateGuard

from ..symbolic import Symbolic, fresh


def tensor(shape, grad=True):
    return torch.randn(shape, requires_grad=grad) if isinstance(shape, tuple) else shape


IMAGES = {0: (0, 2, 3)}
WEIGHT = (8, 3, 3, 3)
# name -> function, arguments (shapes and numbers) at several sizes, guards, symbolic dimensions
CASES = {
    "pointwise": (lambda x: F.gelu(x) * 2 + 1, [((4, 7),), ((5, 9),)], []),
    "linear": (lambda x, w, b: F.linear(x, w, b).relu(), [((4, 7, 6), (8, 6), (8,)), ((3, 5, 6), (8, 6), (8,))], [], {0: (0, 1)}),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [((2, 4, 8, 16),), ((3, 5, 12, 16),)], []),
    "view by the rest": (lambda x: x.view(x.shape[0], -1, 2).transpose(0, 1).contiguous().sum(0), [((4, 6),), ((3, 8),)], ["s1 % 2 == 0", "s1 >= 4"]),
    "layer norm": (lambda x, w: F.layer_norm(x, (6,), w, w), [((4, 7, 6), (6,)), ((3, 5, 6), (6,))], [], {0: (0, 1)}),
    "softmax and matmul": (lambda x: torch.softmax(x, -1) @ x, [((7, 7),), ((9, 9),)], []),
    "cat": (lambda x, y: torch.cat([x, y], 1), [((4, 3), (4, 5)), ((6, 7), (6, 2))], []),
    "convolution": (lambda x, w: F.relu(F.conv2d(x, w, stride=2, padding=1)), [((4, 3, 17, 19), WEIGHT), ((5, 3, 24, 16), WEIGHT)], [], IMAGES),
    "max pooling": (lambda x: F.max_pool2d(x, 3, 2, 1), [((4, 3, 9, 11),), ((5, 3, 8, 6),)], [], IMAGES),
    "average pooling": (lambda x: F.avg_pool2d(x, 3, 2, 1), [((4, 3, 9, 11),), ((5, 3, 8, 6),)], [], IMAGES),
    "global pooling": (lambda x: F.adaptive_avg_pool2d(x, 1), [((4, 3, 9, 11),), ((5, 3, 8, 6),)], [], IMAGES),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2.0), [((4, 3, 5, 6),), ((5, 3, 8, 7),)], [], IMAGES),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), [((4, 3, 5, 6),), ((5, 3, 8, 7),)], [], IMAGES),
    "batch norm": (lambda x, w: F.batch_norm(x, None, None, w, w, training=True), [((4, 3, 5, 6), (3,)), ((6, 3, 7, 4), (3,))], [], IMAGES),
    "padding": (lambda x: F.pad(x, (1, 2)), [((4, 3),), ((5, 6),)], []),
    "broadcasting": (lambda x, y, z: x + y * z, [((4, 6), (6,), (4, 1)), ((3, 7), (7,), (3, 1))], []),
    "expand as": (lambda x, y: x.expand(y.shape[0], -1) + y, [((6,), (4, 6)), ((7,), (3, 7))], []),
    "positions": (lambda x: x + torch.arange(x.shape[1]), [((4, 3),), ((5, 6),)], []),
    "causal mask": (lambda x: x.masked_fill(x.new_ones(x.shape).tril() == 0, -9.0), [((4, 4),), ((6, 6),)], []),
    "rotated halves": (lambda x: torch.cat([-x[..., x.shape[-1] // 2:], x[..., :x.shape[-1] // 2]], -1), [((4, 6),), ((5, 8),)], []),
    "last and first": (lambda x: x[:, -1] + x[:, 0], [((4, 3),), ((5, 6),)], []),
    "a window": (lambda x: x[:, 2:], [((4, 7),), ((5, 9),)], ["s1 >= 3"]),
    "mean and variance": (lambda x: x.mean() + x.var(1) + x.std(), [((4, 4),), ((6, 6),)], []),
    "parts": (lambda x: x.split(2, 1), [((4, 6),), ((3, 5),)], ["5 <= s1 <= 6"]),
    "repeat and flip": (lambda x: x.repeat(2, x.shape[1]).flip(1), [((4, 3),), ((5, 6),)], []),
    "einsum": (lambda x, y: torch.einsum("bsd,btd->bst", x, y), [((2, 3, 4), (2, 5, 4)), ((3, 4, 6), (3, 2, 6))], []),
    "loss": (lambda x, y: F.mse_loss(x, y) + x.logsumexp(1).sum(), [((4, 3), (4, 3)), ((5, 6), (5, 6))], []),
    "views and numbers returned": (lambda x: (x[1:], x.t(), x * 2, x.shape[0] * x.shape[1]), [((4, 3),), ((5, 6),)], []),
    "aliases returned": (lambda x: (y := x.exp(), y.view(-1), y[1:])[1:], [((4, 3),), ((5, 6),)], []),
    "numbers": (lambda x, n, f: (x * n + f).clamp(max=f) / n, [((4, 3), 5, 0.5), ((5, 6), 9, -2.25)], []),
    "number as a size": (lambda x, n: torch.full((n, 2), 3.0) + x.sum() * n, [((4, 3), 5), ((5, 6), 9)], ["n0 >= 0"]),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("backend", ["aot_eager", "numpy"])
def test_right_at_every_size(name, backend):
    fn, sizes, facts, dims = (*CASES[name], None)[:4]
    torch.manual_seed(0)
    captured = Symbolic(fn, list(map(tensor, sizes[0])), dims)
    run = lookup(backend)(captured.graph, captured.inputs)
    assert [f for f in captured.facts() if f not in facts] == []
    for at in sizes:
        args = list(map(tensor, at))
        assert captured.holds(*args)
        compare(run, captured, args, "returned" in name)


def compare(run, captured, args, views):
    mine, eagers = list(map(fresh, args)), list(map(fresh, args))
    results, wanted = run(*captured.arguments(*mine)), captured._flat(*eagers)
    for a, b in zip(results, wanted, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b and type(a) is type(b)
            continue
        assert a.stride() == b.stride() and a.requires_grad == b.requires_grad and (not views or a._is_view() == b._is_view())
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    pairs = [(a, b) for a, b in zip(results, wanted) if isinstance(b, torch.Tensor) and b.requires_grad]
    if not pairs:
        return
    sum((a * a).sum() for a, _ in pairs).backward()
    sum((b * b).sum() for _, b in pairs).backward()
    for a, b in zip(mine, eagers):
        if isinstance(b, torch.Tensor) and b.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("fn", [lambda x: (x.mul_(2), x[0] * 3)[1], lambda x: (x[1:].mul_(2), x.t() * 3)[1], lambda x: (x[:, :2].zero_(), x + 1)[1]])
def test_inputs_written_in_place(fn):
    captured = Symbolic(fn, [torch.randn(4, 3)])
    run = aot_eager(captured.graph, captured.inputs)
    for shape in ((4, 3), (6, 5), (3, 8)):
        mine, eager = (t := torch.randn(shape)), t.clone()
        torch.testing.assert_close(run(*captured.arguments(mine))[0], fn(eager))
        torch.testing.assert_close(mine, eager)


def test_tangents_in_other_strides_are_laid_out_for_the_size_of_the_call():
    captured = Symbolic(lambda x: x * 2, [torch.randn(4, 3, requires_grad=True)])
    run = aot_eager(captured.graph, captured.inputs)
    x = torch.randn(6, 5, requires_grad=True)
    out, = run(*captured.arguments(x))
    grad = torch.randn(5, 6).t()
    out.backward(grad)
    torch.testing.assert_close(x.grad, grad * 2)


def test_numbers_pass_to_the_backward_beside_saved_tensors():
    seen = {}

    def compiler(gm, fakes):
        seen.setdefault("graphs", []).append([n.meta["val"] for n in gm.graph.nodes if n.op == "placeholder"])
        return run_eagerly(gm)
    captured = Symbolic(lambda x, n: x.exp().sum(1) * n, [torch.randn(4, 3, requires_grad=True), 5])
    run = aot_compile(captured.graph, captured.inputs, fw_compiler=compiler)
    x = torch.randn(5, 6, requires_grad=True)
    run(*captured.arguments(x, 7))[0].sum().backward()
    torch.testing.assert_close(x.grad, x.exp().detach() * 7)
    forward, backward = seen["graphs"]
    assert [isinstance(v, torch.SymInt) for v in forward] == [True, True, False, True]
    assert [isinstance(v, torch.SymInt) for v in backward] == [True, True, True, False, False]


def test_a_backward_compiled_later_decides_nothing():
    def undecided(gm, fakes):
        if any(n.meta.get("tangent") for n in gm.graph.nodes):
            assert fakes[0] % 7 == 4
        return run_eagerly(gm)
    captured = Symbolic(lambda x: x.exp(), [torch.randn(4, 3, requires_grad=True)])
    run = aot_compile(captured.graph, captured.inputs, fw_compiler=undecided)
    out, = run(*captured.arguments(torch.randn(4, 3, requires_grad=True)))
    with pytest.raises(LateGuard):
        out.sum().backward()


def test_operators_that_refuse_symbols_get_the_sizes_at_hand():
    captured = Symbolic(lambda x: torch.fft.rfft(x).abs(), [torch.randn(4, 6)])
    run = aot_eager(captured.graph, captured.inputs)
    x = torch.randn(4, 6)
    torch.testing.assert_close(run(*captured.arguments(x))[0], torch.fft.rfft(x).abs())
    assert not captured.holds(torch.randn(4, 7))


def test_what_an_attempt_read_first_can_be_read_after_it_is_taken_back():
    """Elements of a result become nodes when they are first read: here by an attempt that C++ refuses."""
    attempts = []

    def refused_at_first(x, y):
        attempts.append(x * y)
        if len(attempts) == 1:
            raise RuntimeError("Cannot call sizes() on tensor with symbolic sizes/strides")
        return x + y
    captured = Symbolic(lambda x: x, [torch.randn(4, 6)])
    graph = captured.graph.graph
    value, = (n for n in graph.nodes if n.target == captured._flat)
    with graph.inserting_before(value):
        halves = graph.call_function(torch.chunk, (value.args[0], 2, 1))
        first, second = (graph.call_function(operator.getitem, (halves, k)) for k in range(2))
        value.args = (graph.call_function(refused_at_first, (first, second)),)
    value.target = lambda result: (result,)
    captured.graph.recompile()
    run = aot_eager(captured.graph, captured.inputs)
    x = torch.randn(5, 6)
    torch.testing.assert_close(run(*captured.arguments(x))[0], x[:, :3] + x[:, 3:])
    assert len(attempts) == 2


def test_a_weight_that_autocast_cast_for_an_attempt_is_cast_again():
    attempts = []

    def refused_at_first(x, w):
        attempts.append(F.linear(x, w))
        if len(attempts) == 1:
            raise RuntimeError("Cannot call sizes() on tensor with symbolic sizes/strides")
        return attempts[-1]
    captured = Symbolic(lambda x, w: x, [torch.randn(4, 6), torch.randn(5, 6, requires_grad=True)], {0: (0,)})
    value, = (n for n in captured.graph.graph.nodes if n.target == captured._flat)
    value.target = lambda *args: (refused_at_first(*args),)
    with torch.autocast("cpu", torch.bfloat16):
        run = aot_eager(captured.graph, captured.inputs)
        x, w = torch.randn(5, 6), torch.randn(5, 6, requires_grad=True)
        torch.testing.assert_close(run(*captured.arguments(x, w))[0], F.linear(x, w))


def test_the_choice_of_attention_is_that_of_the_sizes_at_hand():
    captured = Symbolic(lambda x: x, [torch.randn(2, 4, 8, 16)])
    q = captured.inputs[-1]
    with captured.mode:
        assert torch.ops.aten._fused_sdp_choice(q, q, q) == torch._fused_sdp_choice(*[torch.randn(2, 4, 8, 16)] * 3)
    assert captured.facts() == []


def test_plans_with_formulas_are_data():
    captured = Symbolic(lambda x: (x[1:], x * x.shape[0]), [torch.randn(4, 3, requires_grad=True)])
    plan = make_plan(captured.graph, captured.inputs, fw_compiler=run_eagerly)
    again = portable.loads(portable.dumps((plan.outputs, plan.numbers)))
    assert again == (plan.outputs, plan.numbers) and plan.numbers == [0, 1]
    assert evaluated([Formula("n[0] * n[1] + 1"), 3], [4, 5]) == [21, 3]
