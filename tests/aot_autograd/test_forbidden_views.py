"""Views made under no_grad whose base is written later: autograd forbids to use them, and so must what compiled code returns."""
import pytest
import torch

import minipt2
from minipt2.config import config


def returned(x):
    y = x * 2
    with torch.no_grad():
        v = y[0]
    y.mul_(3)
    return v, y


def used(x):
    v, y = returned(x)
    return v * 2, y.sum()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_use_raises_as_in_eager(backend, fresh, recwarn):
    x = torch.randn(3, 3, requires_grad=True)
    with config.patch(raise_internal_errors=False):
        view, whole = minipt2.compile(returned, backend=backend)(x)
        assert torch.equal(view.detach(), whole[0].detach()) and torch.equal(whole, x * 6)
        whole.sum().backward()
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            view + 1
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            minipt2.compile(used, backend=backend)(x)


def test_views_that_may_be_used(fresh):
    """Of a base that is not written under grad mode, nothing changes."""
    def fn(x, b):
        with torch.no_grad():
            v, w = b[0], x.view(-1)
        b.add_(1)
        return v * x, w * 2
    x, b = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3)
    expected, twin = fn(x, b.clone()), b.clone()
    for e, f in zip(expected, minipt2.compile(fn)(x, twin)):
        torch.testing.assert_close(f, e)
    assert torch.equal(twin, b + 1)
