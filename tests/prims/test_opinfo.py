"""PyTorch's own samples of operators: the expanded graph gives eager's results, forward and backward."""
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from minipt2.config import config
from minipt2.prims import expand
from minipt2.prims.meta import is_dense, same_layout

from .tracing import Untraceable, trace

FORWARD = """add sub mul div.no_rounding_mode div.floor_rounding div.trunc_rounding pow remainder fmod true_divide floor_divide clamp where
    maximum fmin atan2 copysign logical_xor bitwise_left_shift isposinf nan_to_num frac round sgn sinc xlogy logaddexp lerp addcmul addcdiv
    sum mean prod amax argmin max.reduction_with_dim var std_mean any all count_nonzero linalg.vector_norm cumsum logsumexp aminmax
    view expand permute transpose slice select squeeze unsqueeze split unbind unfold narrow diagonal flip roll repeat tile cat stack
    gather scatter scatter_add index_select index_put index_add index_copy index_fill masked_fill tril triu take slice_scatter select_scatter
    diagonal_scatter nn.functional.embedding nn.functional.one_hot mm bmm addmm baddbmm addmv addr dot matmul nn.functional.linear
    nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d nn.functional.pad.reflect
    nn.functional.pad.constant nn.functional.cross_entropy nn.functional.nll_loss eye full_like arange linspace block_diag
    nn.functional.pixel_shuffle nn.functional.interpolate.bilinear nn.functional.interpolate.nearest nn.functional.unfold masked_scatter ldexp""".split()
BACKWARD = """softmax log_softmax nn.functional.layer_norm nn.functional.group_norm nn.functional.batch_norm nn.functional.instance_norm
    nn.functional.gelu nn.functional.silu nn.functional.hardswish nn.functional.hardsigmoid nn.functional.hardtanh nn.functional.leaky_relu
    nn.functional.elu nn.functional.mish nn.functional.softplus nn.functional.logsigmoid nn.functional.glu nn.functional.softshrink
    nn.functional.prelu nn.functional.mse_loss nn.functional.huber_loss nn.functional.smooth_l1_loss nn.functional.binary_cross_entropy
    nn.functional.binary_cross_entropy_with_logits nn.functional.soft_margin_loss nn.functional.cross_entropy nn.functional.embedding
    nn.functional.conv2d sigmoid tanh relu var mean index_select gather slice select diagonal cumsum prod norm
    nn.functional.avg_pool2d nn.functional.fold diag_embed scatter_reduce.sum""".split()
BY_NAME = {}
for _op in op_db:
    BY_NAME.setdefault(".".join(filter(None, (_op.name, _op.variant_test_name))), _op)


def check(op, dtype, gradients, samples=2):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in list(op.sample_inputs("cpu", dtype, requires_grad=gradients))[:samples]:
            check_sample(op, sample, gradients)


def check_sample(op, sample, gradients):
    flat, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor)]
    tensors = [flat[i] for i in at]

    def fn(*xs):
        values = list(flat)
        for i, x in zip(at, xs):
            values[i] = x
        x, args, kwargs = tree_unflatten(values, spec)
        outs = [o for o in tree_flatten(op.op(x, *args, **kwargs))[0] if isinstance(o, torch.Tensor)]
        wanted = [o for o in outs if o.requires_grad]
        if wanted:
            outs += torch.autograd.grad(wanted, [x for x in xs if x.requires_grad], [torch.ones_like(o) for o in wanted], allow_unused=True)
        return outs

    try:
        gm, eager = trace(fn, *tensors)
    except Untraceable:
        return
    strides = [e.stride() for e in eager]
    with config.patch(verify_ir=True), torch.no_grad():
        ours = expand(gm)(*[t.detach() for t in tensors])
    loose = dict(rtol=2e-2, atol=1e-2) if eager and eager[0].dtype is torch.bfloat16 else {}
    for mine, theirs, stride in zip(ours, eager, strides, strict=True):
        torch.testing.assert_close(mine, theirs.detach(), equal_nan=True, **loose)
        assert not is_dense(theirs.shape, stride) or same_layout(tuple(theirs.shape), mine.stride(), stride)


@pytest.mark.parametrize("name", [n for n in FORWARD if n in BY_NAME])
def test_forward(name):
    for dtype in (torch.float32, torch.int64):
        if dtype in BY_NAME[name].dtypes:
            check(BY_NAME[name], dtype, False)


@pytest.mark.parametrize("name", [n for n in BACKWARD if n in BY_NAME])
def test_backward(name):
    check(BY_NAME[name], torch.float64, True)
    if torch.bfloat16 in BY_NAME[name].dtypes:
        check(BY_NAME[name], torch.bfloat16, True, samples=1)


def test_names_exist():
    missing = [n for n in FORWARD + BACKWARD if n not in BY_NAME]
    assert len(missing) <= 3, missing
