"""PyTorch's own samples of operators: the expanded graph gives eager's results, forward and backward."""
import itertools
import warnings

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

from minipt2.config import config
from minipt2.prims import complete, decompositions, expand
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
    nn.functional.conv2d sigmoid tanh nn.functional.relu var mean index_select gather slice select diagonal cumsum prod norm
    nn.functional.avg_pool2d nn.functional.fold diag_embed scatter_reduce.sum""".split()
BY_NAME = {}
for _op in op_db:
    BY_NAME.setdefault(".".join(filter(None, (_op.name, _op.variant_test_name))), _op)


LIBRARY = """sort topk kthvalue median nanmedian mode msort searchsorted bucketize isin cumprod cummax cummin logcumsumexp histc histogram
    nn.functional.max_pool1d nn.functional.max_pool2d nn.functional.max_pool3d nn.functional.adaptive_max_pool2d nn.functional.adaptive_max_pool3d
    nn.functional.max_unpool2d nn.functional.max_unpool3d nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.scaled_dot_product_attention nn.functional.interpolate.bilinear nn.functional.interpolate.linear
    nn.functional.interpolate.trilinear nn.functional.interpolate.bicubic nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
    nn.functional.upsample_bilinear _upsample_bilinear2d_aa nn.functional.grid_sample grid_sampler_2d grid_sampler_3d nn.functional.pad.reflect
    nn.functional.pad.replicate unfold_copy as_strided_scatter masked_scatter scatter_reduce.prod scatter_reduce.mean scatter_reduce.amax
    scatter_reduce.amin index_reduce.prod index_reduce.mean index_reduce.amin index_reduce.amax index_fill put _unsafe_masked_index
    _unsafe_masked_index_put_accumulate nn.functional.embedding_bag nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
    cdist nn.functional.pdist dist renorm nn.functional.bilinear nn.functional.celu logit special.i0e special.i1 special.i1e i0 special.erfcx
    special.ndtri special.log_ndtr special.entr special.xlog1py special.zeta logaddexp2 polygamma.polygamma_n_0 polygamma.polygamma_n_1 mvlgamma.mvlgamma_p_3
    gcd lcm frexp angle igamma igammac special.bessel_j0 special.bessel_y1 special.airy_ai special.modified_bessel_k0 special.modified_bessel_i1
    special.spherical_bessel_j0 special.scaled_modified_bessel_k1 special.chebyshev_polynomial_t special.shifted_chebyshev_polynomial_u
    special.hermite_polynomial_he special.laguerre_polynomial_l special.legendre_polynomial_p linalg.cholesky linalg.cholesky_ex cholesky_inverse
    cholesky_solve linalg.lu linalg.lu_factor linalg.lu_solve lu_unpack linalg.solve linalg.solve_ex linalg.inv linalg.inv_ex linalg.det
    linalg.slogdet logdet linalg.qr geqrf ormqr linalg.householder_product linalg.svd linalg.eigh linalg.solve_triangular triangular_solve
    linalg.pinv matrix_exp linalg.cross trace logspace logspace linspace.tensor_overload tril_indices triu_indices
    signal.windows.kaiser _chunk_cat nn.functional.channel_shuffle nonzero_static max_pool2d_with_indices_backward
    rand_like randn_like randint randn randint_like bernoulli multinomial normal uniform nn.functional.dropout""".split()


def check(op, dtype, gradients, samples=2, table=decompositions):
    """The first samples; of a negative number only the last, which is less plain."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=gradients), abs(samples)))
        for sample in found if samples > 0 else found[-1:]:
            check_sample(op, sample, gradients, table)


def check_sample(op, sample, gradients, table):
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
        torch.manual_seed(42)  # OpInfo itself seeds random operators with it
        gm, eager = trace(fn, *tensors)
    except Untraceable:
        return
    strides = [e.stride() for e in eager]
    with config.patch(verify_ir=True), torch.no_grad():
        torch.manual_seed(42)
        ours = expand(gm, table)(*[t.detach() for t in tensors])
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


@pytest.mark.parametrize("name", [n for n in LIBRARY if n in BY_NAME])
def test_library_rules(name):
    """With every rule, against float64 with gradients."""
    op = BY_NAME[name]
    check(op, torch.float64 if torch.float64 in op.dtypes else torch.int64, op.supports_autograd, samples=-2, table=complete)


@pytest.mark.parametrize("name", """nn.functional.scaled_dot_product_attention nn.functional.max_pool2d nn.functional.interpolate.bicubic
    logit nn.functional.celu special.i0e polygamma.polygamma_n_1 nn.functional.softshrink cumprod""".split())
def test_library_rules_in_low_precision(name):
    check(BY_NAME[name], torch.bfloat16, True, samples=1, table=complete)


def test_names_exist():
    missing = [n for n in FORWARD + BACKWARD + LIBRARY if n not in BY_NAME]
    assert len(missing) <= 3, missing
