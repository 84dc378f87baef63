import gc
import weakref

import pytest
import torch

import minipt2
from minipt2.course.checks import same


def compiled(fn):
    return minipt2.compile(fn, backend="aot_eager")


def leaf(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def test_gradcheck():
    """Against numerical differentiation, in double."""
    torch.manual_seed(0)
    fn = compiled(lambda x, w: torch.tanh(x @ w) * x.sum())
    assert torch.autograd.gradcheck(fn, (leaf(2, 3, dtype=torch.float64), leaf(3, 3, dtype=torch.float64)))


def test_missing_tangents():
    """An output that the loss does not use: no gradient for what only it depends on."""
    fn, (x, y) = compiled(lambda x, y: (x * 2, y.exp().sort().values)), (leaf(3), leaf(3))
    a, b = fn(x, y)
    a.sum().backward()
    same(x.grad, torch.full((3,), 2.0))
    assert y.grad is None, "y has a gradient although the loss does not depend on it"
    x.grad = None
    _, b = fn(x, y)
    b.sum().backward()
    assert x.grad is None
    same(y.grad, y.detach().exp())


def test_outputs_without_gradient():
    """Integers and comparisons are not differentiable."""
    fn, x = compiled(lambda x: (x * 2, x.argmax(), x > 0, x.detach() + 1)), leaf(4)
    outs = fn(x)
    same([o.requires_grad for o in outs], [True, False, False, False])
    outs[0].sum().backward()
    same(x.grad, torch.full((4,), 2.0))


def test_a_write_to_a_saved_tensor_is_an_error():
    """As in eager: the backward would use the wrong number."""
    fn, x, y = compiled(lambda x, y: x * y), leaf(3), torch.randn(3)
    out = fn(x, y)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_tangents_in_any_layout():
    """Transposed and expanded ones, and ones that the backward graph was not compiled for."""
    fn, x = minipt2.compile(lambda x: x * x), leaf(3, 4)  # generated code reads memory where it was told to
    for tangent in (torch.randn(4, 3).t(), torch.randn(1, 1).expand(3, 4), torch.randn(3, 8)[:, ::2]):
        x.grad = None
        fn(x).backward(tangent)
        same(x.grad, (2 * x * tangent).detach())


def test_nothing_leaks():
    """Saved tensors go with the graph, and after the backward."""
    fn, x = compiled(lambda x: (x.exp() * 2).sin()), leaf(5)
    out = fn(x)
    kept = weakref.ref(out.grad_fn)
    del out
    gc.collect()
    assert kept() is None, "the graph of a result that nobody holds is still there"
    out = fn(x)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time|already been freed"):
        out.sum().backward()


def test_second_order():
    """create_graph=True: gradients of gradients."""
    fn, x = compiled(lambda x: (x ** 3).sum()), leaf(3)
    (g,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    same(h, (6 * x).detach())
