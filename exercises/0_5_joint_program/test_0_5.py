import pytest
import torch

from minipt2.course import toy
from minipt2.course.checks import same, unchanged
from minipt2.course.toy import build, joint

FUNCTIONS = {
    "product": (lambda x, y: torch.sigmoid(x * y) + x, [(3, 4), (3, 4)]),
    "matrices": (lambda x, w, b: torch.tanh(x @ w + b), [(3, 4), (4, 5), (5,)]),
    "relu": (lambda x: torch.relu(x - 0.1) * x, [(6,)]),
    "softmax": (lambda x, y: (x / (y * y + 1)).softmax(-1), [(2, 5), (2, 5)]),
    "order": (lambda x, y: x * 2 + y * 3, [(4,), (4,)]),
}


def eager(fn, args, tangent):
    leaves = [a.clone().requires_grad_() for a in args]
    out = fn(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, tangent)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_equal_eager(name):
    """Result and gradients, on numbers that were not recorded."""
    fn, shapes = FUNCTIONS[name]
    torch.manual_seed(1)
    run = build(joint(fn, [torch.randn(s) for s in shapes]))
    args = [torch.randn(s) for s in shapes]
    tangent = torch.ones_like(fn(*args))
    same(run(*args, tangent), eager(fn, args, tangent), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_another_tangent(name):
    """The gradient that comes from above is an input like any other."""
    fn, shapes = FUNCTIONS[name]
    torch.manual_seed(2)
    args = [torch.randn(s) for s in shapes]
    run = build(joint(fn, args))
    tangent = torch.randn_like(fn(*args))
    same(run(*args, tangent), eager(fn, args, tangent), rtol=1e-4, atol=1e-5)


def test_arguments_are_left_alone():
    """Recording does not turn the caller's tensors into leaves, nor fill their .grad."""
    x, y = torch.randn(3), torch.randn(3)
    with unchanged(x=x, y=y):
        joint(lambda x, y: x * y, [x, y])
    assert not x.requires_grad and x.grad is None


def test_one_program():
    """Forward and backward are one list: a kernel may serve both."""
    program = joint(lambda x, y: torch.tanh(x * y), [torch.randn(3), torch.randn(3)])
    same(len(program.inputs), 3)
    same(len(program.outputs), 3)
    assert any("backward" in str(call.func) for call in program.calls), "the backward was not recorded"


def test_trains():
    """Fifty steps of gradient descent with the toy's own gradients."""
    torch.manual_seed(0)
    x, y = torch.randn(16, 3), torch.randn(16, 1)
    w = torch.zeros(3, 1)

    def loss(w):
        return ((x @ w - y) * (x @ w - y)).mean()
    step, first = toy.train_step(loss, [w]), loss(w)
    for _ in range(50):
        _, grad = step(w, torch.ones(()))
        w = w - 0.1 * grad
    best = loss(torch.linalg.lstsq(x, y).solution)
    same(loss(w), best, rtol=1e-2, atol=1e-3)
    assert loss(w) < first
