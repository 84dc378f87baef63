"""The autograd.Function at run time: versions, retained graphs, missing tangents, memory, errors."""
import gc
import warnings
import weakref

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import minipt2
from minipt2.aot_autograd import aot_compile, aot_eager
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.config import config
from minipt2.dynamo import eval_frame
from minipt2.errors import PartlyWritten

from .lifting import graph_of, lift


@pytest.fixture(autouse=True)
def raise_faults():
    with config.patch(raise_internal_errors=True):
        yield


def test_gradcheck():
    def fn(a, b):
        return (a @ b).tanh(), a.sum(1, keepdim=True) * 2
    inputs = [torch.randn(3, 4, dtype=torch.double, requires_grad=True), torch.randn(4, 2, dtype=torch.double, requires_grad=True)]
    assert torch.autograd.gradcheck(aot_eager(graph_of(fn, 2), inputs), inputs)


def test_missing_and_odd_tangents():
    a = torch.randn(3, 4, requires_grad=True)
    run = aot_eager(graph_of(lambda t: (t.sin(), t.cos(), t.exp()), 1), [a])
    one, _, three = run(a)
    (one.sum() + three.t()[1:].sum()).backward()
    expected = a.detach().cos()
    expected[:, 1:] += a.detach()[:, 1:].exp()
    torch.testing.assert_close(a.grad, expected)


def test_retain_graph_and_once():
    a = torch.randn(3, requires_grad=True)
    (out,) = aot_eager(graph_of(lambda t: (t.exp() * t,), 1), [a])(a)
    out.sum().backward(retain_graph=True)
    first = a.grad.clone()
    out.sum().backward()
    torch.testing.assert_close(a.grad, first * 2)
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_gradients_of_gradients():
    def fn(x, w):
        return ((x * w).exp() * x).tanh(), x @ w

    x, w = torch.randn(3, dtype=torch.double, requires_grad=True), torch.randn(3, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(aot_eager(graph_of(fn, 2), [x, w]), [x, w])


def test_gradient_penalty_through_two_graphs():
    x, w = torch.randn(4, 3), torch.randn(3, 3, requires_grad=True)
    results = []
    for compiled in (False, True):
        point, w.grad = x.clone().requires_grad_(), None
        layer = lambda t, u: ((t @ u).sin(),)  # noqa: E731
        run = aot_eager(graph_of(layer, 2), [point, w]) if compiled else layer
        out = run(run(point, w)[0], w)[0]
        (slope,) = torch.autograd.grad(out.sum(), point, create_graph=True)
        (slope.norm(2) - 1).square().backward()
        results.append((slope.detach(), w.grad))
    torch.testing.assert_close(*results)


def test_gradients_of_gradients_refused():
    a = torch.randn(3, requires_grad=True)
    (out,) = aot_eager(graph_of(lambda t: (torch.dropout(t, 0.5, True) * t,), 1), [a])(a)
    (grad,) = torch.autograd.grad(out.sum(), a, create_graph=True)
    with pytest.raises(RuntimeError, match="MP503.*random numbers"):
        grad.sum().backward()
    (out,) = aot_eager(graph_of(lambda t: (t.exp() * t,), 1), [a])(a)
    with torch.no_grad():
        a.add_(1)
    with pytest.raises(RuntimeError, match="MP503.*written in place"):
        torch.autograd.grad(out.sum(), a, create_graph=True)


@pytest.mark.parametrize("victim", ["input", "output", "view of output"])
def test_written_saved_tensors_are_noticed(victim):
    a, b = torch.randn(2, 3, requires_grad=True).clone(), torch.randn(2, 3, requires_grad=True)
    fn = (lambda t, u: (t.softmax(0).t() if victim == "view of output" else t.softmax(0), t * u))
    out, product = aot_eager(graph_of(fn, 2), [a, b])(a, b)
    with torch.no_grad():
        (a if victim == "input" else out).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (out.sum() + product.sum()).backward()


def test_value_read_before_the_input_was_written():
    def fn(t):
        y = t.sigmoid()
        with torch.no_grad():
            t.add_(1)
        return (y * y,)
    a = torch.randn(3, requires_grad=True)
    before = a.detach().clone().requires_grad_()
    (out,) = aot_eager(graph_of(fn, 1), [a])(a)
    out.sum().backward()
    torch.testing.assert_close(a.grad, torch.autograd.grad(before.sigmoid().square().sum(), before)[0])


def test_nothing_leaks():
    gm, state, _ = lift(nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 4)))
    a = torch.randn(2, 4)
    run = aot_eager(gm, [*state, a])
    gc.disable()
    try:
        (out,) = run(*state, a)
        (second,) = run(*state, a)
        second.sum().backward()
        refs = [weakref.ref(out), weakref.ref(second), weakref.ref(a)]
        del out, second, a
        assert [r() for r in refs] == [None] * 3
    finally:
        gc.enable()


def test_saved_buffers_die_early_in_backward():
    alive = []

    def compiler(gm, fakes):
        def backward(args):
            saved = weakref.ref(args[0])
            result = args[0] * args[1]
            args.clear()
            alive.append(saved() is not None)
            return [result]
        return backward

    a = torch.randn(3, requires_grad=True)
    run = aot_compile(graph_of(lambda t: (t.softmax(0).sin(),), 1), [a], fw_compiler=run_eagerly, bw_compiler=compiler)
    out, retained = run(a)[0], run(a)[0]
    out.sum().backward()
    retained.sum().backward(retain_graph=True)
    assert alive == [False, True]


def test_compiled_backward_is_lazy_and_no_grad_needs_no_function():
    calls = []

    def compiler(gm, fakes):
        calls.append(len(fakes))
        return run_eagerly(gm)

    a = torch.randn(3, requires_grad=True)
    run = aot_compile(graph_of(lambda t: (t.sin(),), 1), [a], fw_compiler=run_eagerly, bw_compiler=compiler)
    with torch.no_grad():
        assert run(a)[0].grad_fn is None
    out = run(a)[0]
    assert not calls
    out.sum().backward()
    run(a)[0].sum().backward()
    assert calls == [2]


def test_written_in_place_by_the_compiler():
    def compiler(gm, fakes):
        places = gm.meta["mutated_inputs"]
        run = run_eagerly(gm)

        def in_place(args):
            inputs = list(args)
            results = list(run(args))
            for out, i in places.items():
                inputs[i].copy_(results[out])
                results[out] = inputs[i]
            return results
        return in_place

    def fn(t):
        t.add_(1)
        return (t * 2,)
    a = torch.zeros(3)
    run = aot_compile(graph_of(fn, 1), [a], fw_compiler=compiler)
    version = a._version
    assert run(a)[0].tolist() == [2, 2, 2] and a.tolist() == [1, 1, 1] and a._version > version


def test_two_threads():
    from concurrent.futures import ThreadPoolExecutor
    a = torch.randn(4, 4, requires_grad=True)
    run = aot_eager(graph_of(lambda t: ((t @ t).softmax(0).sin(),), 1), [a])
    (expected,) = torch.autograd.grad((a @ a).softmax(0).sin().sum(), a)
    with ThreadPoolExecutor(2) as pool:
        for grad in pool.map(lambda _: torch.autograd.grad(run(a)[0].sum(), a)[0], range(20)):
            torch.testing.assert_close(grad, expected)


def test_unused_outputs_give_no_gradient():
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    run = aot_compile(graph_of(lambda x, y: (x.sin(), (x * y).cos(), y.exp()), 2), [a, b], fw_compiler=run_eagerly)
    assert torch.autograd.grad(run(a, b)[0].sum(), (a, b), allow_unused=True)[1] is None
    assert torch.autograd.grad(run(a, b)[2].sum(), (a, b), allow_unused=True)[0] is None
    found = torch.autograd.grad(run(a, b)[1].sum(), (a, b))
    expected = torch.autograd.grad((a * b).cos().sum(), (a, b))
    torch.testing.assert_close(found, expected)


def test_the_weight_cache_of_autocast():
    a, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    fn = lambda x, y: (x @ y + x @ y.t(),)  # noqa: E731
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = fn(a, w)[0]  # puts the cast of w into the cache
        run = aot_compile(graph_of(fn, 2), [a, w], fw_compiler=run_eagerly)
        torch.testing.assert_close(run(a, w)[0], expected)
        torch.testing.assert_close(fn(a, w)[0], expected)


@pytest.mark.parametrize("which", ["decompose", "fw_compiler", "bw_compiler"])
def test_a_failing_compiler_never_reaches_the_user(which):
    def fail(*args):
        raise ZeroDivisionError("ours")

    a = torch.randn(3, requires_grad=True)
    settings = {"fw_compiler": run_eagerly, which: fail}
    with config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="ZeroDivisionError: ours"):
        out = aot_compile(graph_of(lambda t: (t.sin(),), 1), [a], **settings)(a)[0]
        out.sum().backward()
    torch.testing.assert_close(out, a.sin())
    torch.testing.assert_close(a.grad, a.cos())


def test_a_compiled_graph_that_fails_is_run_eagerly():
    def broken(gm, fakes):
        def run(args):
            raise ZeroDivisionError("ours")
        return run

    a, i = torch.randn(3, requires_grad=True), torch.tensor([0, 2])
    run = aot_compile(graph_of(lambda t, k: (t[k].sin(),), 2), [a, i], fw_compiler=broken)
    with config.patch(raise_internal_errors=False):
        with pytest.warns(UserWarning, match="ZeroDivisionError: ours"):
            out = run(a, i)[0]
        with pytest.raises(IndexError):  # the user's own fault, as eager says it
            run(a, i + 1)
    torch.testing.assert_close(out, a[i].sin())
    out.sum().backward()
    torch.testing.assert_close(a.grad, torch.tensor([1.0, 0, 1]) * a.detach().cos())


def broken_backward(gm, fakes):
    def run(args):
        args.clear()
        raise ZeroDivisionError("ours")
    return run


def test_a_compiled_backward_that_fails_is_run_eagerly():
    a = torch.randn(3, requires_grad=True)
    run = aot_compile(graph_of(lambda t: (t.sin(),), 1), [a], fw_compiler=run_eagerly, bw_compiler=broken_backward)
    with config.patch(raise_internal_errors=False), pytest.warns(UserWarning, match="run a compiled backward.*ZeroDivisionError: ours"):
        run(a)[0].sum().backward()
    torch.testing.assert_close(a.grad, a.detach().cos())


def test_a_compiled_backward_that_fails_and_cannot_be_run_again_says_so():
    def fn(t, written):
        written.add_(1)
        return (t.sin(),)

    a = torch.randn(3, requires_grad=True)
    run = aot_compile(graph_of(fn, 2), [a, torch.zeros(3)], fw_compiler=run_eagerly, bw_compiler=broken_backward)
    with config.patch(raise_internal_errors=False), pytest.raises(ZeroDivisionError) as found:
        run(a, torch.zeros(3))[0].sum().backward()
    assert "backend='aot_eager'" in found.value.__notes__[0]


def test_what_fails_after_writing_into_inputs_is_not_run_again():
    def compiler(gm, fakes):
        def run(args):
            args[1].add_(1)
            raise PartlyWritten from IndexError("theirs")
        return run

    def fn(t, written):
        written.add_(1)
        return (t.sin(),)

    written = torch.zeros(3)
    run = aot_compile(graph_of(fn, 2), [torch.zeros(3), written], fw_compiler=compiler)
    with config.patch(raise_internal_errors=False), pytest.raises(IndexError, match="theirs") as found:
        run(torch.zeros(3), written)
    assert written.tolist() == [1, 1, 1] and "into its inputs" in found.value.__notes__[0]


def test_checkpointing_a_compiled_function():
    def fn(t):
        return (t.sin() @ t).exp().sum()

    def gradient(call):
        t = torch.linspace(-1, 1, 16).view(4, 4).requires_grad_()
        checkpoint(call, t, use_reentrant=False).backward()
        return t.grad
    with config.patch(raise_internal_errors=False), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = minipt2.compile(fn)
        for _ in range(2):  # compiled under the hooks of checkpoint, then only run under them
            torch.testing.assert_close(gradient(compiled), gradient(fn))


def test_what_compiles_the_backward_is_not_captured():
    def step(t):
        loss = t.sin().sum()
        loss.backward()
        return loss.detach()

    def compiler(gm, fakes):
        return users_code(lambda args: list(gm(*args)))
    backend = lambda gm, fakes: aot_compile(gm, fakes, fw_compiler=compiler)  # noqa: E731
    with config.patch(raise_internal_errors=False):
        minipt2.compile(step, backend=backend)(torch.ones(3, requires_grad=True))
        assert users_code.__code__ not in [r.code for c in eval_frame._callbacks for r in c.records.values()]


def users_code(run):
    return run


VIEWS = {
    "expand": lambda t: t[:, :1].expand(4, 4), "columns": lambda t: t[:, :2], "steps": lambda t: t[::2, 1::2], "transposed": lambda t: t.t()[1:],
    "diagonal": lambda t: t.diagonal(),
}


@pytest.mark.parametrize("view, written", [(v, w) for v in VIEWS for w in (False, True) if (v, w) != ("expand", True)])  # that eager refuses
def test_inputs_with_a_history_and_gaps_in_memory(view, written):
    def fn(t):
        if written:
            t.mul_(2)
        return (t * 2).sin() + t.sum()

    def outcome(call):
        a = torch.linspace(-1, 1, 16).reshape(4, 4).requires_grad_()
        given = VIEWS[view](a * 1)
        out = call(given)
        (out.sum() + given.sum()).backward()
        return out.detach(), given.detach(), a.grad

    torch.testing.assert_close(outcome(minipt2.compile(fn)), outcome(fn))


class Gradient(torch.autograd.Function):
    """Gives back what ``make`` makes of its gradient."""

    @staticmethod
    def forward(ctx, x, make):
        ctx.make = make
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.make(grad), None


TANGENTS = {
    "negated": lambda g: torch._neg_view(g.clone()), "without memory": lambda g: torch._efficientzerotensor(g.shape),
    "sparse": lambda g: g.to_sparse(), "expanded": lambda g: torch.ones(1, 1).expand(g.shape), "transposed": lambda g: g.t().clone().t(),
}


@pytest.mark.parametrize("name", TANGENTS)
def test_odd_gradients_of_outputs(name):
    def gradient(call):
        a = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        (Gradient.apply(call(a), TANGENTS[name]) * torch.arange(12.0).reshape(3, 4)).sum().backward()
        return a.grad.to_dense()

    def fn(t):
        return t * 2

    torch.testing.assert_close(gradient(minipt2.compile(fn)), gradient(fn))


def real_part_written(z):
    y = z * 1
    y.real.mul_(3)
    return y.abs()


def written_through_conj(z):
    y = z * 1
    y.conj().mul_(1j)
    return (y * 2).imag


COMPLEX = {
    "times a number": lambda z: ((z + 1) * 1j).imag, "exp": lambda z: torch.exp(1j * z.real).real, "conj": lambda z: (z.conj() * (z + 1)).imag,
    "real part written": real_part_written, "written through conj": written_through_conj, "mm": lambda z: (z @ z.mH).abs(),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers(name):
    def outcome(call):
        z = torch.linspace(-1, 1, 18).reshape(3, 3, 2).requires_grad_()
        out = call(torch.view_as_complex(z))
        (out * torch.arange(9.0).reshape(3, 3)).sum().backward()
        return out.detach(), z.grad

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "minipt2")
        torch.testing.assert_close(outcome(minipt2.compile(COMPLEX[name])), outcome(COMPLEX[name]))


def drawing(x):
    noise = torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x) + torch.bernoulli(torch.full_like(x, 0.3))
    return noise, torch.randn(3), torch.multinomial(torch.ones(10), 4), torch.randperm(7), torch.randint(0, 9, (4,)), torch.normal(x, 1.0)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_same_seed_gives_the_same_numbers_and_eagers(backend):
    run, x, found = minipt2.compile(drawing, backend=backend, fullgraph=True), torch.ones(5, 6, requires_grad=True), []
    for call in (run, run, drawing):
        torch.manual_seed(7)
        outputs = [*call(x), *call(x)]  # the second call goes on where the first one stopped
        found.append([*outputs, *torch.autograd.grad(outputs[0].sum(), x), torch.rand(2)])
    assert all(map(torch.equal, found[0], found[1])) and not torch.equal(found[0][1], found[0][7])
    torch.testing.assert_close(found[0], found[2], rtol=1e-6, atol=1e-6)


def _clip_data(p):
    p.data.clamp_(-0.1, 0.1)


def _clip_detached(p):
    p.detach().clamp_(-0.1, 0.1)


def _clip(p):
    with torch.no_grad():
        p.clamp_(-0.1, 0.1)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("clip", [_clip_data, _clip_detached, _clip])
def test_a_write_moves_the_version_counter_where_eagers_does(clip, backend, fresh):
    """A backward that saved the tensor before complains, or not, as in eager."""
    met = []
    for fn in (clip, minipt2.compile(clip, backend=backend)):
        torch.manual_seed(0)
        p = torch.randn(5, requires_grad=True)
        loss, before = (p * p).sum(), p._version
        fn(p)
        try:
            loss.backward()
        except RuntimeError as error:
            met.append((p.detach(), p._version - before, type(error)))
        else:
            met.append((p.detach(), p._version - before, p.grad))
    (expected, moved, gradient), (found, moved_here, gradient_here) = met
    assert torch.equal(found, expected) and moved_here == moved
    assert gradient_here is gradient or torch.equal(gradient_here, gradient)


def test_running_statistics_may_be_updated_before_an_earlier_backward(fresh):
    """They are saved in evaluation mode, and eager's kernels do not count their update in training mode: eager's backward reads the new ones."""
    x, batch = torch.randn(4, 3, requires_grad=True), torch.randn(4, 3)
    found = []
    for wrap in (lambda m: m, minipt2.compile):
        norm = nn.BatchNorm1d(3)
        call = wrap(norm)
        norm.eval()
        loss = call(x).sum()
        norm.train()
        call(batch)
        found.append(torch.autograd.grad(loss, x)[0])
    torch.testing.assert_close(*found)
