"""Written inputs, outputs that alias, histories: whatever eager makes visible, the compiled function does too."""
import pytest
import torch

from minipt2 import trace
from minipt2.aot_autograd import aot_eager
from minipt2.config import config

from .lifting import copies, graph_of
from .observing import storages


@pytest.fixture(autouse=True)
def raise_faults():
    with config.patch(raise_internal_errors=True):
        yield


def check(fn, *inputs, leaf=True):
    """``fn`` eager and compiled on copies of ``inputs``: outputs, aliases, versions, histories and gradients agree."""
    results = []
    for compiled in (False, True):
        leaves = copies(inputs)
        args = [x if leaf or not x.requires_grad else x.clone() for x in leaves]
        run = fn
        if compiled:
            examples = [x if leaf or not x.requires_grad else x.clone() for x in copies(inputs)]
            run = aot_eager(graph_of(fn, len(inputs)), examples)
        before, wanted = [a._version for a in args], [t for t in leaves if t.requires_grad]
        outs = run(*args)
        every = [*args, *outs]
        identities = [next(i for i, t in enumerate(every) if t is o) for o in every]
        total = sum((o.sum() * (i + 2) + o.square().sum() for i, o in enumerate(every) if o.requires_grad and o.is_floating_point()), torch.zeros(()))
        grads = torch.autograd.grad(total, wanted, allow_unused=True) if total.requires_grad else []
        results.append(dict(
            values=[e.detach().clone() for e in every], strides=[e.stride() for e in every], tracked=[e.requires_grad for e in every],
            storages=storages(every), identities=identities, written=[a._version != b for a, b in zip(args, before)],
            views=[o._is_view() for o in outs if any(o.untyped_storage().data_ptr() == a.untyped_storage().data_ptr() for a in args)],
            grads=[torch.zeros(()) if g is None else g for g in grads]))
    for key in results[0]:
        torch.testing.assert_close(results[1][key], results[0][key], msg=lambda m: f"{key}: {m}")


def x(*shape, grad=True):
    torch.manual_seed(len(shape))
    return torch.randn(shape).requires_grad_(grad)


def test_outputs_that_are_inputs():
    check(lambda a, b: (a, a * b, b), x(3), x(3))


def test_outputs_that_are_views_of_inputs():
    check(lambda a, b: (a.view(-1), a[0], a.t()[1:], (a * b).sum(), b.detach(), a.detach()), x(2, 3), x(2, 3, grad=False))


def test_views_of_inputs_by_split():
    check(lambda a: (*a.split(2), *a.unbind(1), a.chunk(2, 1)[1] * 2), x(4, 3))


def test_outputs_that_share_a_base():
    def fn(a):
        y = a * 2
        return y[0], y[1], y.detach()
    check(fn, x(2, 3))


def test_output_and_view_of_it():
    def fn(a):
        y = a.exp()
        return y, y.view(-1), y.t(), y
    check(fn, x(2, 3))


def test_equal_outputs_stay_apart():
    check(lambda a: (a + 1, a + 1, a.clone()), x(3))


def test_integer_and_untracked_outputs():
    check(lambda a: (a.argmax(), a > 0, a.detach() * 2, a * 3), x(5))


def test_no_grad_region():
    def fn(a):
        with torch.no_grad():
            scale = a.abs().mean()
        return a * scale, scale, a
    check(fn, x(4))


def test_mutated_input_without_grad():
    def fn(a, b):
        b.add_(a.detach().sum())
        b[0].mul_(2)
        return (a * b,)
    check(fn, x(3), x(3, grad=False))


def test_mutated_non_leaf():
    def fn(a, b):
        a.mul_(b)
        return a.sin(), a.view(-1), b * 2
    check(fn, x(2, 3), x(2, 3), leaf=False)


def test_input_that_gets_a_history():
    def fn(a, b):
        b.add_(a)
        return (b * 2,)
    check(fn, x(3), x(3, grad=False))


def test_leaf_under_no_grad():
    def fn(w, g):
        with torch.no_grad():
            w.sub_(g, alpha=0.1)
        return (w * 2,)
    check(fn, x(3), x(3, grad=False))


def test_foreach_and_out():
    def fn(a, b, c):
        torch._foreach_add_([a, b], [b.clone(), a.clone()], alpha=2)
        torch.mul(a, b, out=c)
        return (a + c,)
    check(fn, x(3, grad=False), x(3, grad=False), x(3, grad=False))


def test_swap():
    def fn(a, b):
        t = a.clone()
        a.copy_(b)
        b.copy_(t)
        return (a - b,)
    check(fn, x(3, grad=False), x(3, grad=False))
    check(lambda a: (a.copy_(a.t().clone()),), x(3, 3, grad=False))


def test_views_written_through():
    def fn(a):
        y = a * 1
        v = y.view(2, 6)[:, 1:4]
        v.t().add_(1)
        y.diagonal().zero_()
        y.unsqueeze(0).transpose(1, 2)[0, 1].mul_(v.sum())
        if not y.requires_grad:  # eager forbids these under autograd
            y.split(2)[1].fill_(3)
            y.unbind(1)[0].copy_(a[:, 1])
        y.narrow(0, 1, 2).masked_fill_(a[1:3] > 0, -1)
        y.permute(1, 0)[y.permute(1, 0) > 2] = 0.5
        y.select(1, 2).clamp_(min=0)
        torch.as_strided(y, (2, 2), (3, 1), 1).add_(a[:2, :2])
        return y, v
    check(fn, x(4, 3))
    check(fn, x(4, 3, grad=False))


def test_writes_through_overlapping_views():
    def fn(a):
        y = a * 1
        y.expand(2, 4, 3)[1].add_(1)
        y.view(-1).unfold(0, 4, 2)[1].mul_(2)
        y.view(-1).as_strided((3, 2), (1, 1))[:, 1].zero_()
        return y, y.view(-1)
    check(fn, x(4, 3))


def test_written_input_views():
    def fn(a):
        a[1:].mul_(3)
        return a[0], a.view(-1), a.sum()
    check(fn, x(3, 2, grad=False))
    check(fn, x(3, 2), leaf=False)


def test_metadata_in_place():
    def fn(a):
        y = a + 1
        y.unsqueeze_(0).transpose_(0, 2)
        z = y.squeeze(1) * 2
        y.squeeze_()
        return y, z
    check(fn, x(2, 3))


def test_strides_kept_through_copy():
    def fn(a):
        y = torch.empty(3, 2).t()
        y.copy_(a)
        z = torch.zeros(2, 3).t().contiguous().t()
        z.add_(a)
        return y, z, y.t().view(-1)
    check(fn, x(2, 3))


def test_dtype_of_in_place():
    def fn(a, b):
        a.add_(b)
        return a, a.to(torch.float64).mul_(2)
    check(fn, x(3, grad=False), x(3, grad=False).double())


def test_constants():
    def fn(a):
        c = torch.tensor([1.0, 2.0, 3.0])
        c.add_(a.detach())
        return a * c, torch.tensor(4.0), c
    check(fn, x(3))


def test_no_tensor_outputs():
    run = aot_eager(graph_of(lambda a: (None, 3, a * 2), 1), [x(2)])
    nothing, three, _ = run(x(2))
    assert nothing is None and three == 3


def test_custom_function():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, t):
            ctx.save_for_backward(t)
            return t * 2

        @staticmethod
        def backward(ctx, g):
            (t,) = ctx.saved_tensors
            return g * 2 + t * 0

    check(lambda a: (Double.apply(a).sin(), a), x(3))


def test_gradient_inside():
    def fn(a):
        with torch.enable_grad():
            y = (a ** 3).sum()
            (g,) = torch.autograd.grad(y, a, create_graph=True)
        return g, y
    check(fn, x(3))


def test_complex():
    def fn(a):
        z = torch.view_as_complex(a)
        return z.abs(), torch.view_as_real(z * z)
    check(fn, x(3, 2))


def test_shared_storage_of_written_inputs_runs_eagerly():
    def fn(a, b):
        a.add_(1)
        return (a + b,)
    run = aot_eager(graph_of(fn, 2), [x(3, grad=False), x(3, grad=False)])
    base = torch.arange(4.0)
    (out,) = run(base[:3], base[1:])
    twin = torch.arange(4.0)
    torch.testing.assert_close(out, fn(twin[:3], twin[1:])[0])
    with config.patch(raise_internal_errors=False):
        before = trace.counters().get("aot_fallbacks", 0)
        run = aot_eager(graph_of(fn, 2), [base[:3], base[1:]])
        assert trace.counters()["aot_fallbacks"] == before + 1
    run(base[:3], base[1:])


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint
    check(lambda a, b: (checkpoint(lambda u, v: (u @ v).exp().sin(), a, b, use_reentrant=False), a * b), x(3, 3), x(3, 3))


def test_tensor_hooks_and_retain_grad():
    def fn(a):
        y = a * 2
        y.register_hook(lambda g: g * 3)
        y.retain_grad()
        return y.sin(), a.cos()
    check(fn, x(3))


def test_same_tensor_twice():
    a = x(3)
    run = aot_eager(graph_of(lambda u, v: (u * v.sin(),), 2), [a, a])
    (grad,) = torch.autograd.grad(run(a, a)[0].sum(), a)
    (expected,) = torch.autograd.grad((a * a.sin()).sum(), a)
    torch.testing.assert_close(grad, expected)


def test_new_parameter_inside():
    def fn(a):
        w = torch.ones(3, requires_grad=True)
        return a * w, w.detach() + 1
    check(fn, x(3))


def test_gapped_inputs():
    base = torch.arange(24.0).view(4, 6)
    def fn(a, b):
        a.mul_(2)
        a[0].add_(b[1])
        return a.t(), a + b, b.contiguous()
    run = aot_eager(graph_of(fn, 2), [base.clone()[:, ::2], torch.zeros(6, 4).t()[:, ::2]])
    one, two = base.clone(), base.clone()
    other = torch.randn(6, 4).t()
    expected, found = fn(one[:, ::2], other[:, ::2]), run(two[:, ::2], other[:, ::2])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(two, one)
    assert [t.stride() for t in found] == [t.stride() for t in expected]


def test_data_dependent_code_runs_eagerly():
    fn = lambda a: (a * a.sum().item(), )  # noqa: E731
    with config.patch(raise_internal_errors=False):
        run = aot_eager(graph_of(fn, 1), [x(3)])
    torch.testing.assert_close(run(x(3)), fn(x(3)))


def test_grad_mode_is_restored():
    def fn(a):
        torch.set_grad_enabled(False)
        return (a * 2,)
    aot_eager(graph_of(fn, 1), [x(3)])
    assert torch.is_grad_enabled()


def test_enable_grad_inside_no_grad():
    def fn(a):
        with torch.enable_grad():
            y = a * 2
        return y, a * 3
    with torch.no_grad():
        run = aot_eager(graph_of(fn, 1), [x(3)])
        a = x(3)
        y, z = run(a)
    assert y.requires_grad and not z.requires_grad
    y.sum().backward()
    assert a.grad.tolist() == [2, 2, 2]


def test_equal_copies_of_which_views_are_returned_stay_apart():
    check(lambda a: (a.t().reshape(6).view(2, 3).t(), a.t().reshape(6), a.clone()[0], a.clone().t()), x(2, 3))
