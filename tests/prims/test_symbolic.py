"""Decompositions on symbolic sizes: the same prims as for known sizes, and the few guards that eager's own checks amount to."""
from __future__ import annotations

import warnings
from collections import Counter

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from minipt2.aot_autograd import aot_compile
from minipt2.aot_autograd.compile import run_eagerly
from minipt2.fake import FakeMode
from minipt2.prims import expand
from minipt2.prims.meta import (as_many, broadcast_shapes, contiguous_strides, dims_by_stride, is_channels_last, is_dense,
                                slice_bounds, view_strides)
from minipt2.shapes import ShapeEnv
from minipt2.shapes.known import at_least, known, same, settled

from ..symbolic import At, Symbolic

NAMES = """add mul where clamp pow sum mean amax var std_mean any cumsum logsumexp softmax log_softmax expand permute transpose unsqueeze flip repeat
    gather scatter_add index_select index_add masked_fill tril diagonal unfold mm bmm addmm matmul nn.functional.linear
    nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm nn.functional.gelu nn.functional.mse_loss
    nn.functional.huber_loss nn.functional.binary_cross_entropy_with_logits nn.functional.embedding
    nn.functional.pad.constant nn.functional.avg_pool2d nn.functional.pixel_shuffle full_like new_zeros""".split()
BY_NAME = {".".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db}
DECIDES = {"unfold": 3, "nn.functional.pixel_shuffle": 3, "nn.functional.avg_pool2d": 4, "where": 2, "flip": 1, "gather": 3, "scatter_add": 4,
           "index_add": 3, "index_select": 2, "expand": 2, "nn.functional.batch_norm": 2, "nn.functional.layer_norm": 2, "nn.functional.group_norm": 2}
"""How many guards an operator may need: those that eager's checks of its operands are."""


def prims_of(graph, inputs) -> Counter:
    found = Counter()

    def decompose(gm):
        expanded = expand(gm)
        found.update(str(n.target) for n in expanded.graph.nodes if n.op == "call_function")
        return expanded
    aot_compile(graph, inputs, fw_compiler=run_eagerly, decompose=decompose)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_expands_as_with_known_sizes(name):
    op = BY_NAME[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sample = next(s for s in op.sample_inputs("cpu", torch.float32) if isinstance(s.input, torch.Tensor) and s.input.dim())
        flat, spec = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        tensors = [t for t in flat if isinstance(t, torch.Tensor)]

        def fn(*given):
            left = iter(given)
            x, args, kwargs = torch.utils._pytree.tree_unflatten([next(left) if isinstance(v, torch.Tensor) else v for v in flat], spec)
            return op.op(x, *args, **kwargs)
        captured = Symbolic(fn, tensors)
        symbolic = prims_of(captured.graph, captured.inputs)
        fixed = Symbolic(fn, tensors, {})
        assert symbolic == prims_of(fixed.graph, [FakeMode().from_tensor(t) for t in tensors])
    assert len(captured.facts()) <= DECIDES.get(name, 0), captured.facts()


def sizes(*numbers: int) -> tuple:
    env = ShapeEnv()
    return (env, *[env.symbol(n, At(f"x{i}")) for i, n in enumerate(numbers)])


def test_layouts_decide_nothing():
    env, a, b = sizes(4, 7)
    rows, images = contiguous_strides((a, b, 3)), (a * 3 * b, 1, 3 * b, 3)
    assert is_dense((a, b, 3), rows) and is_dense((a, 3, b, b), images) is False
    assert is_channels_last((a, 3, 5, b), (15 * b, 1, 3 * b, 3)) and not is_channels_last((a, 3, 5, b), contiguous_strides((a, 3, 5, b)))
    assert dims_by_stride((3, 3 * a, 1)) == [2, 0, 1]
    assert same(view_strides((a, b, 3), rows, (a * b, 3))[0], 3) and view_strides((b, a), (1, b), (a * b,)) is None
    assert broadcast_shapes((a, 1), (1, b)) == (a, b) and not env.recorded


def test_broadcasting_two_unrelated_sizes_makes_them_equal():
    env, a, b = sizes(4, 4)
    assert a is not b and same(a, b)
    env, a, b = sizes(4, 7)
    with pytest.raises(ValueError):
        broadcast_shapes((a,), (b,))


def test_slices_say_where_they_lie():
    env, a = sizes(9)
    assert [same(x, y) for x, y in zip(slice_bounds(a, None, None), (0, a))] == [True, True] and not env.recorded
    assert [same(x, y) for x, y in zip(slice_bounds(a, -3, 2**63 - 1), (a - 3, a))] == [True, True]
    assert [str(g).split(" with ")[0] for g in env.guards()] == ["s0 >= 3"]


def test_views_ask_about_the_sizes_that_differ():
    env, a, b = sizes(4, 6)
    assert as_many((a, b), (a, b // 2, 2)) and [str(g).split(" with ")[0] for g in env.guards() if "%" in str(g)] == ["s1 % 2 == 0"]
    assert as_many((2, 3), (6,)) and not as_many((2, 3), (5,))


def test_questions_that_leave_no_trace():
    env, a, b = sizes(4, 7)
    assert known(a >= 2) and not known(a >= 3) and not same(a, b) and same(a + b, b + a)
    assert at_least(a * b, b) and not at_least(b, a * b) and not env.recorded
    assert settled([a - a, a, 3])[0] == 0
