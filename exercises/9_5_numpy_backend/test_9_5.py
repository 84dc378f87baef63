import pytest
import torch

import minipt2
from minipt2 import models
from minipt2 import prims as P
from minipt2.backends.numpy_backend import lower
from minipt2.course.checks import same, unchanged
from minipt2.course.programs import graph_of


@pytest.mark.parametrize("name", ["resnet18", "gpt2"])
def test_models(name):
    """A CNN and a transformer, inference, against eager."""
    torch.manual_seed(0)
    model = models.build(name, "small").eval()
    args = models.inputs(name, "small")
    with torch.no_grad():
        wanted = model(*args)
        found = minipt2.compile(model, backend="numpy")(*args)
    same([t for t in torch.utils._pytree.tree_leaves(found) if isinstance(t, torch.Tensor)],
         [t for t in torch.utils._pytree.tree_leaves(wanted) if isinstance(t, torch.Tensor)], rtol=1e-3, atol=1e-4)


def test_owns_its_arguments():
    """The list is empty afterwards: inputs may die early."""
    x = torch.randn(3)
    args = [x]
    run = lower(graph_of(lambda x: P.exp(x), x), [x])
    same(run(args)[0], x.exp())
    same(args, [])


def test_shares_no_memory_with_inputs():
    """Not even when the graph returns an input, or a view of one."""
    x = torch.randn(2, 3)
    run = lower(graph_of(lambda x: (P.permute(x, [1, 0]), P.add(x, 1.0)), x), [x])
    with unchanged(x=x):
        view, _ = run([x])
        view.mul_(100)


def test_runs_again():
    """Each call has values of its own."""
    x, y = torch.randn(4), torch.randn(4)
    run = lower(graph_of(lambda x: P.sum(P.mul(x, x), [0]), x), [x])
    first = run([x])[0]
    same(run([y])[0], (y * y).sum())
    same(first, (x * x).sum())


def test_keeps_dims_and_dtypes():
    """As the graph records them."""
    x = torch.randn(3, 4)
    run = lower(graph_of(lambda x: (P.amax(x, [1], True), P.convert(x, torch.bfloat16), P.gt(x, 0.0)), x), [x])
    same(run([x]), [x.amax(1, True), x.bfloat16(), x > 0])


def test_outputs_that_are_no_nodes():
    """A number, and None for a gradient that is not there."""
    gm = graph_of(lambda x: P.exp(x), torch.randn(2))
    out = next(iter(reversed(gm.graph.nodes)))
    out.args = ((out.args[0][0], 3, None),)
    x = torch.randn(2)
    found = lower(gm, [x])([x])
    same(found[1:], [3, None])


def test_lists_what_it_cannot_do():
    """Before anything runs, and all of it."""
    gm = graph_of(lambda x: P.exp(x), torch.randn(2))
    node = next(n for n in gm.graph.nodes if n.op == "call_function")
    node.target = torch.ops.aten.special_bessel_j0.default
    with pytest.raises(minipt2.Unsupported, match="bessel"):
        lower(gm, [torch.randn(2)])


def test_trains():
    """Gradients from NumPy."""
    x, w = torch.randn(4, 3), torch.randn(3, 2, requires_grad=True)
    minipt2.compile(lambda x, w: torch.tanh(x @ w).sum(), backend="numpy")(x, w).backward()
    same(w.grad, torch.autograd.grad(torch.tanh(x @ w).sum(), w)[0], rtol=1e-4, atol=1e-5)
