"""Fake tensors say what eager does: shapes, dtypes, strides, devices, storages; for every operator that torch's samples reach."""
import itertools
import subprocess
import sys
import warnings
import zlib

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from minipt2.fake import DataDependent, DynamicShape, FakeMode, FakeTensor, Unfakeable, for_strangers

# operators whose values are memory as it was found, and so have no defined look of their own where that matters
UNDEFINED = ("aten.empty",)


def look(value):
    """What two tensors must share. Strides of dimensions of size 1 place nothing; those of empty tensors neither."""
    if isinstance(value, torch.Tensor):
        strides = [s for n, s in zip(value.shape, value.stride()) if n > 1] if value.numel() else None
        return tuple(value.shape), value.dtype, strides, value.device, value.is_conj(), value.is_neg()
    return [look(v) for v in value] if isinstance(value, (list, tuple)) else None


class Compare(TorchDispatchMode):
    """Runs every operator on real tensors and on fake ones."""

    def __init__(self):
        super().__init__()
        self.differences = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, mode = kwargs or {}, FakeMode()
        try:
            fake_args, fake_kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
            with mode:
                fake = look(func(*fake_args, **fake_kwargs))
        except (DataDependent, DynamicShape, Unfakeable):
            return func(*args, **kwargs)
        real = func(*args, **kwargs)
        if fake != look(real) and not str(func).startswith(UNDEFINED):
            self.differences.append((str(func), fake, look(real), [look(a) for a in pytree.tree_leaves((args, kwargs))]))
        return real


def run(op, sample, grad):
    out = op(sample.input, *sample.args, **sample.kwargs)
    if grad:
        outputs = [o for o in pytree.tree_leaves(out) if isinstance(o, torch.Tensor) and o.requires_grad]
        inputs = [t for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outputs and inputs:
            torch.autograd.grad(outputs, inputs, [torch.ones_like(o) for o in outputs], allow_unused=True)


@pytest.mark.parametrize("part", range(6))
def test_operators_look_as_in_eager(part):
    """A third of torch's operators, two samples each, forward and backward; ``part`` spreads the load."""
    differences = []
    for op in op_db:
        if zlib.crc32(op.name.encode()) % 18 != part or torch.float32 not in op.supported_dtypes("cpu"):
            continue
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd), 2):
            with Compare() as compare:
                try:
                    run(op, sample, op.supports_autograd)
                except (NotImplementedError, RuntimeError, AssertionError):  # samples that eager itself refuses
                    continue
            differences += [d for d in compare.differences if d[0] != "aten.ones_like.default"]  # of columns: as upstream's fake tensors
    assert not differences, differences


def relaid(shape, dtype=torch.float32):
    """Tensors of ``shape`` in the layouts that programs make: row-major, transposed, channels-last, every other element, expanded."""
    x = torch.arange(1, 1 + int(torch.tensor(shape).prod()), dtype=torch.float64).reshape(shape).to(dtype)
    yield x
    yield x.mT.contiguous().mT
    yield torch.stack([x, x], -1)[..., 0]
    yield x[:1].expand(shape)
    if len(shape) in (4, 5):
        yield x.contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)


aten = torch.ops.aten
OF_LAYOUTS = {
    "fill": ((4, 5), lambda x: [x.masked_fill(x > 3, 0), x.masked_fill(x > 3, torch.tensor(0.)), aten.pow.Scalar(2, x), aten.mvlgamma(x, 1)]),
    "convert": ((4, 5), lambda x: [f(a, b) for f in (torch.add, torch.eq, torch.logical_and, torch.atan2) for y in relaid((4, 5), torch.int64)
                                   for a, b in ((x, y), (y, x), (y, y), (y, y.int()), (x, x.to(torch.bfloat16)), (x, x.double()))]),
    "select": ((4, 5), lambda x: [torch.where(c > 3, x, y) for c in relaid((4, 5)) for y in (x.mT.contiguous().mT, x.double())]),
    "losses": ((4, 5), lambda x: [g for reduction in (0, 1) for g in (
        aten.mse_loss_backward(x, x, x, reduction), aten.smooth_l1_loss_backward(x, x, x, reduction, 1.), aten.huber_loss_backward(x, x, x, reduction, 1.))]),
    "join": ((2, 3, 4, 5), lambda x: [*[torch.stack([x, x], d) for d in range(-5, 5)], torch.cat([x, x[:, :1]], 1), torch.stack([x[0]] * 3)]),
    "roll": ((2, 3, 4, 5), lambda x: [torch.roll(x, s, d) for s, d in ((1, 0), (0, 0), (3, 2), (-1, -1), ((1, 1), (1, 2)), ((1, 4), (1, 2)), (1, ()))]),
    "attend": ((2, 3, 4, 8), lambda x: list(aten._scaled_dot_product_flash_attention_for_cpu(x, x, x))),
    "pad": ((2, 3, 4, 5), lambda x: [F.pad(x, pad, mode) for pad in ((1, 2, 0, 1), (1, 1, 1, 1, 1, 1)) for mode in ("reflect", "replicate")]),
    "pad backward": ((2, 3, 4, 5), lambda x: [aten.reflection_pad2d_backward(F.pad(x, (1, 2, 0, 1)), x, [1, 2, 0, 1]),
                                              aten.replication_pad2d_backward(F.pad(x, (1, 2, 0, 1)), x, [1, 2, 0, 1])]),
    "resize": ((2, 3, 4, 4), lambda x: [backward(x, [4, 4], [2, 3, 3, 3], False) for backward in (
        aten.upsample_bicubic2d_backward, aten.upsample_bilinear2d_backward)]),
    "shuffle": ((2, 8, 3, 3), lambda x: [F.pixel_shuffle(x, 2), F.pixel_shuffle(x, 1)]),
    "copy": ((4, 6), lambda x: [torch.view_copy(x, [2, 12]), torch.view_copy(x, (-1,))]),
    "normalise": ((3, 4, 5), lambda x: normalised(x)),
    "normalise images": ((3, 4, 5, 2), lambda x: normalised(x)),
    "normalise halves": ((3, 4, 5, 2), lambda x: [F.batch_norm(x.bfloat16(), m, v, w, w, training) for training in (True, False) for w, m, v in (
        (None, *stats(4, torch.bfloat16)), (None, *stats(4, torch.float32)), (stats(4, torch.float32)[0], *stats(4, torch.float32)))]),
}


def stats(n, dtype):
    return torch.zeros(n, dtype=dtype), torch.ones(n, dtype=dtype)


def normalised(x):
    x, w = x.detach().requires_grad_(), torch.ones(x.shape[1])
    outs = [F.batch_norm(x, w.clone(), w.clone(), w, w, training) for training in (True, False)]
    return [*outs, *[torch.autograd.grad(out, x, torch.ones_like(x.detach()))[0] for out in outs]]


@pytest.mark.parametrize("kind", OF_LAYOUTS)
def test_results_lie_as_in_eager_however_the_operands_do(kind):
    shape, call = OF_LAYOUTS[kind]
    for x in relaid(shape):
        with Compare() as compare:
            call(x)
        assert not compare.differences, compare.differences


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_convolutions_keep_the_memory_format_that_eager_chooses(dtype):
    shapes = [(2, 3, 8, 4, 3, 1, 1, False), (2, 8, 16, 8, 3, 8, 1, False), (1, 1, 8, 4, 3, 1, 1, False), (2, 16, 4, 32, 1, 1, 1, False),
              (2, 4, 8, 4, 3, 1, 2, True), (2, 4, 1, 4, 1, 1, 1, False)]
    for (n, c, size, o, k, groups, stride, transposed), x_format, w_format in itertools.product(shapes, *[(torch.contiguous_format, torch.channels_last)] * 2):
        x = torch.randn(n, c, size, size, dtype=dtype).to(memory_format=x_format).requires_grad_()
        w = torch.randn((c, o // groups, k, k) if transposed else (o, c // groups, k, k), dtype=dtype).to(memory_format=w_format).requires_grad_()
        conv = F.conv_transpose2d if transposed else F.conv2d

        def step(x, w):
            out = conv(x, w, None, stride, 1 if k == 3 else 0, groups=groups)
            return [out, *torch.autograd.grad(out.sum(), (x, w))]
        mode = FakeMode()
        fakes = [mode.from_tensor(t) for t in (x, w)]
        with mode:
            found = look(step(*fakes))
        assert found == look(step(x, w)), (n, c, size, o, k, groups, stride, transposed, x_format, w_format)


LAYOUTS = {
    "masked_fill": lambda x, y: (x.masked_fill(y > 1, 0), y.masked_fill(x > 1, torch.tensor(2.0))),
    "roll": lambda x, y: (x.roll(1), x.roll(1, 0), x.roll((1, 2), (0, 1))),
    "mse_loss": lambda x, y: torch.ops.aten.mse_loss_backward(x, x, y, 0),
    "smooth_l1_loss": lambda x, y: torch.ops.aten.smooth_l1_loss_backward(x, x, y, 0, 1.0),
    "huber_loss": lambda x, y: torch.ops.aten.huber_loss_backward(x, x, y, 0, 1.0),
    "relu": lambda x, y: torch.ops.aten.threshold_backward(x, y, 0),
    "leaky_relu": lambda x, y: torch.ops.aten.leaky_relu_backward(x, y, 0.1, False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_results_lie_in_memory_as_in_eager_whatever_the_operands_do(name):
    rows, image = torch.randn(2, 3), torch.randn(2, 4, 3, 3)
    for x in (rows, torch.randn(3, 2).t(), torch.randn(2, 6)[:, ::2]):
        for y in (rows, torch.randn(3, 2).t(), torch.randn(2, 1).expand(2, 3)):
            with Compare() as compare:
                LAYOUTS[name](x, y)
            assert not compare.differences
    with Compare() as compare:
        LAYOUTS[name](image.contiguous(memory_format=torch.channels_last), image)
    assert not compare.differences


def test_views_share_storage_and_history_is_kept():
    base = torch.randn(4, 6, requires_grad=True)
    view, computed = base.detach()[1:, ::2], base * 2
    mode = FakeMode()
    a, b, c = mode.from_tensor(base), mode.from_tensor(view), mode.from_tensor(computed)
    assert look([a, b, c]) == look([base, view, computed])
    assert a.untyped_storage()._cdata == b.untyped_storage()._cdata != c.untyped_storage()._cdata
    assert a.is_leaf and a.requires_grad and not b.requires_grad and c.requires_grad and not c.is_leaf and not c._is_view()


def test_values_made_while_tracing_are_known_until_written():
    mode = FakeMode()
    with mode:
        known = torch.tensor(3.0) * 2
        assert known.item() == 6
        known.add_(torch.ones(()))
        with pytest.raises(DataDependent):
            known.item()
        pair = torch.tensor([1.0, 2.0])
        assert pair.sum().item() == 3
        pair[0].add_(1)  # through a view
        with pytest.raises(DataDependent):
            pair.sum().item()


@pytest.mark.parametrize("call, error", [
    (lambda x: x.sum().item(), DataDependent), (lambda x: x.nonzero(), DynamicShape), (lambda x: x[x > 0], DynamicShape),
    (lambda x: x @ torch.ones(3, 3), RuntimeError), (lambda x: x + torch.ones(7), RuntimeError), (lambda x: x.sum(5), IndexError),
    (lambda x: x.to_sparse(), (Unfakeable, DynamicShape))])
def test_what_has_no_answer_raises(call, error):
    mode = FakeMode()
    x = mode.from_tensor(torch.randn(2, 4))
    with mode, pytest.raises(error):
        call(x)


def test_in_place_changes_of_sizes_reach_the_object():
    mode = FakeMode()
    x = mode.from_tensor(torch.randn(2, 4))
    with mode:
        x.t_()
        x.unsqueeze_(0)
    assert x.shape == (1, 4, 2) and x.stride()[1:] == (1, 4)


def test_real_operands_are_made_fake():
    mode = FakeMode()
    x, weight = mode.from_tensor(torch.randn(2, 3, 8, 8)), torch.randn(4, 3, 3, 3)
    with mode:
        results = F.conv2d(x, weight), torch.cat([x, torch.ones(2, 3, 8, 8)])
    assert [tuple(r.shape) for r in results] == [(2, 4, 6, 6), (4, 3, 8, 8)] and all(type(r) is FakeTensor for r in results)


def test_borrowed_operators_come_back_as_ours():
    mode = FakeMode()
    x = mode.from_tensor(torch.randn(8))
    with mode:
        spectrum = torch.fft.fft(x)
    assert type(spectrum) is FakeTensor and look(spectrum) == look(torch.fft.fft(torch.randn(8)))
    theirs = for_strangers(x)
    assert type(theirs) is torch._subclasses.FakeTensor and look(mode.from_tensor(theirs)) == look(x)


def test_common_models_are_captured_without_upstreams_compiler():
    """Its import takes seconds, and every process would pay them."""
    program = """
import sys, torch, minipt2, minipt2.models as models
for name in ("resnet18", "mobilenetv2", "gpt2", "bert", "vit", "recommender", "unet", "lstm", "actor_critic"):
    for training in (False, True):
        model, inputs = models.build(name, "small").train(training), models.inputs(name, "small")
        with torch.set_grad_enabled(training):
            out = minipt2.compile(model, backend="aot_eager")(*inputs)
        if training:
            models.loss(out).backward()
        assert "torch._dynamo" not in sys.modules, (name, training)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_deviations_do_not_warn_of_elements_that_are_not_there():
    mode = FakeMode()
    x, z = mode.from_tensor(torch.randn(4, 5)), mode.from_tensor(torch.ones(3, dtype=torch.complex64))
    with mode, warnings.catch_warnings():
        warnings.simplefilter("error")
        for result in (x.var(0), x.std(), x.std(1, correction=2), *torch.var_mean(x, 1)):
            assert result.dtype is torch.float32
        assert torch.var(z).dtype is torch.float32


@pytest.mark.parametrize("dtype, parameters", [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize("name", ["_batch_norm_with_update", "_batch_norm_no_update", "_batch_norm_with_update_functional"])
def test_batch_norms_with_a_workspace(name, dtype, parameters):
    run, mode = getattr(torch.ops.aten, name), FakeMode()
    real = torch.randn(2, 3, 4, 4).to(dtype), *(torch.ones(3, dtype=parameters) for _ in range(4))
    fakes = [mode.from_tensor(t) for t in real]
    with mode:
        fake = run(*fakes, 0.1, 1e-5)
    for f, r in zip(fake, run(*real, 0.1, 1e-5), strict=True):
        assert (f.shape, f.dtype, f.stride()) == (r.shape, r.dtype, r.stride())


def test_shuffled_channels_keep_the_memory_format():
    mode = FakeMode()
    for format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 6, 3, 4).to(memory_format=format)
        fake = mode.from_tensor(x)
        with mode:
            fake = torch.channel_shuffle(fake, 3)
        assert fake.stride() == torch.channel_shuffle(x, 3).stride()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("running", [None, torch.float32, "same"])
@pytest.mark.parametrize("training", [True, False])
def test_statistics_of_batch_norm_have_eager_s_dtype(dtype, running, training):
    """In all forms of the operator: half parameters keep half statistics on a CPU."""
    x = torch.randn(4, 3, 5).to(dtype)
    wide = dtype if running == "same" else torch.float32
    weight, statistics = torch.ones(3, dtype=wide), [torch.zeros(3, dtype=wide), torch.ones(3, dtype=wide)]
    calls = [(aten._native_batch_norm_legit.no_stats, (x, weight, weight, True, 0.1, 1e-5))]
    if running is not None:
        calls = [(op, (x, weight, weight, *statistics, training, 0.1, 1e-5))
                 for op in (aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten._native_batch_norm_legit_functional.default)]
    for op, args in calls:
        mode = FakeMode()
        fakes = [mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args]
        with mode:
            found = op(*fakes)
        assert [(f.dtype, tuple(f.shape)) for f in found] == [(e.dtype, tuple(e.shape)) for e in op(*args)]
