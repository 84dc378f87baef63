import operator

import torch
from torch import fx

from minipt2 import prims as p, trace
from minipt2.inductor.ir import Extern
from minipt2.inductor.ir.interpret import run
from minipt2.inductor.lowering import lower
from minipt2.inductor.lowering.extern import out_variant
from minipt2.prims.core import TensorMeta

from ..programs import calls, check, loops

aten = torch.ops.aten


def test_matmuls():
    a, b, bias = torch.randn(3, 4), torch.randn(4, 5), torch.randn(5)
    program = check(lambda a, b: p.exp(p.mm(a, b)), a, b)
    assert program.buffers[0].out_variant is aten.mm.out
    check(lambda bias, a, b: p.addmm(bias, p.exp(a), b, 0.5, 2), bias, a, b)
    check(lambda a, b: p.mm(p.permute(b, (1, 0)), p.permute(a, (1, 0))), a, b)
    check(lambda a: p.bmm(p.permute(p.exp(a), (0, 2, 1)), a), torch.randn(2, 3, 4))
    check(lambda c, a: p.baddbmm(c, a, a, 1, 0.5), torch.randn(2, 3, 3), torch.randn(2, 3, 3))
    check(lambda a, b: p.mm(a, b), a.to(torch.bfloat16), b.to(torch.bfloat16))


def conv(x, w, b=None, groups=1):
    return p.convolution(x, w, b, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)


def test_convolution():
    x, w, b = torch.randn(2, 4, 6, 6), torch.randn(8, 4, 3, 3), torch.randn(8)
    check(lambda x, w, b: p.relu(conv(x, w, b)), x, w, b)
    last = x.to(memory_format=torch.channels_last)
    check(lambda x, w: p.relu(conv(p.add(x, 1.0), w)), last, w)
    check(lambda x, w: p.relu(conv(p.copy_strided(x, (144, 1, 24, 4)), w)), x, w)

    def backward(g, x, w):
        out = p.convolution_backward(g, x, w, [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, True])
        return p.mul(out[0], 2.0), out[1], out[2]
    check(backward, torch.randn(2, 8, 6, 6), x, w)
    check(backward, torch.randn(2, 8, 6, 6), last, w)


def fallback_graph(target, *tensors, args=(), outputs=None):
    """x -> exp -> target -> mul, with the target's meta taken from running it."""
    graph = fx.Graph()
    inputs = []
    for k, t in enumerate(tensors):
        node = graph.placeholder(f"x{k}")
        node.meta["val"] = TensorMeta.of(t)
        inputs.append(node)
    first = graph.call_function(p.exp, (inputs[0],))
    first.meta["val"] = TensorMeta.of(tensors[0].exp())
    call = graph.call_function(target, (first, *inputs[1:], *args))
    result = target(tensors[0].exp(), *tensors[1:], *args)
    many = isinstance(result, (tuple, list))
    call.meta["val"] = tuple(map(TensorMeta.of, result)) if many else TensorMeta.of(result)
    made = []
    for k, r in enumerate(result) if many else [(None, result)]:
        if outputs is not None and k not in outputs:
            continue
        node = graph.call_function(operator.getitem, (call, k)) if many else call
        node.meta["val"] = TensorMeta.of(r)
        made.append(node)
    graph.output(tuple(made))
    return fx.GraphModule({}, graph), [r for k, r in enumerate(result) if outputs is None or k in outputs] if many else [result]


def test_fallbacks_are_counted():
    trace.reset()
    seen = []
    stop = trace.subscribe(lambda stage, name, payload: seen.append((stage, name)))
    gm, expected = fallback_graph(aten.sort.default, torch.randn(4, 5), args=(1,))
    program = lower(gm)
    stop()
    for e, f in zip(expected, run(program, [torch.zeros(4, 5)])):
        assert e.shape == f.shape
    assert trace.counters()["fallbacks"] == 1 and ("fallback", "aten.sort.default") in seen


def test_multi_output_with_unused():
    x = torch.randn(4, 5)
    gm, expected = fallback_graph(aten.sort.default, x, args=(1,), outputs=(1,))
    program = lower(gm)
    extern = next(b for b in program.buffers if isinstance(b, Extern))
    assert extern.outputs[0] is None
    torch.testing.assert_close(run(program, [x])[0], expected[0])


def test_unknown_callable():
    def double(x):
        return x * 2
    x = torch.randn(3, 4).t()
    gm, expected = fallback_graph(double, x)
    torch.testing.assert_close(run(lower(gm), [x])[0], expected[0], check_stride=True)


def test_views_from_fallbacks_do_not_alias():
    x = torch.randn(4, 6)
    for target, args in ((aten.diagonal.default, ()), (aten.split.Tensor, (2, 1)), (aten.unfold.default, (0, 2, 1))):
        gm, expected = fallback_graph(target, x, args=args)
        program = lower(gm)
        assert calls(program)[0] is not target
        for e, f in zip(expected, run(program, [x])):
            torch.testing.assert_close(f, e, check_stride=True)


def test_strides_for_fallbacks():
    """An eager kernel sees the strides eager would have given it."""
    x = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    gm, expected = fallback_graph(aten.max_pool2d_with_indices.default, x, args=([2, 2],))
    for e, f in zip(expected, run(lower(gm), [x])):
        torch.testing.assert_close(f, e, check_stride=True)


def test_constants():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = TensorMeta.of(torch.randn(3))
    nodes = []
    values = {"a": torch.tensor([1.0, 2.0, 3.0]), "b": torch.tensor(5.0)}
    for name, value in values.items():
        nodes.append(graph.get_attr(name))
        nodes[-1].meta["val"] = TensorMeta.of(value)
    wide = graph.call_function(p.broadcast_in_dim, (nodes[1], (3,), ()))
    wide.meta["val"] = TensorMeta((3,), torch.float32, torch.device("cpu"), (0,))
    total = x
    for other in (nodes[0], wide):
        total = graph.call_function(p.add, (total, other))
        total.meta["val"] = TensorMeta((3,), torch.float32, torch.device("cpu"), (1,))
    graph.output((total, nodes[0]))
    gm = fx.GraphModule(values, graph)
    program = lower(gm)
    found = run(program, [torch.zeros(3)])
    torch.testing.assert_close(found[0], torch.tensor([6.0, 7.0, 8.0]))
    assert found[1].data_ptr() != values["a"].data_ptr() and len(program.constants) == 1


def test_random_call_survives_unused():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = TensorMeta.of(torch.randn(3))
    noise = graph.call_function(aten.rand_like.default, (x,))
    noise.meta["val"] = x.meta["val"]
    graph.output((x,))
    program = lower(fx.GraphModule({}, graph))
    assert program.buffers[0].random


def test_out_variants():
    assert out_variant(aten.mm.default, "cpu") is aten.mm.out
    assert out_variant(aten.convolution.default, "cpu") is None  # generated: it would only copy
    assert out_variant(aten.sort.default, "cpu") is None
    assert not loops(check(lambda a: p.mm(a, a), torch.randn(3, 3)))
