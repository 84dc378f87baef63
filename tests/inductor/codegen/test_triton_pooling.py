"""Max pooling in Triton: what eager's kernels choose and add, in every layout, without scattering anything."""
import pytest
import torch
import torch.nn.functional as F

import minipt2
from minipt2.config import config
from minipt2.inductor import triton_pool
from minipt2.inductor.codegen import triton as codegen
from minipt2.inductor.hardware import REFERENCE
from minipt2.trace import subscribe

pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.runtime.interpreter")
ROWS, LAST, VOLUMES = torch.contiguous_format, torch.channels_last, torch.channels_last_3d


@pytest.fixture
def interpreted(fresh):
    with config.patch(triton_interpret=True):
        yield


def pooled(x, window, grad, indices, fn):
    x = x.clone().requires_grad_()
    made = fn(lambda v: getattr(F, f"max_pool{len(x.shape) - 2 if x.ndim > 3 else 2}d")(v, *window, return_indices=indices))(x)
    values, where = made if indices else (made, None)
    values.backward(grad if grad is not None else torch.ones_like(values))
    return values.detach(), where, x.grad


def check(x, window, indices=True):
    """Values, positions where they are asked for, the gradient and all strides are eager's."""
    grad = torch.randn_like(pooled(x, window, None, False, lambda fn: fn)[0])
    expected = pooled(x, window, grad, indices, lambda fn: fn)
    found = pooled(x, window, grad, indices, minipt2.compile)
    assert minipt2.counters()["fallbacks"] == 0
    for name, e, f in zip(("values", "positions", "gradient"), expected, found):
        if e is not None:
            assert e.stride() == f.stride() and e.dtype is f.dtype
            tolerance = dict(rtol=0, atol=0) if name != "gradient" else dict(rtol=1e-2, atol=1e-2) if x.dtype.itemsize == 2 else {}
            torch.testing.assert_close(f, e, equal_nan=True, msg=lambda m: f"{name} of {window}: {m}", **tolerance)


@pytest.mark.parametrize("layout", [ROWS, LAST])
@pytest.mark.parametrize("window", [(3, 2, 1), (2,), (2, None, 0, 1, True), ((3, 2), (2, 3), (1, 1), (2, 1), True), (3, 1, 1, 2), (5, 3, 2, 1, True), (1, 2)],
                         ids=str)
def test_windows(window, layout, interpreted):
    check(torch.randn(2, 16, 9, 11).to(memory_format=layout), window, indices=layout is ROWS)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype, interpreted):
    check((torch.randn(2, 16, 8, 7) * 2).to(dtype).to(memory_format=LAST), (3, 2, 1))


@pytest.mark.parametrize("values", ["ties", "nan", "all -inf"])
def test_which_of_equals(values, interpreted):
    """The first of equals, the last NaN, of nothing but -inf the first that is no padding."""
    x = torch.randn(2, 4, 7, 9).round()
    if values == "nan":
        x[torch.rand_like(x) < 0.2] = torch.nan
    if values == "all -inf":
        x.fill_(-torch.inf)
    check(x, (3, 2, 1, 1, True))


@pytest.mark.parametrize("shape, window", [((5, 9, 11), (3, 2, 1)), ((2, 3, 1, 4), ((1, 2), 1, (0, 1))), ((2, 8, 1, 1), (3, 2, 1)),
                                           ((2, 3, 5, 6, 7), ((2, 3, 1), (1, 2, 1), (1, 1, 0), (1, 2, 1), True))], ids=str)
def test_other_shapes(shape, window, interpreted):
    check(torch.randn(shape), window)


def test_volumes_with_channels_last(interpreted):
    check(torch.randn(2, 16, 3, 4, 5).to(memory_format=VOLUMES), (3, 2, 1), indices=False)


def test_sizes_that_vary(interpreted):
    fn = minipt2.compile(lambda v: F.max_pool2d(v, 3, 2, 1), dynamic=True)
    for shape in ((2, 16, 9, 11), (3, 16, 8, 6)):
        x, y = (torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_() for _ in range(2))
        found, expected = fn(x), F.max_pool2d(y, 3, 2, 1)
        found.sum().backward()
        expected.sum().backward()
        assert torch.equal(found, expected) and torch.equal(x.grad, y.grad)
    assert minipt2.counters()["fallbacks"] == 0


def test_large_windows_and_foreign_positions_are_eagers(interpreted):
    x = torch.randn(1, 2, 12, 12)
    assert torch.equal(minipt2.compile(lambda v: F.max_pool2d(v, 6))(x), F.max_pool2d(x, 6)) and minipt2.counters()["fallbacks"] == 1
    minipt2.reset()
    values, where = F.max_pool2d(x, 3, return_indices=True)
    back = torch.ops.aten.max_pool2d_with_indices_backward
    args = ([3, 3], [3, 3], [0, 0], [1, 1], False, where)
    assert torch.equal(minipt2.compile(lambda g, v: back(g, v, *args))(values, x), back(values, x, *args))
    assert minipt2.counters()["fallbacks"] == 1


def stem(x, weight):
    """What a ResNet begins with, after its convolution."""
    x = torch.relu(F.batch_norm(x, None, None, weight, weight, training=True))
    return F.max_pool2d(x, 3, 2, 1)


def sources(fn, *tensors):
    """Triton programs, for a large GPU, of ``fn`` and of its backward."""
    made = []
    stop = subscribe(lambda stage, name, payload: made.append(codegen.generate(payload() if callable(payload) else payload, REFERENCE)), "scheduler")
    try:
        minipt2.compile(fn)(*tensors).sum().backward()
    finally:
        stop()
    return made


def test_a_byte_is_kept_and_nothing_is_scattered(interpreted):
    x = torch.randn(4, 64, 16, 16).bfloat16().to(memory_format=LAST).requires_grad_()
    forward, backward = sources(stem, x, torch.ones(64, requires_grad=True))
    assert "*i8" in [t for p in forward.programs for t in p.signature]
    assert "*i64" not in [t for p in forward.programs + backward.programs for t in p.signature]
    assert "atomic" not in backward.text
    pool = next(p for p in forward.programs if "max_pool" in p.name)
    assert "YBLOCK" in pool.text and "p1 = y //" in pool.text  # positions are taken apart once a row of channels


@pytest.mark.slow
def test_machine_code(interpreted):
    x = torch.randn(4, 64, 16, 16).bfloat16().to(memory_format=LAST).requires_grad_()
    both = [vars(p) for s in sources(stem, x, torch.ones(64, requires_grad=True)) for p in s.programs]
    for binary, _ in (f.result() for f in triton_pool.submit(both, 90)):
        assert binary[:4] == b"\x7fELF"
