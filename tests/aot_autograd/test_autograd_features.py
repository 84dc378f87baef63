"""Everything autograd can express, captured and compared with eager: values, aliases, histories, versions, gradients, errors."""
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import minipt2
from minipt2.config import config

from .observing import differences, observe

PROGRAMS = {}


def x(*shape, grad=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_(grad)


def program(*inputs, leaf=True, breaks=0):
    def register(fn):
        PROGRAMS[fn.__name__] = fn, inputs, leaf, breaks
        return fn
    return register


# ---------------------------------------------------------------- outputs
@program(x(3), x(3, grad=False))
def several_outputs(a, b):
    return a * b, a.sum(), b + 1, (a > 0), a.argmax(), a.long(), b.long()


@program(x(3, 4))
def outputs_not_differentiable(a):
    values, indices = a.sort(1)
    top, where = a.topk(2)
    return values, indices, top, where, a.max(0), a.round(), a.sign(), a.floor()


@program(x(3, 4), x(4))
def outputs_are_inputs_and_views(a, b):
    y = a * b
    return a, b, a.t(), a[1], y, y.t(), y[0], y.view(-1)[2:5], b.expand(3, 4), y.unbind(0)[1]


@program(x(3, 4), x(4), leaf=False)
def outputs_are_views_of_non_leaves(a, b):
    return a, a.view(-1), b[1:], a.detach(), b.unsqueeze(0)


@program(x(2, 6))
def outputs_of_multi_views(a):
    p, q = (a * 2).chunk(2, 1)
    r, s, t = a.split([1, 2, 3], 1)
    return p, q, r, s, t, a.unbind(0)


@program(x(3))
def same_output_twice(a):
    y = a.sin()
    return y, y, a, y.detach(), y.detach()


@program(x(3), x(3, grad=False))
def detached(a, b):
    y = a.sin()
    return y.detach() * a, y.detach(), b.detach(), a.detach().exp()


@program(x(3))
def detached_view_of_output(a):
    y = a.sin()
    return y, y.detach().view(-1), y.data


@program(x(4), x(4))
def no_grad_region(a, b):
    with torch.no_grad():
        s = (a * b).mean()
        v = a[:2]
    return a * s, s, v


@program(x(4))
def enable_grad_inside_no_grad(a):
    with torch.no_grad():
        y = a * 2
        with torch.enable_grad():
            z = a.sin()
        w = z * 2
    return y, z, w


@program(x(4))
def inference_region(a):
    with torch.set_grad_enabled(False):
        m = a.mean()
    return a - m


@program(x(3), x(3))
def one_output_unused_by_one_input(a, b):
    return a.sin(), b.cos(), a.new_zeros(2)


@program(x(3))
def fresh_leaf(a):
    w = torch.ones(3, requires_grad=True)
    return a * w, w.detach() + 1


@program(x(3), x(3, grad=False), breaks=1)
def requires_grad_changed(a, b):
    c = (b * 2).requires_grad_()
    return a * c, c


@program(x(0, 3))
def empty(a):
    return a.sum(), a * 2, a.t()


@program(x())
def scalar(a):
    return a * a, a.sin()


# ---------------------------------------------------------------- writes
@program(x(3))
def leaf_written_under_no_grad(a):
    y = a.exp()
    with torch.no_grad():
        a.mul_(2)
    return y, a


@program(x(3), leaf=False)
def non_leaf_written(a):
    y = a * 2
    a.add_(1)
    return y * a


@program(x(3, 4), leaf=False)
def view_of_non_leaf_written(a):
    a[1].mul_(3)
    a.t()[0].add_(1)
    return a.sum(), a[0]


@program(x(3, 4, grad=False), x(4))
def untracked_input_gets_history(a, b):
    a[1] = b
    return a * 2


@program(x(3, 4), x(3))
def intermediate_views_written(a, b):
    y = a * 2
    y[:, 1].mul_(b)
    y[0].copy_(y[2])
    y.diagonal().zero_()
    y.view(-1)[::5] = 1
    return y, y.sin()


@program(x(4, 4), x(4))
def views_written_after_being_taken(a, b):
    y = a.clone()
    v, w = y[1], y.t()[1]
    y.mul_(2)
    v.add_(b)
    return v, w, y


@program(x(6))
def overlapping_views_written(a):
    y = a.clone()
    u = y.unfold(0, 3, 1)
    y[2:4].mul_(5)
    return u * 1, y


@program(x(3), leaf=False)
def written_then_returned(a):
    a.mul_(2)
    return a, a.view(-1), a * 1


@program(x(3, grad=False), x(3, grad=False))
def swapped(a, b):
    t = a.clone()
    a.copy_(b)
    b.copy_(t)


@program(x(3), x(3))
def relu_in_place(a, b):
    return F.relu(a * b, inplace=True), F.relu_(b + 1)


@program(x(3))
def written_in_place_after_saved(a):
    y = a.exp()
    y.add_(1)
    return y


@program(x(3))
def leaf_written_in_place(a):
    a.add_(1)
    return a


@program(x(2, 3))
def view_of_leaf_written(a):
    a[0].add_(1)
    return a


@program(x(3))
def view_written_under_no_grad(a):
    y = a * 1
    with torch.no_grad():
        y[0].mul_(10)
    return y * a


@program(x(3, 3), x(3, 3))
def index_put_and_setitem(a, b):
    y = a.clone()
    y[torch.tensor([0, 2])] = b[:2]
    y.index_put_((torch.tensor([1]), torch.tensor([1])), b.sum(), accumulate=True)
    y[y > 1] = 0
    y[..., 0] = b[0]
    return y


@program(x(3, grad=False), x(3))
def out_argument(a, b):
    with torch.no_grad():
        torch.mul(b, 2, out=a)
    return a * b


@program(x(3), x(3), x(3))
def foreach(a, b, c):
    return torch._foreach_mul([a, b], [b, c]), torch._foreach_norm([a, c])


@program(x(3), leaf=False)
def detached_and_written(a):
    d = a.detach()
    d.add_(1)
    return a * 2, d


@program(x(3, 4), leaf=False)
def resized_strides_in_place(a):
    y = a * 2
    y.t_()
    y.unsqueeze_(0).squeeze_()
    return y, y.sin()


@program(x(4, dtype=torch.complex64))
def complex_numbers(a):
    return a * a.conj(), a.abs(), torch.view_as_real(a * 2), a.real, a.imag * 2, a.angle()


@program(x(4, 2))
def complex_views(a):
    z = torch.view_as_complex(a * 2)
    z.real.mul_(3)
    return z, z.conj(), z.conj().imag


# ---------------------------------------------------------------- hooks, custom functions, checkpoints
@program(x(3))
def hook_on_intermediate(a):
    y = a * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


@program(x(3), breaks=1)
def hook_on_input(a):
    a.register_hook(lambda g: g * 3)
    return a.sin()


@program(x(3), breaks=1)
def retained_gradient(a):
    y = a * 2
    y.retain_grad()
    return y.sin() * a


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, k):
        ctx.save_for_backward(t)
        ctx.k = k
        return t ** 3 * k

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        return 3 * t ** 2 * g * ctx.k, None


class Setup(torch.autograd.Function):
    @staticmethod
    def forward(t, u):
        return t * u, t.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output[1])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, h):
        t, u, e = ctx.saved_tensors
        left = None if g is None else g * u
        if h is not None:
            left = h * e * 2 if left is None else left + h * e * 2
        return left, None if g is None or not ctx.needs_input_grad[1] else g * t * 5


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        y = t.sin()
        ctx.save_for_backward(t, y)
        ctx.save_for_backward(y, t)
        ctx.mark_non_differentiable(i := t.argmax())
        return y, i

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g, _):
        y, t = ctx.saved_tensors
        return g * t.cos() * 2 + y * 0


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        t.mul_(2)
        ctx.mark_dirty(t)
        return t

    @staticmethod
    def backward(ctx, g):
        return g * 7


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, u):
        return t + u

    @staticmethod
    def backward(ctx, g):
        return None, g


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t

    @staticmethod
    def backward(ctx, g):
        return g * 2


class Viewed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t.view(-1)

    @staticmethod
    def backward(ctx, g):
        return (g * 2).view(2, -1)


class Tupled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t, sizes, flag=True):
        ctx.sizes, ctx.flag = sizes, flag
        return t.new_full(sizes, 1.0) * t.sum()

    @staticmethod
    def backward(ctx, g):
        return g.sum().expand(3) * (2 if ctx.flag else 1), None, None


@program(x(3))
def custom_function(a):
    return Cube.apply(a, 2.0).sin(), a


@program(x(3), x(3), x(3, grad=False))
def custom_function_with_setup_context(a, b, c):
    y, z = Setup.apply(a, b)
    w, _ = Setup.apply(a, c)
    return y, z * 2, w


@program(x(3))
def custom_function_once_differentiable(a):
    return Once.apply(a * 2)


@program(x(3))
def custom_function_mark_dirty(a):
    y = a * 1
    return Dirty.apply(y), y


@program(x(3), leaf=False)
def custom_function_mark_dirty_of_an_input(a):
    return Dirty.apply(a).sin(), a


@program(x(3), x(3))
def custom_function_without_gradient(a, b):
    return Nothing.apply(a, b)


@program(x(3))
def custom_function_returning_its_input(a):
    return Identity.apply(a) * 2, Identity.apply(a.sin())


@program(x(2, 3))
def custom_function_returning_a_view(a):
    return Viewed.apply(a) * 2, Viewed.apply(a.sin())


@program(x(3))
def custom_function_with_other_arguments(a):
    return Tupled.apply(a, (2, 3)), Tupled.apply(a, [1], False)


@program(x(4, 4), x(4, 4))
def checkpointed(a, b):
    def block(u, v):
        return (u @ v).exp().sin()
    return checkpoint(block, a, b, use_reentrant=False), checkpoint(block, b, a, use_reentrant=True)


@program(x(4, 4), x(4, 4))
def checkpointed_with_dropout(a, b):
    return checkpoint(lambda u, v: F.dropout(u @ v, 0.5).sin() @ v, a, b, use_reentrant=False)


@program(x(3), breaks=1)
def gradient_inside(a):
    y = (a ** 3).sum()
    (g,) = torch.autograd.grad(y, a, create_graph=True)
    return g * a, y


@program(x(3), breaks=1)
def backward_inside(a):
    y = a * 2
    y.square().sum().backward()
    return a.grad * 1, y


@program(x(5, 3), x(2, grad=False).long().abs())
def dense_embedding(weight, index):
    return F.embedding(index, weight, padding_idx=0)


@program(x(3), x(3))
def undefined_gradients(a, b):
    return torch.stack([a, b])[0], a.masked_fill(a > 0, 0.0), (a * 0).detach() + b


@program(x(4))
def gradient_at_edges(a):
    z = a - a
    return z.abs(), z.relu(), z.sqrt(), z.clamp(0, 1), torch.maximum(z, a * 0), torch.where(z > 0, z.log(), z), z.norm()


@program(x(3, 3))
def autocast_regions(a):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = a @ a
        z = y.float() @ a
        with torch.autocast("cpu", enabled=False):
            w = z.float() @ a
    return y, z, w, a @ a


@program(x(8, 8))
def random_numbers(a):
    y = F.dropout(a, 0.3)
    noise = torch.rand_like(a) + torch.randn(8)
    return y * noise, torch.bernoulli(a.sigmoid()), torch.multinomial(a.softmax(-1), 2), F.rrelu(a, training=True), torch.randperm(5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name):
    fn, inputs, leaf, breaks = PROGRAMS[name]
    minipt2.reset()
    run = minipt2.compile(fn, backend="aot_eager")
    expected = observe(fn, inputs, leaf)
    with config.patch(raise_internal_errors="error" not in expected):
        for _ in range(2):
            assert not differences(expected, observe(run, inputs, leaf))
    counted = minipt2.counters()
    assert (counted["breaks"], counted.get("aot_fallbacks", 0)) == (breaks, 0) or "error" in expected


@pytest.mark.parametrize("name", ["several_outputs", "intermediate_views_written", "checkpointed", "random_numbers", "custom_function_mark_dirty"])
def test_as_in_eager_in_kernels(name):
    fn, inputs, leaf, _ = PROGRAMS[name]
    assert not differences(observe(fn, inputs, leaf), observe(minipt2.compile(fn), inputs, leaf))
