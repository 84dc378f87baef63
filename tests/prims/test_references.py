"""References against the compiler's loops, and the set closed under differentiation."""
import operator

import pytest
import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from minipt2 import inductor
from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.inductor.lowering import lowerings
from minipt2.prims import TABLE, Prim, TensorMeta, complete, expand

from .calls import calls


def test_compiled_loops_give_what_references_give():
    """Every call of every prim that inductor lowers, as one graph: so that the C compiler runs once."""
    graph, tensors, places, results, expected = fx.Graph(), [], {}, [], []
    todo = [(name, args) for name in sorted(TABLE) if name in lowerings for args in calls(name)]
    for _, args in todo:
        for t in tree_leaves(args):
            if isinstance(t, torch.Tensor) and id(t) not in places:
                places[id(t)] = graph.placeholder(f"x{len(tensors)}")
                places[id(t)].meta["val"] = TensorMeta.of(t)
                tensors.append(t)
    for name, args in todo:
        node = graph.call_function(TABLE[name], tree_map(lambda a: places.get(id(a), a), args))
        eager = TABLE[name](*args)
        node.meta["val"] = tuple(map(TensorMeta.of, eager)) if isinstance(eager, tuple) else TensorMeta.of(eager)
        for i, part in enumerate(eager if isinstance(eager, tuple) else (eager,)):
            item = graph.call_function(operator.getitem, (node, i)) if isinstance(eager, tuple) else node
            item.meta["val"] = TensorMeta.of(part)
            results.append(item)
            expected.append((name, args, part))
    graph.output(tuple(results)).meta["val"] = [r.meta["val"] for r in results]
    run = inductor.compile_graph(fx.GraphModule({}, graph), [n.meta["val"] for n in places.values()], inference=True)
    for (name, args, theirs), mine in zip(expected, run(list(tensors)), strict=True):
        torch.testing.assert_close(mine, theirs, equal_nan=True, msg=lambda text: f"prims.{name}{args}: {text}")
    assert len(todo) > 300


def differentiable(name):
    """Calls of the prim with float64 operands that require grad, as (function of the tensors, tensors)."""
    for args in calls(name):
        flat, spec = tree_flatten(args)
        flat = [a.double().requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in flat]
        at = [i for i, a in enumerate(flat) if isinstance(a, torch.Tensor) and a.requires_grad]

        def fn(*xs, flat=flat, spec=spec, at=at):
            values = list(flat)
            for i, x in zip(at, xs):
                values[i] = x
            outs = tree_leaves(TABLE[name].ref(*tree_unflatten(values, spec)))
            return tuple([o for o in outs if isinstance(o, torch.Tensor) and o.requires_grad])

        if at and fn(*[flat[i] for i in at]):
            yield fn, [flat[i] for i in at]


def gradients(fn, xs):
    outs = fn(*xs)
    return [*outs, *torch.autograd.grad(outs, xs, [torch.full_like(o, 0.5) for o in outs], allow_unused=True)]


NOT_DIFFERENTIABLE = frozenset("""airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 bessel_k0e bessel_k1e chebyshev_polynomial_t chebyshev_polynomial_u
    chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he igamma igammac laguerre_polynomial_l
    legendre_polynomial_p nextafter zeta geqrf floordiv valid""".split())
"""Prims whose derivative PyTorch itself does not have (of igamma and zeta: that for the first operand); ``valid`` reads its data."""


@pytest.mark.parametrize("name", sorted(n for n, prim in TABLE.items() if n not in NOT_DIFFERENTIABLE and prim.kind != "random"))
def test_derivatives_are_made_of_prims(name):
    """Forward and gradient of each prim, reduced with every rule, hold prims alone and give eager's numbers."""
    for fn, xs in list(differentiable(name))[:1]:
        graph, joints = fx.Graph(), []
        node = graph.call_function(fn, tuple([graph.placeholder(f"x{i}") for i in range(len(xs))]))
        graph.output(tuple([graph.call_function(operator.getitem, (node, i)) for i in range(len(fn(*xs)))]))

        def decompose(joint):
            joints.append(expand(joint, complete))
            return joints[-1]

        compiled = aot_compile(fx.GraphModule({}, graph), xs, fw_compiler=run_eagerly, decompose=decompose)
        for mine, theirs in zip(gradients(compiled, xs), gradients(fn, xs), strict=True):
            torch.testing.assert_close(mine, theirs, equal_nan=True)
        foreign = [n for n in joints[0].graph.nodes
                   if n.op == "call_function" and not isinstance(n.target, Prim) and n.target is not operator.getitem]
        assert not foreign, [(str(n.target), n.meta.get("fallback")) for n in foreign]
